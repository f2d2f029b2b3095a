// Everything Python sees of the native core. The kernels are in the headers, one topic each; this
// file only converts arrays, releases the GIL and maps errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "inverted_index.hpp"
#include "parallel.hpp"
#include "ranked.hpp"
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

template <class T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.size()};
}

nb::tuple to_numpy(megalabel::Ranked&& ranked, std::size_t rows, std::size_t columns) {
    return nb::make_tuple(to_numpy(std::move(ranked.ids), rows, columns),
                          to_numpy(std::move(ranked.scores), rows, columns));
}

void raise_pending_signal() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
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

    // --- nearest neighbours (inverted_index.hpp, voting.hpp)
    m.def(
        "build_postings",
        [](In<std::int64_t> starts, In<std::int32_t> columns, In<float> values, std::size_t width) {
            megalabel::Postings postings;
            {
                nb::gil_scoped_release release;
                postings =
                    megalabel::build_postings({view(starts), view(columns), view(values), width});
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
           std::size_t k, std::int64_t first_self, bool prune) {
            const std::size_t width = largest.size();
            const std::size_t n = std::max<std::size_t>(row_starts.size(), 1) - 1;
            megalabel::SparseRows postings{view(term_starts), view(term_documents),
                                           view(term_weights), n};
            megalabel::SparseRows rows{view(row_starts), view(row_terms), view(row_weights), width};
            megalabel::SparseRows queries{view(query_starts), view(query_terms),
                                          view(query_weights), width};
            megalabel::Ranked ranked(0, 0, 0);
            {
                nb::gil_scoped_release release;
                ranked = megalabel::Search(postings, view(largest), view(common), rows, norm,
                                           queries, k, first_self, prune)
                             .run();
            }
            return to_numpy(std::move(ranked), queries.size(), k);
        },
        "term_starts"_a, "term_documents"_a, "term_weights"_a, "largest"_a, "common"_a,
        "row_starts"_a, "row_terms"_a, "row_weights"_a, "norm"_a, "query_starts"_a, "query_terms"_a,
        "query_weights"_a, "k"_a, "first_self"_a, "prune"_a);
    m.def(
        "rescore_dense",
        [](In2<float> queries, In2<float> documents, In<std::int64_t> starts,
           In<std::int32_t> candidates, std::size_t k) {
            if (queries.shape(1) != documents.shape(1))
                throw std::invalid_argument("queries and documents differ in width");
            std::vector<float> unused(candidates.size());  // candidates have no values
            megalabel::SparseRows rows{view(starts), view(candidates), unused, documents.shape(0)};
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
            megalabel::SparseRows rows{view(starts), view(labels), view(relevances), prior.size()};
            megalabel::Ranked ranked(0, 0, 0);
            {
                nb::gil_scoped_release release;
                ranked = megalabel::vote(neighbours, power, rows, view(prior), view(by_prior), k);
            }
            return to_numpy(std::move(ranked), neighbours.n, k);
        },
        "ids"_a, "similarities"_a, "power"_a, "starts"_a, "labels"_a, "relevances"_a, "prior"_a,
        "by_prior"_a, "k"_a);

    // --- metrics (metrics.hpp)

    // --- sparse arithmetic (sparse.hpp)
}
