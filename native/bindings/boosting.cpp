// Python's view of boosted trees (boosting.hpp) and of how they are grown (boosting_training.hpp).
#include "boosting.hpp"

#include "boosting_arrays.hpp"
#include "boosting_training.hpp"
#include "topics.hpp"

namespace megalabel::bind {

void bind_boosting(nb::module_& m) {
    m.attr("MOST_LEAVES") = boosting::most_leaves;
    m.attr("MOST_BINS") = boosting::most_bins;
    bind_struct<BoostedTrees>(
        m, "BoostedTrees",
        "Boosted trees, ready to be applied.\n\nA ValueError where the arrays are no trees.",
        std::pair{"starts", &BoostedTrees::starts}, std::pair{"feature", &BoostedTrees::feature},
        std::pair{"threshold", &BoostedTrees::threshold}, std::pair{"left", &BoostedTrees::left},
        std::pair{"right", &BoostedTrees::right},
        std::pair{"missing_left", &BoostedTrees::missing_left},
        std::pair{"value", &BoostedTrees::value}, std::pair{"base", &BoostedTrees::base},
        std::pair{"features", &BoostedTrees::features});
    m.def(
        "boosted_margins",
        [](const BoostedTrees& trees, In2<float> rows) {
            std::vector<float> margins(rows.shape(0));
            without_gil([&] {
                boosting::margins_of(trees.forest, {span(rows), rows.shape(0), rows.shape(1)},
                                     margins);
            });
            return to_numpy(std::move(margins));
        },
        "trees"_a, "rows"_a);
    m.def(
        "train_boosted",
        [](In2<float> rows, In<std::uint8_t> targets, In<float> weights,
           In<std::uint8_t> validation, std::size_t trees, std::size_t leaves, std::size_t depth,
           std::size_t bins, double rate, std::size_t min_rows, double min_hessian, double l2,
           double min_gain, double feature_share, double row_share, std::size_t patience,
           std::uint64_t seed) {
            const boosting::Examples examples{{span(rows), rows.shape(0), rows.shape(1)},
                                              span(targets),
                                              span(weights),
                                              span(validation)};
            const boosting::Options options{trees,     leaves,      depth, bins,     rate,
                                            min_rows,  min_hessian, l2,    min_gain, feature_share,
                                            row_share, patience,    seed};
            auto grown = without_gil([&] { return boosting::train(examples, options); });
            return std::tuple(
                to_numpy(std::move(grown.starts)), to_numpy(std::move(grown.feature)),
                to_numpy(std::move(grown.threshold)), to_numpy(std::move(grown.left)),
                to_numpy(std::move(grown.right)), to_numpy(std::move(grown.missing_left)),
                to_numpy(std::move(grown.value)), grown.base, to_numpy(std::move(grown.gains)));
        },
        nb::kw_only(), "rows"_a, "targets"_a, "weights"_a, "validation"_a, "trees"_a, "leaves"_a,
        "depth"_a, "bins"_a, "rate"_a, "min_rows"_a, "min_hessian"_a, "l2"_a, "min_gain"_a,
        "feature_share"_a, "row_share"_a, "patience"_a, "seed"_a);
}

}  // namespace megalabel::bind
