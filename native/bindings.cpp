// Everything Python sees of the native core. The kernels are in the headers, one topic each; this
// file only converts arrays, releases the GIL and maps errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "metrics.hpp"
#include "parallel.hpp"
#include "sparse_text.hpp"

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

megalabel::Ranked ranked(const In2<std::int32_t>& ids, std::int64_t labels) {
    return {{ids.data(), ids.size()}, ids.shape(0), ids.shape(1), labels};
}

void raise_pending_signal() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
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

    // --- nearest neighbours (inverted_index.hpp)

    // --- metrics (metrics.hpp)
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
        "ranking_sums",
        [](In2<std::int32_t> ids, std::int64_t labels, In<std::int64_t> indptr,
           In<std::int32_t> indices, In<std::uint8_t> positive, In<std::int64_t> cutoffs,
           In<double> weights) {
            std::vector<double> sums;
            {
                nb::gil_scoped_release release;
                sums = megalabel::ranking_sums(ranked(ids, labels),
                                               {span(indptr), span(indices), span(positive)},
                                               span(cutoffs), span(weights));
            }
            return to_numpy(std::move(sums), megalabel::sum_kinds, cutoffs.shape(0));
        },
        "ids"_a, "labels"_a, "indptr"_a, "indices"_a, "positive"_a, "cutoffs"_a, "weights"_a);

    // --- sparse arithmetic (sparse.hpp)
}
