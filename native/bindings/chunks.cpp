// Python's view of chunked weights and the search through their levels: chunks.hpp,
// chunk_scores.hpp, beam.hpp, forest.hpp.
#include "chunks.hpp"

#include <nanobind/stl/variant.h>

#include <stdexcept>
#include <variant>

#include "arrays.hpp"
#include "beam.hpp"
#include "chunk_scores.hpp"
#include "float16.hpp"
#include "forest.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

using bind::to_numpy;  // else hidden by those below

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

std::vector<ChunkedWeights> levels_of(const std::vector<const Level*>& levels) {
    std::vector<ChunkedWeights> views;
    for (const Level* level : levels) views.push_back(level->view());
    return views;
}

Queries queries_of(const SparseRows& rows, float bias) {
    return {rows.view(), {}, rows.size(), bias};
}
Queries queries_of(const In2<float>& rows, float bias) {
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

}  // namespace

void bind_chunks(nb::module_& m) {
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

}  // namespace megalabel::bind
