// Python's view of metrics: metrics.hpp, evaluation.hpp, effects.hpp.
#include "metrics.hpp"

#include "arrays.hpp"
#include "effects.hpp"
#include "evaluation.hpp"
#include "topics.hpp"

namespace megalabel::bind {

void bind_metrics(nb::module_& m) {
    m.attr("SAMPLE_GROUPS") = sample_groups;
    m.attr("ROW_SUMS_BEFORE") = row_sums_before;
    m.attr("OCTAVE_CELLS") = octave_cells;
    m.attr("FINE_CELLS") = fine_cells;
    m.attr("SMALLEST_CONFIDENCE") = smallest_confidence;
    m.attr("CONFIDENCE_UNIT") = confidence_unit;
    m.attr("EFFECT_LANES") = effect_lanes;
    nb::enum_<RowTotal>(m, "RowTotal", "What is summed over rows at each cutoff.")
        .value("hits", RowTotal::hits)
        .value("recall", RowTotal::recall)
        .value("f1", RowTotal::f1)
        .value("ndcg", RowTotal::ndcg)
        .value("reciprocal_rank", RowTotal::reciprocal_rank)
        .value("any_hit", RowTotal::any_hit)
        .value("predicted", RowTotal::predicted)
        .value("squared_error", RowTotal::squared_error)
        .value("log_loss", RowTotal::log_loss)
        .value("gained", RowTotal::gained)
        .value("gained_recall", RowTotal::gained_recall)
        .value("gained_ndcg", RowTotal::gained_ndcg)
        .value("attainable", RowTotal::attainable)
        .value("attainable_recall", RowTotal::attainable_recall)
        .value("attainable_ndcg", RowTotal::attainable_ndcg);
    m.def(
        "ranking_hits",
        [](const Ranked& ranked, const Truth& truth, std::size_t k) {
            auto hits = without_gil([&] { return ranking_hits(ranked.view(), truth.view(), k); });
            return to_numpy(std::move(hits), ranked.rows(), k);
        },
        "ranked"_a, "truth"_a, "k"_a);
    m.def(
        "drop_labels",
        [](const Ranked& ranked, const Truth& cells) {
            auto kept = without_gil(
                [&] { return drop_labels(ranked.view(), span(ranked.scores), cells.view()); });
            return to_numpy(std::move(kept), ranked.rows(), ranked.width());
        },
        "ranked"_a, "cells"_a);
    m.def(
        "add_row_sums",
        [](In2<double> before, std::uint64_t first_row, const Ranked& ranked, const Truth& truth,
           In<std::int64_t> cutoffs, In<double> weights) {
            auto sums = without_gil([&] {
                return add_row_sums(span(before), first_row, ranked.view(), span(ranked.scores),
                                    truth.view(), span(cutoffs), span(weights));
            });
            return to_numpy(std::move(sums), before.shape(0), before.shape(1));
        },
        "before"_a, nb::kw_only(), "first_row"_a, "ranked"_a, "truth"_a, "cutoffs"_a, "weights"_a);
    m.def(
        "label_counts",
        [](const Ranked& ranked, const Truth& truth, In<std::int64_t> cutoffs, std::size_t width) {
            auto counts = without_gil(
                [&] { return label_counts(ranked.view(), truth.view(), span(cutoffs), width); });
            return to_numpy(std::move(counts), 2 * cutoffs.size() + 1, width);
        },
        "ranked"_a, "truth"_a, nb::kw_only(), "cutoffs"_a, "width"_a);
    m.def(
        "reliability_cells",
        [](const Ranked& ranked, const Truth& truth, In<std::int64_t> cutoffs, std::size_t bins) {
            return to_numpy(without_gil([&] {
                return reliability_cells(ranked.view(), span(ranked.scores), truth.view(),
                                         span(cutoffs), bins);
            }));
        },
        "ranked"_a, "truth"_a, nb::kw_only(), "cutoffs"_a, "bins"_a);
    m.def(
        "grouped_reliability",
        [](const Ranked& ranked, const Truth& truth, In<std::int64_t> cutoffs,
           In<std::int32_t> group_of, std::size_t groups) {
            return to_numpy(without_gil([&] {
                return grouped_reliability(ranked.view(), span(ranked.scores), truth.view(),
                                           span(cutoffs), span(group_of), groups);
            }));
        },
        "ranked"_a, "truth"_a, nb::kw_only(), "cutoffs"_a, "group_of"_a, "groups"_a);
    m.def(
        "add_effects",
        [](In2<double> before, std::uint64_t first_row, const Ranked& ranked, const Truth& truth,
           std::size_t k, In<std::int32_t> class_of, In2<float> of_class,
           In2<std::int32_t> bins_of_cell, std::size_t bins_of_errors, std::size_t bins) {
            auto sums = without_gil([&] {
                return add_effects(span(before), first_row, ranked.view(), span(ranked.scores),
                                   truth.view(), k,
                                   {span(class_of), span(of_class), span(bins_of_cell),
                                    bins_of_cell.shape(1), bins_of_errors, bins});
            });
            return to_numpy(std::move(sums), before.shape(0), before.shape(1));
        },
        "before"_a, nb::kw_only(), "first_row"_a, "ranked"_a, "truth"_a, "k"_a, "class_of"_a,
        "of_class"_a, "bins_of_cell"_a, "bins_of_errors"_a, "bins"_a);
}

}  // namespace megalabel::bind
