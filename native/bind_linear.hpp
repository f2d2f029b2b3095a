// Python's view of linear classifiers: dense products (products.hpp), training (training.hpp),
// chunked weights and the search through them (chunks.hpp, chunk_scores.hpp, beam.hpp, forest.hpp),
// and online trees (online.hpp).
#pragma once

#include <nanobind/stl/variant.h>

#include <variant>

#include "beam.hpp"
#include "bind_arrays.hpp"
#include "chunk_scores.hpp"
#include "chunks.hpp"
#include "forest.hpp"
#include "online.hpp"
#include "products.hpp"
#include "training.hpp"

// NumPy sees a Half as a float16.
namespace nanobind::detail {
template <>
struct dtype_traits<megalabel::Half> {
    static constexpr dlpack::dtype value{static_cast<std::uint8_t>(dlpack::dtype_code::Float), 16,
                                         1};
    static constexpr auto name = const_name("float16");
};
}  // namespace nanobind::detail

namespace megalabel::bind {

// --- products

template <class T>
void fill_products(const In2<float>& rows, const In2<T>& weights, const InOut2<float>& out) {
    const products::Rows<float> x{rows.data(), rows.shape(0), rows.shape(1)};
    const products::Rows<T> w{weights.data(), weights.shape(0), weights.shape(1)};
    if (x.width != w.width)
        throw std::invalid_argument("rows have " + std::to_string(x.width) +
                                    " columns but weights have " + std::to_string(w.width));
    if (out.shape(0) != x.count || out.shape(1) != w.count)
        throw std::invalid_argument(
            "out must be " + std::to_string(x.count) + " rows by " + std::to_string(w.count) +
            " labels, not " + std::to_string(out.shape(0)) + " by " + std::to_string(out.shape(1)));
    without_gil([&] { products::multiply_all(x, w, out.data()); });
}

inline void bind_products(nb::module_& m) {
    m.def(
        "products",
        [](In2<float> rows, std::variant<In2<float>, In2<Half>> weights, InOut2<float> out) {
            std::visit([&](const auto& given) { fill_products(rows, given, out); }, weights);
        },
        nb::kw_only(), "rows"_a, "weights"_a, "out"_a,
        "Fill `out` with X W^T; a cell does not depend on the rows and labels beside it.");
}

// --- training

struct LabelGroups {
    In<std::int64_t> row_starts;
    In<std::int32_t> rows;
    In<std::int64_t> label_starts;
    In<std::int64_t> positive_starts;
    In<std::int32_t> positives;
    In<float> positive_costs, negative_costs;
    In<float> factors;

    megalabel::LabelGroups view() const {
        return {span(row_starts), span(rows),           span(label_starts),   span(positive_starts),
                span(positives),  span(positive_costs), span(negative_costs), span(factors)};
    }
};

using WeightArrays = std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>>;
inline WeightArrays to_numpy(WeightRows&& rows) {
    return {to_numpy(std::move(rows.starts)), to_numpy(std::move(rows.columns)),
            to_numpy(std::move(rows.values))};
}

inline void bind_training(nb::module_& m) {
    m.attr("LANES") = newton::lanes;
    m.attr("MOST_KEPT_ROWS") = newton::most_kept;
    nb::enum_<newton::Loss>(m, "Loss", "What an error costs, by its margin.")
        .value("squared_hinge", newton::Loss::squared_hinge)
        .value("logistic", newton::Loss::logistic);
    bind_struct<LabelGroups>(
        m, "LabelGroups",
        "Groups of labels that share their rows, where each label is positive, and what errors "
        "cost.\n\nNo row starts: one group with all rows. No factors: all 1.",
        std::pair{"row_starts", &LabelGroups::row_starts}, std::pair{"rows", &LabelGroups::rows},
        std::pair{"label_starts", &LabelGroups::label_starts},
        std::pair{"positive_starts", &LabelGroups::positive_starts},
        std::pair{"positives", &LabelGroups::positives},
        std::pair{"positive_costs", &LabelGroups::positive_costs},
        std::pair{"negative_costs", &LabelGroups::negative_costs},
        std::pair{"factors", &LabelGroups::factors});
    m.def(
        "train_groups",
        [](const SparseRows& rows, const LabelGroups& groups, newton::Loss loss, double eps,
           float bias, float prune) {
            newton::Options options;
            options.loss = loss;
            options.eps = eps;
            options.bias = bias;
            options.prune = prune;
            return to_numpy(
                without_gil([&] { return train_groups(rows.view(), groups.view(), options); }));
        },
        "rows"_a, "groups"_a, nb::kw_only(), "loss"_a, "eps"_a, "bias"_a, "prune"_a);
}

// --- chunked weights, and the search through their levels

using WeightsIn = std::variant<In<float>, In<Half>, In<std::int8_t>>;
using WeightsOut = std::variant<Out<float>, Out<Half>, Out<std::int8_t>>;

struct Level {
    In<std::int64_t> child_starts, section_starts;
    In<std::uint16_t> row_features, row_starts;
    In<std::int64_t> block_starts;
    std::size_t block_bits;
    In<std::uint8_t> entry_gaps;
    WeightsIn entry_weights;
    In<float> scales, biases;
    std::size_t features;

    ChunkedWeights view() const {
        ChunkedWeights level{span(child_starts),
                             span(section_starts),
                             span(row_features),
                             span(row_starts),
                             span(block_starts),
                             block_bits,
                             span(entry_gaps),
                             {},
                             span(scales),
                             span(biases),
                             features};
        std::visit([&](const auto& weights) { level.entry_weights = span(weights); },
                   entry_weights);
        return level;
    }
};

inline std::vector<ChunkedWeights> levels_of(const std::vector<const Level*>& levels) {
    std::vector<ChunkedWeights> views;
    for (const Level* level : levels) views.push_back(level->view());
    return views;
}

inline Queries queries_of(const SparseRows& rows, float bias) {
    return {rows.view(), {}, rows.size(), bias};
}
inline Queries queries_of(const In2<float>& rows, float bias) {
    return {{{}, {}, {}, rows.shape(1)}, span(rows), rows.shape(0), bias};
}

enum class Precision { float32, float16, int8 };

// Calls use.operator()<Weight>() for what weights of a precision are kept as.
template <class Use>
auto with_weight(Precision precision, Use&& use) {
    switch (precision) {
        case Precision::float32:
            return use.template operator()<float>();
        case Precision::float16:
            return use.template operator()<Half>();
        case Precision::int8:
            break;
    }
    return use.template operator()<std::int8_t>();
}

// The members of a Level from its section starts to its biases.
using BuiltArrays =
    std::tuple<Out<std::int64_t>, Out<std::uint16_t>, Out<std::uint16_t>, Out<std::int64_t>,
               std::size_t, Out<std::uint8_t>, WeightsOut, Out<float>, Out<float>>;
template <class Weight>
BuiltArrays to_numpy(BuiltChunks<Weight>&& built) {
    return {to_numpy(std::move(built.section_starts)),
            to_numpy(std::move(built.row_features)),
            to_numpy(std::move(built.row_starts)),
            to_numpy(std::move(built.block_starts)),
            built.block_bits,
            to_numpy(std::move(built.gaps)),
            WeightsOut(to_numpy(std::move(built.weights))),
            to_numpy(std::move(built.scales)),
            to_numpy(std::move(built.biases))};
}

template <class Rows>
Out<float> score_pairs(const Level& level, const Rows& queries, float bias,
                       In<std::int64_t> pair_rows, In<std::int64_t> parents) {
    return to_numpy(without_gil([&] {
        return megalabel::score_pairs(level.view(), queries_of(queries, bias), span(pair_rows),
                                      span(parents));
    }));
}

// Trees over the same labels, as Python has them: the levels of each, and the label of each leaf.
class Trees {
  public:
    Trees(const std::vector<std::vector<const Level*>>& levels,
          const std::vector<In<std::int32_t>>& label_of_leaf, std::size_t labels, Post post) {
        if (levels.empty() || levels.size() != label_of_leaf.size())
            throw std::invalid_argument("there must be trees, and the labels of each");
        for (const auto& tree : levels) levels_.push_back(levels_of(tree));
        for (std::size_t t = 0; t < levels_.size(); ++t)
            trees_.push_back({levels_[t], span(label_of_leaf[t]), labels, post});
    }

    // Answers by a search of each tree, which make(tree, its number) makes; with marks of labels,
    // by those that are marked.
    template <class Make>
    RankedArrays answer(const Queries& queries, std::size_t k, std::size_t wide,
                        std::span<const std::uint8_t> allowed, Make&& make) {
        auto ranked = without_gil([&] {
            if (!allowed.empty()) {
                open_.resize(trees_.size());
                for (std::size_t t = 0; t < trees_.size(); ++t) {
                    trees_[t].check(queries);
                    open_[t] = trees_[t].nodes_above(allowed);
                    trees_[t].open = open_[t];
                }
            }
            std::vector<decltype(make(trees_[0], 0))> searches;
            for (std::size_t t = 0; t < trees_.size(); ++t) searches.push_back(make(trees_[t], t));
            return ForestSearch(std::span(std::as_const(searches)), trees_[0], queries, k, wide)
                .run();
        });
        return to_numpy(std::move(ranked), queries.n, k);
    }

  private:
    std::vector<std::vector<ChunkedWeights>> levels_;
    std::vector<Tree> trees_;
    std::vector<std::vector<std::vector<std::uint8_t>>> open_;
};

template <class Rows>
RankedArrays beam_search(const std::vector<std::vector<const Level*>>& levels,
                         const std::vector<In<std::int32_t>>& label_of_leaf, std::size_t labels,
                         Post post, const Rows& rows, float bias, std::size_t k, std::size_t wide,
                         In<std::uint8_t> allowed, std::size_t beam) {
    const auto queries = queries_of(rows, bias);
    return Trees(levels, label_of_leaf, labels, post)
        .answer(queries, k, wide, span(allowed), [&](const Tree& tree, std::size_t) {
            return BeamSearch(tree, queries, wide, beam);
        });
}

template <class Rows>
RankedArrays best_first_search(const std::vector<std::vector<const Level*>>& levels,
                               const std::vector<In<std::int32_t>>& label_of_leaf,
                               std::size_t labels, Post post, const Rows& rows, float bias,
                               std::size_t k, std::size_t wide, In<std::uint8_t> allowed,
                               const std::vector<std::vector<In<float>>>& log_weights) {
    const auto queries = queries_of(rows, bias);
    std::vector<std::vector<std::span<const float>>> weights(levels.size());
    if (!log_weights.empty() && log_weights.size() != levels.size())
        throw std::invalid_argument("weights must be given for each tree");
    for (std::size_t t = 0; t < log_weights.size(); ++t)
        for (const auto& level : log_weights[t]) weights[t].push_back(span(level));
    return Trees(levels, label_of_leaf, labels, post)
        .answer(queries, k, wide, span(allowed), [&](const Tree& tree, std::size_t t) {
            return BestFirstSearch(tree, queries, wide, weights[t]);
        });
}

template <class Rows>
void bind_searches(nb::module_& m) {
    m.def("score_pairs", &score_pairs<Rows>, "level"_a, "queries"_a, nb::kw_only(), "bias"_a,
          "rows"_a, "parents"_a);
    m.def("beam_search", &beam_search<Rows>, nb::kw_only(), "levels"_a, "label_of_leaf"_a,
          "labels"_a, "post"_a, "queries"_a, "bias"_a, "k"_a, "wide"_a, "allowed"_a, "beam"_a);
    m.def("best_first_search", &best_first_search<Rows>, nb::kw_only(), "levels"_a,
          "label_of_leaf"_a, "labels"_a, "post"_a, "queries"_a, "bias"_a, "k"_a, "wide"_a,
          "allowed"_a, "log_weights"_a);
}

inline void bind_chunks(nb::module_& m) {
    m.attr("SECTION_FEATURES") = section_features;
    nb::enum_<Precision>(m, "Precision", "What is kept of a weight.")
        .value("float32", Precision::float32)
        .value("float16", Precision::float16)
        .value("int8", Precision::int8);
    nb::enum_<Post>(m, "Post", "What a margin becomes.")
        .value("hinge1", Post::hinge1)
        .value("hinge2", Post::hinge2)
        .value("hinge3", Post::hinge3)
        .value("hinge4", Post::hinge4)
        .value("sigmoid", Post::sigmoid)
        .value("noop", Post::noop);
    bind_struct<Level>(
        m, "Level", "The weights of a level of a tree, as ChunkedWeights has them.",
        std::pair{"child_starts", &Level::child_starts},
        std::pair{"section_starts", &Level::section_starts},
        std::pair{"row_features", &Level::row_features},
        std::pair{"row_starts", &Level::row_starts},
        std::pair{"block_starts", &Level::block_starts},
        std::pair{"block_bits", &Level::block_bits}, std::pair{"entry_gaps", &Level::entry_gaps},
        std::pair{"entry_weights", &Level::entry_weights}, std::pair{"scales", &Level::scales},
        std::pair{"biases", &Level::biases}, std::pair{"features", &Level::features});
    m.def(
        "build_chunks",
        [](const SparseRows& weights, In<std::int64_t> child_starts, Precision precision) {
            return with_weight(precision, [&]<class Weight>() {
                return to_numpy(without_gil([&] {
                    return build_chunks<Weight>(span(weights.starts), span(weights.columns),
                                                span(weights.values), weights.width,
                                                span(child_starts));
                }));
            });
        },
        "weights"_a, nb::kw_only(), "child_starts"_a, "precision"_a);
    m.def(
        "join_chunks",
        [](const std::vector<const Level*>& levels, const std::vector<In<std::int32_t>>& places,
           Precision precision) {
            const auto parts = levels_of(levels);
            std::vector<std::span<const std::int32_t>> of_parts;
            for (const auto& part : places) of_parts.push_back(span(part));
            return with_weight(precision, [&]<class Weight>() {
                return to_numpy(without_gil([&] { return join_chunks<Weight>(parts, of_parts); }));
            });
        },
        "parts"_a, nb::kw_only(), "places"_a, "precision"_a);
    bind_searches<SparseRows>(m);
    bind_searches<In2<float>>(m);
}

// --- online trees

struct Visits {
    In<std::int64_t> starts;
    In<std::int32_t> rows;
    In<std::int64_t> place_starts;
    In<std::int32_t> places;
};

struct Blocks {
    In<std::int64_t> feature_starts;
    In<std::int32_t> features, columns;
    In<float> weights, squares;

    online::Blocks view() const {
        return {span(feature_starts), span(features), span(columns), span(weights), span(squares)};
    }
};

inline void bind_online(nb::module_& m) {
    bind_struct<Visits>(
        m, "Visits", "The rows that each node sees, and the columns that are positive for them.",
        std::pair{"starts", &Visits::starts}, std::pair{"rows", &Visits::rows},
        std::pair{"place_starts", &Visits::place_starts}, std::pair{"places", &Visits::places});
    bind_struct<Blocks>(
        m, "Blocks", "The weights of all nodes, as OnlineTree has them.",
        std::pair{"feature_starts", &Blocks::feature_starts},
        std::pair{"features", &Blocks::features}, std::pair{"columns", &Blocks::columns},
        std::pair{"weights", &Blocks::weights}, std::pair{"squares", &Blocks::squares});
    m.def(
        "update_blocks",
        [](const SparseRows& rows, const Visits& v, const Blocks& blocks, In<std::int32_t> columns,
           float rate, float epsilon, float bias) {
            const online::Visits visits{span(v.starts), span(v.rows), span(v.place_starts),
                                        span(v.places)};
            const auto matrix = rows.view();
            const auto old = blocks.view();
            auto grown = without_gil([&] {
                return online::Update(matrix, visits, old, span(columns), {rate, epsilon, bias})
                    .run();
            });
            return std::tuple(
                to_numpy(std::move(grown.feature_starts)), to_numpy(std::move(grown.features)),
                to_numpy(std::move(grown.weights)), to_numpy(std::move(grown.squares)));
        },
        nb::kw_only(), "rows"_a, "visits"_a, "blocks"_a, "columns"_a, "rate"_a, "epsilon"_a,
        "bias"_a);
    m.def(
        "block_child_rows",
        [](const Blocks& blocks, std::size_t width, float prune) {
            return to_numpy(
                without_gil([&] { return online::child_rows(blocks.view(), width, prune); }));
        },
        "blocks"_a, nb::kw_only(), "width"_a, "prune"_a);
}

}  // namespace megalabel::bind
