// Python's view of the training of linear classifiers: training.hpp.
#include "training.hpp"

#include "arrays.hpp"
#include "topics.hpp"
#include "weight_arrays.hpp"

namespace megalabel::bind {

namespace {

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

}  // namespace

void bind_training(nb::module_& m) {
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

}  // namespace megalabel::bind
