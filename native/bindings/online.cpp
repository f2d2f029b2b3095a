// Python's view of online trees: online.hpp.
#include "online.hpp"

#include "arrays.hpp"
#include "topics.hpp"
#include "weight_arrays.hpp"

namespace megalabel::bind {

namespace {

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

}  // namespace

void bind_online(nb::module_& m) {
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
