// Everything Python sees of the native core. The kernels are in the headers, one topic each; this
// file only converts arrays, releases the GIL and maps errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "beam.hpp"
#include "capped.hpp"
#include "chunk_scores.hpp"
#include "chunks.hpp"
#include "clustering.hpp"
#include "decision.hpp"
#include "effects.hpp"
#include "evaluation.hpp"
#include "inverted_index.hpp"
#include "isotonic.hpp"
#include "kmeans.hpp"
#include "label_vectors.hpp"
#include "metrics.hpp"
#include "normal_forms.hpp"
#include "online.hpp"
#include "parallel.hpp"
#include "ranked.hpp"
#include "sparse_text.hpp"
#include "training.hpp"
#include "vectorizer.hpp"
#include "voting.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
template <class T>
using Out2 = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;

// Hands a vector's memory to NumPy without a copy.
template <class T, class Allocator>
Out<T> to_numpy(std::vector<T, Allocator>&& values) {
    using Vector = std::vector<T, Allocator>;
    auto* kept = new Vector(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Vector*>(p); });
    return Out<T>(kept->data(), {kept->size()}, owner);
}

template <class T>
Out2<T> to_numpy(std::vector<T>&& values, std::size_t rows, std::size_t columns) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out2<T>(kept->data(), {rows, columns}, owner);
}

template <class T>
std::span<const T> span(const In<T>& array) {
    return {array.data(), array.shape(0)};
}

megalabel::RankedView ranked(const In2<std::int32_t>& ids, std::int64_t labels) {
    return {{ids.data(), ids.size()}, ids.shape(0), ids.shape(1), labels};
}

nb::tuple to_numpy(megalabel::Ranked&& ranked, std::size_t rows, std::size_t columns) {
    return nb::make_tuple(to_numpy(std::move(ranked.ids), rows, columns),
                          to_numpy(std::move(ranked.scores), rows, columns));
}

void raise_pending_signal() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// --- text to vectors: how the arguments come in

namespace text = megalabel::text;
using TextArrays = std::tuple<In<std::int64_t>, In<std::uint8_t>>;  // offsets, UTF-8
using LookupArrays = std::tuple<In<std::uint64_t>, In<std::int64_t>, In<std::uint8_t>>;
// unit, change of case, strip marks, shortest and longest n-gram, shortest word
using AnalysisNumbers = std::tuple<int, int, bool, std::size_t, std::size_t, std::size_t>;
using TermArrays =
    std::tuple<In<std::int64_t>, In<std::uint8_t>, In<std::int64_t>, In<std::int64_t>>;
using SelectionNumbers = std::tuple<double, double, std::size_t, bool>;  // as text::Selection

text::Strings strings_of(const In<std::int64_t>& offsets, const In<std::uint8_t>& data) {
    return {span(offsets), span(data)};
}
text::Strings strings_of(const TextArrays& arrays) {
    return strings_of(std::get<0>(arrays), std::get<1>(arrays));
}
text::Lookup lookup_of(const LookupArrays& arrays) {
    return {span(std::get<0>(arrays)), strings_of(std::get<1>(arrays), std::get<2>(arrays))};
}
text::TermsView terms_of(const TermArrays& arrays) {
    return {strings_of(std::get<0>(arrays), std::get<1>(arrays)), span(std::get<2>(arrays)),
            span(std::get<3>(arrays))};
}
text::Selection selection_of(const SelectionNumbers& n) {
    return {std::get<0>(n), std::get<1>(n), std::get<2>(n), std::get<3>(n)};
}
text::Analysis analysis_of(const AnalysisNumbers& n) {
    return {static_cast<text::Unit>(std::get<0>(n)),
            static_cast<megalabel::unicode::Case>(std::get<1>(n)),
            std::get<2>(n),
            std::get<3>(n),
            std::get<4>(n),
            std::get<5>(n)};
}

// The UTF-8 of a list of strings, one after another, and where each begins.
nb::tuple encode_texts(nb::handle values) {
    auto items = nb::steal(PySequence_Fast(values.ptr(), "expected a list of strings"));
    if (!items.is_valid()) nb::raise_python_error();
    const auto n = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
    std::vector<std::int64_t> offsets(n + 1);
    std::vector<std::uint8_t> data;
    for (std::size_t i = 0; i < n; ++i) {
        PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
        if (!PyUnicode_Check(item)) throw nb::type_error("expected a string");
        if (PyUnicode_IS_COMPACT_ASCII(item)) {
            const std::uint8_t* begin = PyUnicode_1BYTE_DATA(item);
            data.insert(data.end(), begin, begin + PyUnicode_GET_LENGTH(item));
        } else {  // not PyUnicode_AsUTF8, which would keep a copy in the string
            auto utf8 = nb::steal<nb::bytes>(PyUnicode_AsUTF8String(item));
            if (!utf8.is_valid()) nb::raise_python_error();
            data.insert(data.end(), utf8.c_str(), utf8.c_str() + utf8.size());
        }
        offsets[i + 1] = static_cast<std::int64_t>(data.size());
        if ((i + 1) % (1 << 16) == 0) raise_pending_signal();
    }
    return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(data)));
}

template <class T>
Out<T> to_numpy(text::Buffer<T>&& values) {
    std::size_t size = values.size;
    T* data = values.data.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T>(data, {size}, owner);
}
nb::tuple to_numpy(text::Terms&& terms) {
    return nb::make_tuple(to_numpy(std::move(terms.offsets)), to_numpy(std::move(terms.data)),
                          to_numpy(std::move(terms.text_counts)),
                          to_numpy(std::move(terms.counts)));
}
nb::tuple to_numpy(text::CountRows&& rows) {
    return nb::make_tuple(to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)),
                          to_numpy(std::move(rows.counts)));
}
template <class Compute>
auto without_gil(Compute&& compute) {
    nb::gil_scoped_release release;
    return compute();
}

// --- chunked weights and queries: how the arguments come in

using Untyped = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
// child starts, section starts, row features, row starts, block starts and their bits, entries'
// gaps and weights, scales, biases, number of features
using LevelArrays = std::tuple<In<std::int64_t>, In<std::int64_t>, In<std::uint16_t>,
                               In<std::uint16_t>, In<std::int64_t>, std::size_t, In<std::uint8_t>,
                               Untyped, In<float>, In<float>, std::size_t>;
// row starts, columns, values, number of columns
using SparseArrays = std::tuple<In<std::int64_t>, In<std::int32_t>, In<float>, std::size_t>;

// Sets `out` to the array if it holds numbers of type T (laid out as a Held).
template <class T, class Held, class Spans>
bool hold(const Untyped& array, Spans& out) {
    if (array.dtype() != nb::dtype<T>()) return false;
    out = std::span<const Held>{static_cast<const Held*>(array.data()), array.shape(0)};
    return true;
}
megalabel::ChunkedWeights level_of(const LevelArrays& arrays) {
    const auto& [child_starts, section_starts, row_features, row_starts, block_starts, block_bits,
                 gaps, weights, scales, biases, width] = arrays;
    megalabel::ChunkedWeights level{span(child_starts),
                                    span(section_starts),
                                    span(row_features),
                                    span(row_starts),
                                    span(block_starts),
                                    block_bits,
                                    span(gaps),
                                    {},
                                    span(scales),
                                    span(biases),
                                    width};
    if (!hold<float, float>(weights, level.entry_weights) &&
        !hold<std::uint16_t, megalabel::Half>(weights, level.entry_weights) &&
        !hold<std::int8_t, std::int8_t>(weights, level.entry_weights))
        throw std::invalid_argument("weights must be float32, float16 (as uint16) or int8");
    return level;
}
std::vector<megalabel::ChunkedWeights> levels_of(const std::vector<LevelArrays>& arrays) {
    std::vector<megalabel::ChunkedWeights> levels;
    for (const auto& level : arrays) levels.push_back(level_of(level));
    return levels;
}
megalabel::Queries queries_of(const SparseArrays& arrays, float bias) {
    const auto& [starts, columns, values, width] = arrays;
    return {{span(starts), span(columns), span(values), width},
            {},
            std::max<std::size_t>(starts.shape(0), 1) - 1,
            bias};
}
megalabel::Queries queries_of(const In2<float>& rows, float bias) {
    return {{{}, {}, {}, rows.shape(1)}, {rows.data(), rows.size()}, rows.shape(0), bias};
}

// `Weight` is what an entry keeps, `Shown` what NumPy sees it as.
template <class Shown, class Weight>
nb::tuple to_numpy(megalabel::BuiltChunks<Weight> built) {
    auto* weights = new std::vector<Weight>(std::move(built.weights));
    nb::capsule owner(weights,
                      [](void* p) noexcept { delete static_cast<std::vector<Weight>*>(p); });
    return nb::make_tuple(
        to_numpy(std::move(built.section_starts)), to_numpy(std::move(built.row_features)),
        to_numpy(std::move(built.row_starts)), to_numpy(std::move(built.block_starts)),
        built.block_bits, to_numpy(std::move(built.gaps)),
        Out<Shown>(reinterpret_cast<Shown*>(weights->data()), {weights->size()}, owner),
        to_numpy(std::move(built.scales)), to_numpy(std::move(built.biases)));
}

template <class Weight, class Shown>
nb::tuple build_chunks(In<std::int64_t> starts, In<std::int32_t> columns, In<float> values,
                       std::size_t width, In<std::int64_t> child_starts) {
    return to_numpy<Shown>(without_gil([&] {
        return megalabel::build_chunks<Weight>(span(starts), span(columns), span(values), width,
                                               span(child_starts));
    }));
}

template <class Weight, class Shown>
nb::tuple join_chunks(const std::vector<LevelArrays>& arrays,
                      const std::vector<In<std::int32_t>>& places) {
    const auto parts = levels_of(arrays);
    std::vector<std::span<const std::int32_t>> of_parts;
    for (const auto& part : places) of_parts.push_back(span(part));
    return to_numpy<Shown>(
        without_gil([&] { return megalabel::join_chunks<Weight>(parts, of_parts); }));
}

template <class Rows>
nb::tuple beam_search(const std::vector<LevelArrays>& arrays, In<std::int32_t> labels,
                      std::size_t label_count, int post, const Rows& rows, float bias,
                      std::size_t k, std::size_t beam) {
    auto levels = levels_of(arrays);
    megalabel::Tree tree{levels, span(labels), label_count, static_cast<megalabel::Post>(post)};
    auto queries = queries_of(rows, bias);
    auto ranked = without_gil([&] { return megalabel::BeamSearch(tree, queries, k, beam).run(); });
    return to_numpy(std::move(ranked), queries.n, k);
}

template <class Rows>
nb::tuple best_first_search(const std::vector<LevelArrays>& arrays, In<std::int32_t> labels,
                            std::size_t label_count, int post, const Rows& rows, float bias,
                            std::size_t k, const std::vector<In<float>>& log_weights) {
    auto levels = levels_of(arrays);
    megalabel::Tree tree{levels, span(labels), label_count, static_cast<megalabel::Post>(post)};
    auto queries = queries_of(rows, bias);
    std::vector<std::span<const float>> weights;
    for (const auto& level : log_weights) weights.push_back(span(level));
    auto ranked =
        without_gil([&] { return megalabel::BestFirstSearch(tree, queries, k, weights).run(); });
    return to_numpy(std::move(ranked), queries.n, k);
}

template <class Rows>
Out<float> score_pairs(const LevelArrays& arrays, const Rows& rows, float bias,
                       In<std::int64_t> pair_rows, In<std::int64_t> parents) {
    auto level = level_of(arrays);
    auto queries = queries_of(rows, bias);
    return to_numpy(without_gil(
        [&] { return megalabel::score_pairs(level, queries, span(pair_rows), span(parents)); }));
}

// --- decisions: how the arguments come in

namespace decision = megalabel::decision;
template <class T>
using InOut2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// number of the metric, its beta, the objective's two factors, rows
using MetricNumbers = std::tuple<int, double, double, double, double>;
constexpr int coverage_metric = 8;

decision::Shortlist shortlist_of(const In2<std::int32_t>& ids, const In2<float>& probabilities,
                                 std::size_t labels) {
    return {{ids.data(), ids.size()},
            {probabilities.data(), probabilities.size()},
            ids.shape(0),
            ids.shape(1),
            labels};
}
// Labels come as rows of float64, or of other numbers in as many bytes.
template <class Label>
std::span<Label> labels_of(const InOut2<double>& labels) {
    if (labels.shape(1) * sizeof(double) != sizeof(Label))
        throw std::invalid_argument("labels have another number of columns");
    return {reinterpret_cast<Label*>(labels.data()), labels.shape(0)};
}
decision::Choices choices_of(const InOut2<std::uint8_t>& chosen) {
    return {{chosen.data(), chosen.size()}, chosen.shape(1)};
}

// A metric written in Python: called with arrays (4, candidates) of tp, fp, fn, tn in parts of the
// rows. Gains come of one call with both outcomes of each candidate side by side and their labels,
// slopes of one with the entries and the direction in which giving moves them.
struct CustomMetric {
    static constexpr bool exact = true;
    nb::object function;
    const decision::Shortlist& shortlist;
    decision::Objective objective;
    double rows;

    static void put(decision::Label& label, double probability, int sign) {
        decision::MetricGains<decision::Precision>::put(label, probability, sign);
    }
    static void entries(std::vector<double>& out, std::size_t width, std::size_t column,
                        double hits, double given, double positives, double rows) {
        // What is left of sums may miss 0 by its last bits, which a ratio would make much of.
        hits = given > 0 ? std::clamp(hits, 0.0, given) : 0;
        const double values[] = {hits, given - hits, positives - hits,
                                 rows - given - positives + hits};
        for (std::size_t e = 0; e < 4; ++e)
            out[e * width + column] = std::max(0.0, values[e]) / rows;
    }
    template <class... Arguments>
    void call(decision::Candidates& c, Arguments&&... arguments) const {
        const auto result = nb::cast<In<double>>(function(std::forward<Arguments>(arguments)...));
        if (result.shape(0) != c.size)
            throw std::invalid_argument("the metric gave another number of values than of labels");
        std::copy_n(result.data(), c.size, c.gains.begin());
    }
    void operator()(decision::Candidates& c) const {
        const std::size_t size = c.size;
        std::vector<double> both(8 * size);
        for (std::size_t i = 0; i < size; ++i) {
            entries(both, 2 * size, i, c.hits[i] + c.probabilities[i], c.given[i] + 1,
                    c.positives[i], rows);
            entries(both, 2 * size, size + i, c.hits[i], c.given[i], c.positives[i], rows);
        }
        std::vector<std::int32_t> ids(size);
        for (std::size_t i = 0; i < size; ++i)
            ids[i] = static_cast<std::int32_t>(shortlist.id(c.row, c.places[i]));
        call(c, to_numpy(std::move(both), 4, 2 * size), to_numpy(std::move(ids)));
        for (std::size_t i = 0; i < size; ++i)
            c.gains[i] = objective.linear * c.probabilities[i] + objective.scale * c.gains[i];
    }
    void operator()(decision::Candidates& c, double seen) const {
        const std::size_t size = c.size;
        std::vector<double> at(4 * size), direction(4 * size);
        for (std::size_t i = 0; i < size; ++i) {
            const double p = c.probabilities[i];
            entries(at, size, i, c.hits[i], c.given[i], c.positives[i], seen);
            const double moves[] = {p, 1 - p, -p, p - 1};
            for (std::size_t e = 0; e < 4; ++e) direction[e * size + i] = moves[e];
        }
        call(c, to_numpy(std::move(at), 4, size), to_numpy(std::move(direction), 4, size));
        for (std::size_t i = 0; i < size; ++i)
            c.gains[i] = objective.linear * c.probabilities[i] + objective.scale * c.gains[i];
    }
};

template <class Sum>
void add_decision_sums(In2<std::int32_t> ids, In2<float> values, InOut2<std::uint8_t> chosen,
                       InOut2<double> sums) {
    nb::gil_scoped_release release;
    const decision::Shortlist shortlist{
        {ids.data(), ids.size()}, {}, ids.shape(0), ids.shape(1), sums.shape(0)};
    decision::add_sums<float, Sum>(shortlist, {values.data(), values.size()}, choices_of(chosen),
                                   labels_of<Sum>(sums));
}

template <class Value>
void add_decision_rule_sums(In2<std::int32_t> ids, In2<float> probabilities, In2<Value> values,
                            In<float> weights, In<float> offsets, std::size_t k, double floor,
                            InOut2<double> sums) {
    nb::gil_scoped_release release;
    decision::add_rule_sums<Value>(shortlist_of(ids, probabilities, sums.shape(0)),
                                   {values.data(), values.size()}, span(weights), span(offsets),
                                   {k, floor}, labels_of<decision::Sums>(sums));
}

// Calls use(gains) for a metric; the GIL is kept only for one that is written in Python.
template <class Use>
void with_gains(const MetricNumbers& numbers, const nb::object& custom,
                const decision::Shortlist& shortlist, Use&& use) {
    const auto [number, beta, linear, scale, rows] = numbers;
    const decision::Objective objective{linear, scale};
    if (!custom.is_none()) return use(CustomMetric{custom, shortlist, objective, rows});
    nb::gil_scoped_release release;
    if (number == coverage_metric) return use(decision::CoverageGains{objective});
    decision::with_metric(number, beta, [&](auto metric) {
        use(decision::MetricGains<decltype(metric)>{metric, objective, rows});
    });
}

}  // namespace

NB_MODULE(_native, m) {
    megalabel::check_signals = raise_pending_signal;
    megalabel::signal_thread = reinterpret_cast<pthread_t>(nb::cast<unsigned long>(
        nb::module_::import_("threading").attr("main_thread")().attr("ident")));
    megalabel::ThreadPool::threads();  // a bad MEGALABEL_THREADS is told on import

    // --- threads (parallel.hpp)
    m.def("get_threads", [] { return megalabel::ThreadPool::threads().load(); });
    m.def(
        "set_threads",
        [](int n) {
            if (n < 1)
                throw std::invalid_argument("expected at least 1 thread, not " + std::to_string(n));
            megalabel::ThreadPool::threads().store(n);
        },
        "n"_a);
    // A loop with nothing in it but time, so that tests can interrupt, fork and fail in it.
    m.def(
        "sleep_loop",
        [](std::size_t pieces, double seconds, std::ptrdiff_t fail_at) {
            nb::gil_scoped_release release;
            megalabel::parallel_for(pieces, 1, [&](std::size_t begin, std::size_t) {
                if (static_cast<std::ptrdiff_t>(begin) == fail_at)
                    throw std::runtime_error("piece " + std::to_string(begin) + " failed");
                std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            });
        },
        "pieces"_a, "seconds"_a, "fail_at"_a = -1);

    // --- rows and what is ranked in them (ranked.hpp)
    m.def("all_finite", [](In<float> values) {
        return without_gil([&] { return megalabel::all_finite(span(values)); });
    });

    // --- sparse text formats (sparse_text.hpp)
    m.def(
        "parse_sparse_text",
        [](In<std::uint8_t> text, bool svmlight, std::int64_t features, std::int64_t labels,
           std::int64_t first_line, std::size_t keep, std::size_t piece_bytes) {
            for (auto limit : {features, labels})
                if (limit < 0 || limit > std::numeric_limits<std::int32_t>::max())
                    throw std::invalid_argument("numbers of features and labels are 31 bits wide");
            megalabel::sparse_text::Rows rows;
            {
                nb::gil_scoped_release release;
                rows = megalabel::sparse_text::parse(
                    {reinterpret_cast<const char*>(text.data()), text.size()},
                    {svmlight, features, labels, first_line, keep, piece_bytes});
            }
            nb::list problems;
            for (auto& p : rows.problems)
                problems.append(nb::make_tuple(p.line, p.column,
                                               nb::bytes(p.message.data(), p.message.size())));
            return nb::make_tuple(
                to_numpy(std::move(rows.target_indptr)), to_numpy(std::move(rows.target_indices)),
                to_numpy(std::move(rows.feature_indptr)), to_numpy(std::move(rows.feature_indices)),
                to_numpy(std::move(rows.values)), rows.bad, problems);
        },
        "text"_a, "svmlight"_a, "features"_a, "labels"_a, "first_line"_a, "keep"_a,
        "piece_bytes"_a = megalabel::sparse_text::Options{}.piece_bytes);
    m.def(
        "format_sparse_text",
        [](In<std::int64_t> target_indptr, In<std::int32_t> target_indices,
           In<std::int64_t> feature_indptr, In<std::int32_t> feature_indices, In<float> values,
           std::size_t begin, std::size_t end) {
            std::string text;
            {
                nb::gil_scoped_release release;
                text = megalabel::sparse_text::format(
                    {{target_indptr.data(), target_indptr.size()},
                     {target_indices.data(), target_indices.size()}},
                    {{feature_indptr.data(), feature_indptr.size()},
                     {feature_indices.data(), feature_indices.size()}},
                    {values.data(), values.size()}, begin, end);
            }
            return nb::bytes(text.data(), text.size());
        },
        "target_indptr"_a, "target_indices"_a, "feature_indptr"_a, "feature_indices"_a, "values"_a,
        "begin"_a, "end"_a);

    // --- text to vectors (vectorizer.hpp)
    m.attr("UNICODE_VERSION") = megalabel::unicode::kVersion;
    m.def("encode_texts", &encode_texts);
    m.def("analyse", [](TextArrays texts, AnalysisNumbers how, LookupArrays stop) {
        auto [offsets, data] = without_gil(
            [&] { return text::analyse(strings_of(texts), analysis_of(how), lookup_of(stop)); });
        return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(data)));
    });
    m.def("normalise_texts", [](TextArrays texts, bool compose, bool compatible) -> nb::object {
        auto found =
            without_gil([&] { return text::normalised(strings_of(texts), {compose, compatible}); });
        if (!found) return nb::none();
        return nb::make_tuple(to_numpy(std::move(found->first)),
                              to_numpy(std::move(found->second)));
    });
    m.def("lookup_slots", [](TextArrays terms) {
        return to_numpy(without_gil([&] { return text::lookup_slots(strings_of(terms)); }));
    });
    m.def("count_terms", [](TextArrays texts, AnalysisNumbers how, LookupArrays stop) {
        return to_numpy(without_gil([&] {
            return text::count_terms(strings_of(texts), analysis_of(how), lookup_of(stop), false)
                .terms;
        }));
    });
    m.def("merge_terms", [](TermArrays a, TermArrays b) {
        return to_numpy(without_gil([&] { return text::merge_terms(terms_of(a), terms_of(b)); }));
    });
    m.def("select_terms", [](TermArrays terms, SelectionNumbers wanted) {
        return to_numpy(without_gil(
            [&] { return text::select_terms(terms_of(terms), selection_of(wanted)).first; }));
    });
    m.def("learn_rows",
          [](TextArrays texts, AnalysisNumbers how, LookupArrays stop, SelectionNumbers wanted) {
              auto learned = without_gil([&] {
                  return text::learn_rows(strings_of(texts), analysis_of(how), lookup_of(stop),
                                          selection_of(wanted));
              });
              return nb::make_tuple(to_numpy(std::move(learned.terms)), learned.found,
                                    to_numpy(std::move(learned.rows)));
          });
    m.def("find_rows",
          [](TextArrays texts, AnalysisNumbers how, LookupArrays stop, LookupArrays terms) {
              return to_numpy(without_gil([&] {
                  return text::find_rows(strings_of(texts), analysis_of(how), lookup_of(stop),
                                         text::TermFinder{lookup_of(terms)});
              }));
          });
    m.def("hash_rows",
          [](TextArrays texts, AnalysisNumbers how, LookupArrays stop, std::uint32_t columns) {
              return to_numpy(without_gil([&] {
                  return text::find_rows(strings_of(texts), analysis_of(how), lookup_of(stop),
                                         text::HashFinder(columns));
              }));
          });
    m.def("weigh_rows", [](In<std::int64_t> indptr, In<std::int32_t> indices,
                           nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu> values,
                           In<float> idf, bool binary, bool sublinear, int norm) {
        nb::gil_scoped_release release;
        text::weigh_rows(span(indptr), span(indices), {values.data(), values.size()}, span(idf),
                         binary, sublinear, static_cast<text::Norm>(norm));
    });

    // --- nearest neighbours (inverted_index.hpp, voting.hpp)
    m.def(
        "build_postings",
        [](In<std::int64_t> starts, In<std::int32_t> columns, In<float> values, std::size_t width) {
            megalabel::Postings postings;
            {
                nb::gil_scoped_release release;
                postings =
                    megalabel::build_postings({span(starts), span(columns), span(values), width});
            }
            return nb::make_tuple(
                to_numpy(std::move(postings.starts)), to_numpy(std::move(postings.documents)),
                to_numpy(std::move(postings.weights)), to_numpy(std::move(postings.largest)),
                to_numpy(std::move(postings.common)), postings.norm);
        },
        "starts"_a, "columns"_a, "values"_a, "width"_a);
    m.def(
        "search_postings",
        [](In<std::int64_t> term_starts, In<std::int32_t> term_documents, In<float> term_weights,
           In<float> largest, In<std::uint8_t> common, In<std::int64_t> row_starts,
           In<std::int32_t> row_terms, In<float> row_weights, double norm,
           In<std::int64_t> query_starts, In<std::int32_t> query_terms, In<float> query_weights,
           std::size_t k, In<std::int64_t> left_out, bool prune) {
            const std::size_t width = largest.size();
            const std::size_t n = std::max<std::size_t>(row_starts.size(), 1) - 1;
            megalabel::SparseRows postings{span(term_starts), span(term_documents),
                                           span(term_weights), n};
            megalabel::SparseRows rows{span(row_starts), span(row_terms), span(row_weights), width};
            megalabel::SparseRows queries{span(query_starts), span(query_terms),
                                          span(query_weights), width};
            megalabel::Ranked ranked(0, 0, 0);
            {
                nb::gil_scoped_release release;
                ranked = megalabel::Search(postings, span(largest), span(common), rows, norm,
                                           queries, k, span(left_out), prune)
                             .run();
            }
            return to_numpy(std::move(ranked), queries.size(), k);
        },
        "term_starts"_a, "term_documents"_a, "term_weights"_a, "largest"_a, "common"_a,
        "row_starts"_a, "row_terms"_a, "row_weights"_a, "norm"_a, "query_starts"_a, "query_terms"_a,
        "query_weights"_a, "k"_a, "left_out"_a, "prune"_a);
    m.def(
        "rescore_dense",
        [](In2<float> queries, In2<float> documents, In<std::int64_t> starts,
           In<std::int32_t> candidates, std::size_t k) {
            if (queries.shape(1) != documents.shape(1))
                throw std::invalid_argument("queries and documents differ in width");
            std::vector<float> unused(candidates.size());  // candidates have no values
            megalabel::SparseRows rows{span(starts), span(candidates), unused, documents.shape(0)};
            megalabel::Ranked ranked(0, 0, 0);
            {
                nb::gil_scoped_release release;
                ranked = megalabel::rescore_dense({queries.data(), queries.size()},
                                                  {documents.data(), documents.size()},
                                                  queries.shape(1), rows, k);
            }
            return to_numpy(std::move(ranked), rows.size(), k);
        },
        "queries"_a, "documents"_a, "starts"_a, "candidates"_a, "k"_a);
    m.def(
        "vote",
        [](In2<std::int32_t> ids, In2<float> similarities, double power, In<std::int64_t> starts,
           In<std::int32_t> labels, In<float> relevances, In<float> prior,
           In<std::int32_t> by_prior, std::size_t k) {
            megalabel::Neighbours neighbours{{ids.data(), ids.size()},
                                             {similarities.data(), similarities.size()},
                                             ids.shape(0),
                                             ids.shape(1)};
            megalabel::SparseRows rows{span(starts), span(labels), span(relevances), prior.size()};
            megalabel::Ranked ranked(0, 0, 0);
            {
                nb::gil_scoped_release release;
                ranked = megalabel::vote(neighbours, power, rows, span(prior), span(by_prior), k);
            }
            return to_numpy(std::move(ranked), neighbours.n, k);
        },
        "ids"_a, "similarities"_a, "power"_a, "starts"_a, "labels"_a, "relevances"_a, "prior"_a,
        "by_prior"_a, "k"_a);

    // --- linear classifiers (groups.hpp)
    m.def(
        "train_groups",
        [](In<std::int64_t> starts, In<std::int32_t> columns, In<float> values, std::size_t width,
           In<std::int64_t> row_starts, In<std::int32_t> rows, In<std::int64_t> label_starts,
           In<std::int64_t> positive_starts, In<std::int32_t> positives, In<float> positive_costs,
           In<float> negative_costs, In<float> factors, bool logistic, double eps, float bias,
           float prune) {
            megalabel::newton::Options options;
            if (logistic) options.loss = megalabel::newton::Loss::logistic;
            options.eps = eps;
            options.bias = bias;
            options.prune = prune;
            megalabel::WeightRows trained;
            {
                nb::gil_scoped_release release;
                trained = megalabel::train_groups(
                    {span(starts), span(columns), span(values), width},
                    {span(row_starts), span(rows), span(label_starts), span(positive_starts),
                     span(positives), span(positive_costs), span(negative_costs), span(factors)},
                    options);
            }
            return nb::make_tuple(to_numpy(std::move(trained.starts)),
                                  to_numpy(std::move(trained.columns)),
                                  to_numpy(std::move(trained.values)));
        },
        "starts"_a, "columns"_a, "values"_a, "width"_a, "row_starts"_a, "rows"_a, "label_starts"_a,
        "positive_starts"_a, "positives"_a, "positive_costs"_a, "negative_costs"_a, "factors"_a,
        "logistic"_a, "eps"_a, "bias"_a, "prune"_a);
    // --- chunked weights and trees (chunks.hpp, chunk_scores.hpp, beam.hpp)
    m.def("build_chunks_float32", &build_chunks<float, float>, "starts"_a, "columns"_a, "values"_a,
          "width"_a, "child_starts"_a);
    m.def("build_chunks_float16", &build_chunks<megalabel::Half, std::uint16_t>, "starts"_a,
          "columns"_a, "values"_a, "width"_a, "child_starts"_a);
    m.def("build_chunks_int8", &build_chunks<std::int8_t, std::int8_t>, "starts"_a, "columns"_a,
          "values"_a, "width"_a, "child_starts"_a);
    m.def("join_chunks_float32", &join_chunks<float, float>, "parts"_a, "places"_a);
    m.def("join_chunks_float16", &join_chunks<megalabel::Half, std::uint16_t>, "parts"_a,
          "places"_a);
    m.def("join_chunks_int8", &join_chunks<std::int8_t, std::int8_t>, "parts"_a, "places"_a);
    m.def("score_pairs", &score_pairs<SparseArrays>);
    m.def("score_pairs", &score_pairs<In2<float>>);
    m.def("beam_search", &beam_search<SparseArrays>);
    m.def("beam_search", &beam_search<In2<float>>);
    m.def("best_first_search", &best_first_search<SparseArrays>);
    m.def("best_first_search", &best_first_search<In2<float>>);

    // --- metrics (metrics.hpp, evaluation.hpp, effects.hpp)
    m.def(
        "ranking_hits",
        [](In2<std::int32_t> ids, std::int64_t labels, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive, std::size_t k) {
            std::vector<std::uint8_t> hits;
            {
                nb::gil_scoped_release release;
                hits = megalabel::ranking_hits(ranked(ids, labels),
                                               {span(indptr), span(indices), span(positive)}, k);
            }
            return to_numpy(std::move(hits), ids.shape(0), k);
        },
        "ids"_a, "labels"_a, "indptr"_a, "indices"_a, "positive"_a, "k"_a);
    m.def(
        "drop_labels",
        [](In2<std::int32_t> ids, In2<float> scores, std::int64_t labels, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive) {
            auto kept = without_gil([&] {
                return megalabel::drop_labels(ranked(ids, labels), {scores.data(), scores.size()},
                                              {span(indptr), span(indices), span(positive)});
            });
            return to_numpy(std::move(kept), ids.shape(0), ids.shape(1));
        },
        "ids"_a, "scores"_a, "labels"_a, "indptr"_a, "indices"_a, "positive"_a);
    m.def("sample_groups", [] { return megalabel::sample_groups; });
    m.def(
        "add_row_sums",
        [](In2<double> before, std::uint64_t first_row, In2<std::int32_t> ids, In2<float> scores,
           std::int64_t labels, In<std::int64_t> indptr, In<std::int32_t> indices,
           In<std::uint8_t> positive, In<std::int64_t> cutoffs, In<double> weights) {
            auto sums = without_gil([&] {
                return megalabel::add_row_sums({before.data(), before.size()}, first_row,
                                               ranked(ids, labels), {scores.data(), scores.size()},
                                               {span(indptr), span(indices), span(positive)},
                                               span(cutoffs), span(weights));
            });
            return to_numpy(std::move(sums), before.shape(0), before.shape(1));
        },
        "before"_a, "first_row"_a, "ids"_a, "scores"_a, "labels"_a, "indptr"_a, "indices"_a,
        "positive"_a, "cutoffs"_a, "weights"_a);
    m.def(
        "label_counts",
        [](In2<std::int32_t> ids, std::int64_t labels, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive, In<std::int64_t> cutoffs,
           std::size_t width) {
            auto counts = without_gil([&] {
                return megalabel::label_counts(ranked(ids, labels),
                                               {span(indptr), span(indices), span(positive)},
                                               span(cutoffs), width);
            });
            return to_numpy(std::move(counts), 2 * cutoffs.size() + 1, width);
        },
        "ids"_a, "labels"_a, "indptr"_a, "indices"_a, "positive"_a, "cutoffs"_a, "width"_a);
    m.def(
        "reliability_cells",
        [](In2<std::int32_t> ids, In2<float> scores, std::int64_t labels, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive, In<std::int64_t> cutoffs,
           std::size_t bins) {
            return to_numpy(without_gil([&] {
                return megalabel::reliability_cells(
                    ranked(ids, labels), {scores.data(), scores.size()},
                    {span(indptr), span(indices), span(positive)}, span(cutoffs), bins);
            }));
        },
        "ids"_a, "scores"_a, "labels"_a, "indptr"_a, "indices"_a, "positive"_a, "cutoffs"_a,
        "bins"_a);
    m.def(
        "add_effects",
        [](In2<double> before, std::uint64_t first_row, In2<std::int32_t> ids, In2<float> scores,
           std::int64_t labels, In<std::int64_t> indptr, In<std::int32_t> indices,
           In<std::uint8_t> positive, std::size_t k, In<std::int32_t> class_of, In2<float> of_class,
           In2<float> slopes, std::size_t bins) {
            auto sums = without_gil([&] {
                return megalabel::add_effects({before.data(), before.size()}, first_row,
                                              ranked(ids, labels), {scores.data(), scores.size()},
                                              {span(indptr), span(indices), span(positive)}, k,
                                              {span(class_of),
                                               {of_class.data(), of_class.size()},
                                               {slopes.data(), slopes.size()},
                                               slopes.shape(1),
                                               bins});
            });
            return to_numpy(std::move(sums), before.shape(0), before.shape(1));
        },
        "before"_a, "first_row"_a, "ids"_a, "scores"_a, "labels"_a, "indptr"_a, "indices"_a,
        "positive"_a, "k"_a, "class_of"_a, "of_class"_a, "slopes"_a, "bins"_a);

    // --- calibration (isotonic.hpp)
    m.def(
        "isotonic_fit",
        [](In<float> scores, In<std::uint8_t> hits, In<float> weights) {
            auto map = without_gil(
                [&] { return megalabel::isotonic::fit(span(scores), span(hits), span(weights)); });
            return nb::make_tuple(to_numpy(std::move(map.thresholds)),
                                  to_numpy(std::move(map.values)));
        },
        "scores"_a, "hits"_a, "weights"_a);
    m.def(
        "isotonic_apply",
        [](In<float> scores, In<float> thresholds, In<float> values) {
            return to_numpy(without_gil([&] {
                return megalabel::isotonic::apply(span(scores), span(thresholds), span(values));
            }));
        },
        "scores"_a, "thresholds"_a, "values"_a);
    m.def(
        "falling_rows",
        [](In2<float> rows, std::size_t pooled) {
            auto fallen = without_gil([&] {
                return megalabel::isotonic::falling_rows({rows.data(), rows.size()}, rows.shape(1),
                                                         pooled);
            });
            return to_numpy(std::move(fallen), rows.shape(0), rows.shape(1));
        },
        "rows"_a, "pooled"_a);

    // --- label vectors and trees (label_vectors.hpp, clustering.hpp, kmeans.hpp)
    m.def(
        "weighted_sums",
        [](In<std::int64_t> weight_starts, In<std::int32_t> weight_rows, In<float> weights,
           In<std::int64_t> starts, In<std::int32_t> columns, In<float> values, std::size_t width,
           std::size_t keep) {
            const std::size_t n = std::max<std::size_t>(starts.size(), 1) - 1;
            auto sums = without_gil([&] {
                return megalabel::weighted_sums(
                    {span(weight_starts), span(weight_rows), span(weights), n},
                    {span(starts), span(columns), span(values), width}, keep);
            });
            return nb::make_tuple(to_numpy(std::move(sums.values)),
                                  to_numpy(std::move(sums.columns)),
                                  to_numpy(std::move(sums.starts)));
        },
        "weight_starts"_a, "weight_rows"_a, "weights"_a, "starts"_a, "columns"_a, "values"_a,
        "width"_a, "keep"_a);
    m.def(
        "halve_level",
        [](In<std::int64_t> row_starts, In<std::int32_t> columns, In<float> values,
           std::size_t width, In<std::int32_t> members, In<std::int64_t> starts, std::uint64_t seed,
           std::uint64_t depth, bool spherical, std::size_t iterations) {
            megalabel::SparseRows vectors{span(row_starts), span(columns), span(values), width};
            return to_numpy(without_gil([&] {
                return megalabel::clustering::halve_level(
                    {vectors, span(members), span(starts), seed, depth}, spherical, iterations);
            }));
        },
        "row_starts"_a, "columns"_a, "values"_a, "width"_a, "members"_a, "starts"_a, "seed"_a,
        "depth"_a, "spherical"_a, "iterations"_a);
    m.def(
        "cluster_level",
        [](In<std::int64_t> row_starts, In<std::int32_t> columns, In<float> values,
           std::size_t width, In<std::int32_t> members, In<std::int64_t> starts, std::uint64_t seed,
           std::uint64_t depth, std::size_t largest, std::size_t arity, std::size_t aim,
           bool balanced, std::size_t iterations, double tolerance) {
            megalabel::SparseRows vectors{span(row_starts), span(columns), span(values), width};
            auto groups = without_gil([&] {
                return megalabel::clustering::cluster_level(
                    {vectors, span(members), span(starts), seed, depth},
                    {largest, arity, aim, balanced, iterations, tolerance});
            });
            return nb::make_tuple(to_numpy(std::move(groups.members)),
                                  to_numpy(std::move(groups.starts)),
                                  to_numpy(std::move(groups.child_starts)));
        },
        "row_starts"_a, "columns"_a, "values"_a, "width"_a, "members"_a, "starts"_a, "seed"_a,
        "depth"_a, "largest"_a, "arity"_a, "aim"_a, "balanced"_a, "iterations"_a, "tolerance"_a);

    // --- online trees (online.hpp)
    m.def("update_blocks", [](SparseArrays x, In<std::int64_t> visit_starts, In<std::int32_t> rows,
                              In<std::int64_t> place_starts, In<std::int32_t> places,
                              In<std::int64_t> feature_starts, In<std::int32_t> features,
                              In<std::int32_t> old_columns, In<float> weights, In<float> squares,
                              In<std::int32_t> columns, float rate, float epsilon, float bias) {
        auto& [starts, indices, values, width] = x;
        const megalabel::SparseRows matrix{span(starts), span(indices), span(values), width};
        const megalabel::online::Visits visits{span(visit_starts), span(rows), span(place_starts),
                                               span(places)};
        const megalabel::online::Blocks old{span(feature_starts), span(features), span(old_columns),
                                            span(weights), span(squares)};
        auto grown = without_gil([&] {
            return megalabel::online::Update(matrix, visits, old, span(columns),
                                             {rate, epsilon, bias})
                .run();
        });
        return nb::make_tuple(
            to_numpy(std::move(grown.feature_starts)), to_numpy(std::move(grown.features)),
            to_numpy(std::move(grown.weights)), to_numpy(std::move(grown.squares)));
    });
    m.def("block_child_rows", [](In<std::int64_t> feature_starts, In<std::int32_t> features,
                                 In<std::int32_t> columns, In<float> weights, std::size_t width,
                                 float prune) {
        auto rows = without_gil([&] {
            return megalabel::online::child_rows(
                {span(feature_starts), span(features), span(columns), span(weights), {}}, width,
                prune);
        });
        return nb::make_tuple(to_numpy(std::move(rows.starts)), to_numpy(std::move(rows.columns)),
                              to_numpy(std::move(rows.values)));
    });

    // --- decisions (decision.hpp)
    m.def(
        "decision_ascend",
        [](In2<std::int32_t> ids, In2<float> probabilities, InOut2<double> labels,
           In<double> positives, In<std::int32_t> caps, InOut2<std::uint8_t> chosen,
           In<std::int32_t> order, std::size_t k, double floor, MetricNumbers metric,
           nb::object custom) {
            const auto shortlist = shortlist_of(ids, probabilities, labels.shape(0));
            const decision::Labels known{labels_of<decision::Label>(labels), span(positives),
                                         span(caps)};
            with_gains(metric, custom, shortlist, [&](auto gains) {
                decision::ascend(shortlist, span(order), known, choices_of(chosen), {k, floor},
                                 gains);
            });
        },
        "ids"_a, "probabilities"_a, "labels"_a, "positives"_a, "caps"_a, "chosen"_a, "order"_a,
        "k"_a, "floor"_a, "metric"_a, "custom"_a.none());
    m.def(
        "decision_gains",
        [](In2<std::int32_t> ids, In2<float> probabilities, InOut2<double> labels,
           In<double> positives, In<std::int32_t> caps, InOut2<std::uint8_t> chosen,
           MetricNumbers metric, nb::object custom) {
            const auto shortlist = shortlist_of(ids, probabilities, labels.shape(0));
            const decision::Labels known{labels_of<decision::Label>(labels), span(positives),
                                         span(caps)};
            std::vector<float> out;
            with_gains(metric, custom, shortlist, [&](auto gains) {
                constexpr bool native = !std::is_same_v<decltype(gains), CustomMetric>;
                out = decision::all_gains(shortlist, known, choices_of(chosen), gains, native);
            });
            return to_numpy(std::move(out), ids.shape(0), ids.shape(1));
        },
        "ids"_a, "probabilities"_a, "labels"_a, "positives"_a, "caps"_a, "chosen"_a, "metric"_a,
        "custom"_a.none());
    m.def(
        "decision_assign",
        [](In2<std::int32_t> ids, In2<float> probabilities, In<float> weights, In<float> offsets,
           In<std::int32_t> caps, std::size_t k, double floor) {
            const auto shortlist = shortlist_of(ids, probabilities, weights.shape(0));
            auto found = without_gil([&] {
                return decision::assign(shortlist, span(weights), span(offsets), span(caps),
                                        {k, floor});
            });
            return nb::make_tuple(to_numpy(std::move(found.bits), ids.shape(0),
                                           decision::Choices::bytes(ids.shape(1))),
                                  to_numpy(std::move(found.costs)));
        },
        "ids"_a, "probabilities"_a, "weights"_a, "offsets"_a, "caps"_a, "k"_a, "floor"_a);
    m.def("decision_sums", &add_decision_sums<decision::Sums>, "ids"_a, "values"_a, "chosen"_a,
          "sums"_a);
    m.def("decision_recount", &add_decision_sums<decision::Label>, "ids"_a, "values"_a, "chosen"_a,
          "labels"_a);
    m.def("decision_rule_sums", &add_decision_rule_sums<float>, "ids"_a, "probabilities"_a,
          nb::arg("values").noconvert(), "weights"_a, "offsets"_a, "k"_a, "floor"_a, "sums"_a);
    m.def("decision_rule_sums", &add_decision_rule_sums<std::uint8_t>, "ids"_a, "probabilities"_a,
          nb::arg("values").noconvert(), "weights"_a, "offsets"_a, "k"_a, "floor"_a, "sums"_a);
    m.def(
        "decision_choose",
        [](In2<std::int32_t> ids, In2<float> probabilities, In2<float> weights, In2<float> offsets,
           In<double> shares, std::size_t k, double floor, std::uint64_t seed) {
            const auto shortlist = shortlist_of(ids, probabilities, weights.shape(0));
            const decision::Mixture mixture{
                {weights.data(), weights.size()}, {offsets.data(), offsets.size()}, span(shares)};
            auto chosen =
                without_gil([&] { return decision::choose(shortlist, mixture, {k, floor}, seed); });
            return to_numpy(std::move(chosen), ids.shape(0),
                            decision::Choices::bytes(ids.shape(1)));
        },
        "ids"_a, "probabilities"_a, "weights"_a, "offsets"_a, "shares"_a, "k"_a, "floor"_a,
        "seed"_a);
    m.def(
        "decision_follow",
        [](In2<std::int32_t> ids, In2<float> probabilities, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive, InOut2<double> labels,
           std::size_t k, double floor, MetricNumbers numbers, nb::object custom) {
            const auto shortlist = shortlist_of(ids, probabilities, labels.shape(0));
            if (indptr.size() == 0) throw std::invalid_argument("row pointers are empty");
            const megalabel::Truth truth{span(indptr), span(indices), span(positive)};
            const auto [number, beta, linear, scale, seen] = numbers;
            const decision::Objective objective{linear, scale};
            std::vector<std::uint8_t> chosen;
            const auto follow = [&, seen = seen](auto slopes) {
                chosen =
                    decision::follow(shortlist, truth, labels_of<decision::StreamLabel>(labels),
                                     {k, floor}, seen, slopes);
            };
            if (custom.is_none()) {
                nb::gil_scoped_release release;
                decision::with_metric(number, beta, [&](auto metric) {
                    follow(decision::MetricSlopes<decltype(metric)>{metric, objective});
                });
            } else {
                follow(CustomMetric{custom, shortlist, objective, seen});
            }
            return to_numpy(std::move(chosen), ids.shape(0),
                            decision::Choices::bytes(ids.shape(1)));
        },
        "ids"_a, "probabilities"_a, "indptr"_a, "indices"_a, "positive"_a, "labels"_a, "k"_a,
        "floor"_a, "metric"_a, "custom"_a.none());
}
