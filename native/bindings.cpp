// Everything Python sees of the native core. The kernels are in the headers, one topic each; this
// file only converts arrays, releases the GIL and maps errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "parallel.hpp"
#include "vectorizer.hpp"

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
template <class T>
Out<T> to_numpy(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out<T>(kept->data(), {kept->size()}, owner);
}

template <class T>
Out2<T> to_numpy(std::vector<T>&& values, std::size_t rows, std::size_t columns) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out2<T>(kept->data(), {rows, columns}, owner);
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

template <class T>
std::span<const T> span_of(const In<T>& array) {
    return {array.data(), array.size()};
}
text::Strings strings_of(const In<std::int64_t>& offsets, const In<std::uint8_t>& data) {
    return {span_of(offsets), span_of(data)};
}
text::Strings strings_of(const TextArrays& arrays) {
    return strings_of(std::get<0>(arrays), std::get<1>(arrays));
}
text::Lookup lookup_of(const LookupArrays& arrays) {
    return {span_of(std::get<0>(arrays)), strings_of(std::get<1>(arrays), std::get<2>(arrays))};
}
text::TermsView terms_of(const TermArrays& arrays) {
    return {strings_of(std::get<0>(arrays), std::get<1>(arrays)), span_of(std::get<2>(arrays)),
            span_of(std::get<3>(arrays))};
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

}  // namespace

NB_MODULE(_native, m) {
    megalabel::check_signals = raise_pending_signal;

    // --- threads (parallel.hpp)
    m.def("get_threads", [] { return megalabel::ThreadPool::threads().load(); });
    m.def(
        "set_threads", [](int n) { megalabel::ThreadPool::threads().store(std::max(1, n)); },
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

    // --- text to vectors (vectorizer.hpp)
    m.attr("UNICODE_VERSION") = megalabel::unicode::kVersion;
    m.def("analyse", [](TextArrays texts, AnalysisNumbers how, LookupArrays stop) {
        auto [offsets, data] = without_gil(
            [&] { return text::analyse(strings_of(texts), analysis_of(how), lookup_of(stop)); });
        return nb::make_tuple(to_numpy(std::move(offsets)), to_numpy(std::move(data)));
    });
    m.def("unstable_texts", [](TextArrays texts) {
        return to_numpy(without_gil([&] { return text::unstable_texts(strings_of(texts)); }));
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
        text::weigh_rows(span_of(indptr), span_of(indices), {values.data(), values.size()},
                         span_of(idf), binary, sublinear, static_cast<text::Norm>(norm));
    });

    // --- nearest neighbours (inverted_index.hpp)

    // --- metrics (metrics.hpp)

    // --- sparse arithmetic (sparse.hpp)
}
