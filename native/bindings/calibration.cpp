// Python's view of calibration: isotonic.hpp, joint.hpp, gram.hpp.
#include "arrays.hpp"
#include "calibration_arrays.hpp"
#include "gram.hpp"
#include "isotonic.hpp"
#include "joint.hpp"
#include "topics.hpp"

namespace megalabel::bind {

void bind_calibration(nb::module_& m) {
    m.def(
        "isotonic_fit",
        [](In<float> scores, In<std::uint8_t> hits, In<float> weights) {
            auto map =
                without_gil([&] { return isotonic::fit(span(scores), span(hits), span(weights)); });
            return std::tuple(to_numpy(std::move(map.thresholds)), to_numpy(std::move(map.values)));
        },
        nb::kw_only(), "scores"_a, "hits"_a, "weights"_a);
    m.def(
        "isotonic_apply",
        [](In<float> scores, In<float> thresholds, In<float> values) {
            return to_numpy(without_gil(
                [&] { return isotonic::apply(span(scores), span(thresholds), span(values)); }));
        },
        nb::kw_only(), "scores"_a, "thresholds"_a, "values"_a);
    m.def(
        "falling_rows",
        [](In2<float> rows, std::size_t pooled) {
            auto fallen = without_gil(
                [&] { return isotonic::falling_rows(span(rows), rows.shape(1), pooled); });
            return to_numpy(std::move(fallen), rows.shape(0), rows.shape(1));
        },
        "rows"_a, "pooled"_a);
    m.def(
        "weighted_gram",
        [](In2<double> rows, In<double> weights) {
            const std::size_t width = rows.shape(1);
            auto sums =
                without_gil([&] { return weighted_gram(span(rows), width, span(weights)); });
            return to_numpy(std::move(sums), width, width);
        },
        "rows"_a, "weights"_a, "The sum over rows of weight times row times row transposed.");
    m.def(
        "joint_apply",
        [](In2<float> scores, In2<std::uint8_t> levels, double steps, In<double> knots,
           In<double> heights, In<double> ranks, In<double> frequencies, In2<double> constants,
           In2<double> slopes) {
            const joint::Model model{span(knots),     span(heights), span(ranks), span(frequencies),
                                     span(constants), span(slopes),  steps};
            auto mapped = without_gil(
                [&] { return joint::apply(span(scores), span(levels), scores.shape(1), model); });
            return to_numpy(std::move(mapped), scores.shape(0), scores.shape(1));
        },
        nb::kw_only(), "scores"_a, "levels"_a, "steps"_a, "knots"_a, "heights"_a, "ranks"_a,
        "frequencies"_a, "constants"_a, "slopes"_a);
    bind_struct<Joint>(
        m, "Joint", "A joint calibration, as calibration.Joint has learned it.",
        std::pair{"steps", &Joint::steps}, std::pair{"knots", &Joint::knots},
        std::pair{"heights", &Joint::heights}, std::pair{"ranks", &Joint::ranks},
        std::pair{"frequencies", &Joint::frequencies}, std::pair{"constants", &Joint::constants},
        std::pair{"slopes", &Joint::slopes}, std::pair{"levels", &Joint::levels},
        std::pair{"pooled", &Joint::pooled}, std::pair{"thresholds", &Joint::thresholds},
        std::pair{"values", &Joint::values});
    m.def(
        "joint_answer",
        [](const Joint& joint, In2<std::int32_t> ids, In2<float> scores, std::size_t labels) {
            auto mapped = without_gil([&] {
                return joint::answer(span(ids), span(scores), ids.shape(1), labels, joint.view());
            });
            return to_numpy(std::move(mapped), ids.shape(0), ids.shape(1));
        },
        "joint"_a, nb::kw_only(), "ids"_a, "scores"_a, "labels"_a);
}

}  // namespace megalabel::bind
