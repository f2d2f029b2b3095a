// Python's view of label vectors (label_vectors.hpp), labels that come together (cooccurrence.hpp)
// and label trees (clustering.hpp, kmeans.hpp).
#include "arrays.hpp"
#include "clustering.hpp"
#include "cooccurrence.hpp"
#include "kmeans.hpp"
#include "label_vectors.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

using bind::to_numpy;  // else hidden by those below

using VectorArrays = std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>>;
VectorArrays to_numpy(SparseVectors&& rows) {
    return {to_numpy(std::move(rows.starts)), to_numpy(std::move(rows.columns)),
            to_numpy(std::move(rows.values))};
}

}  // namespace

void bind_labels(nb::module_& m) {
    m.def(
        "weighted_sums",
        [](const SparseRows& weights, const SparseRows& rows, std::size_t keep) {
            return to_numpy(
                without_gil([&] { return weighted_sums(weights.view(), rows.view(), keep); }));
        },
        nb::kw_only(), "weights"_a, "rows"_a, "keep"_a);
    m.def(
        "thin_product",
        [](const SparseRows& weights, const SparseRows& rows, float least) {
            return to_numpy(
                without_gil([&] { return thin_product(weights.view(), rows.view(), least); }));
        },
        "Weights @ rows, without values that are smaller than `least`.", nb::kw_only(), "weights"_a,
        "rows"_a, "least"_a);
    m.def(
        "cooccurrence",
        [](const SparseRows& texts, const SparseRows& labels, double threshold) {
            return to_numpy(
                without_gil([&] { return cooccurrence(texts.view(), labels.view(), threshold); }));
        },
        nb::kw_only(), "texts"_a, "labels"_a, "threshold"_a);
    m.def(
        "halve_level",
        [](const SparseRows& vectors, In<std::int32_t> members, In<std::int64_t> starts,
           std::uint64_t seed, std::uint64_t depth, bool spherical, std::size_t iterations) {
            const auto view = vectors.view();
            return to_numpy(without_gil([&] {
                return clustering::halve_level({view, span(members), span(starts), seed, depth},
                                               spherical, iterations);
            }));
        },
        "vectors"_a, nb::kw_only(), "members"_a, "starts"_a, "seed"_a, "depth"_a, "spherical"_a,
        "iterations"_a);
    m.def(
        "cluster_level",
        [](const SparseRows& vectors, In<std::int32_t> members, In<std::int64_t> starts,
           std::uint64_t seed, std::uint64_t depth, std::size_t largest, std::size_t arity,
           std::size_t aim, bool balanced, std::size_t iterations, double tolerance) {
            const auto view = vectors.view();
            auto groups = without_gil([&] {
                return clustering::cluster_level(
                    {view, span(members), span(starts), seed, depth},
                    {largest, arity, aim, balanced, iterations, tolerance});
            });
            return std::tuple(to_numpy(std::move(groups.members)),
                              to_numpy(std::move(groups.starts)),
                              to_numpy(std::move(groups.child_starts)));
        },
        "vectors"_a, nb::kw_only(), "members"_a, "starts"_a, "seed"_a, "depth"_a, "largest"_a,
        "arity"_a, "aim"_a, "balanced"_a, "iterations"_a, "tolerance"_a);
}

}  // namespace megalabel::bind
