// What each group of rows does to metrics that are not sums over rows: means over labels, which
// follow from the labels' counts, and calibration errors, which follow from those of bins. Thread-
// safe: no state is kept, and neither threads nor batches change a bit.
#pragma once

#include "evaluation.hpp"

namespace megalabel {

// What one row does to a metric at one cutoff, given all rows' counts.
struct Effects {
    // (labels, 3, kinds): of a row that is tagged with the label and right, beyond that of a row
    // that misses it; of one that is tagged and wrong; and of one that misses it.
    std::span<const float> of_label;
    std::size_t kinds;
    // (cells, slope_kinds): of a pair in this cell, for each unit of confidence above its hit
    std::span<const float> slopes;
    std::size_t slope_kinds;
    std::size_t bins;
};

// The rows' effects by group, (sample_groups, kinds + slope_kinds), at the cutoff k. `scores` may
// be empty if there are no slopes.
inline std::vector<double> add_effects(std::span<const double> before, std::uint64_t first_row,
                                       const RankedView& ranked, std::span<const float> scores,
                                       const Truth& truth, std::size_t k, const Effects& effects) {
    truth.check(ranked.rows);
    const std::size_t kinds = effects.kinds, slope_kinds = effects.slope_kinds;
    const std::size_t stride = 3 * kinds;
    const std::size_t width = stride == 0 ? 0 : effects.of_label.size() / stride;
    if (ranked.labels < 0 || static_cast<std::size_t>(ranked.labels) > width)
        throw std::invalid_argument("there are fewer labels with effects than ranked ones");
    if (slope_kinds > 0 && (scores.size() != ranked.ids.size() || effects.bins == 0 ||
                            effects.slopes.size() != slope_kinds * (fine_cells + effects.bins - 1)))
        throw std::invalid_argument("slopes, cells and scores do not fit each other");
    const std::size_t depth = std::min(k, ranked.width);
    const float* table = effects.of_label.data();
    const auto fill = [&](std::size_t row, const RowLabels& labels, std::span<double> values) {
        std::fill(values.begin(), values.end(), 0.0);
        for (auto label : labels.labels()) {
            if (label < 0 || static_cast<std::size_t>(label) >= width)
                throw std::invalid_argument("the truth holds a label without effects");
            const float* missed = table + static_cast<std::size_t>(label) * stride + 2 * kinds;
            for (std::size_t i = 0; i < kinds; ++i) values[i] += missed[i];
        }
        const std::size_t begin = row * ranked.width;
        constexpr std::size_t ahead = 8;  // labels lie anywhere in a table larger than any cache
        for (std::size_t j = 0; j < depth; ++j) {
            if (j + ahead < depth) {
                const auto next = ranked.ids[begin + j + ahead];
                if (next >= 0 && next < ranked.labels)
                    __builtin_prefetch(table + static_cast<std::size_t>(next) * stride + kinds);
            }
            const auto id = ranked.ids[begin + j];
            if (id < 0 || id >= ranked.labels) continue;
            const bool hit = labels.holds(id);
            const float* effect = table + static_cast<std::size_t>(id) * stride + (hit ? 0 : kinds);
            for (std::size_t i = 0; i < kinds; ++i) values[i] += effect[i];
            if (slope_kinds == 0) continue;
            const float confidence = scores[begin + j];
            const double gap = static_cast<double>(confidence) - (hit ? 1 : 0);
            const float* slope =
                effects.slopes.data() + cell_number(confidence, effects.bins) * slope_kinds;
            for (std::size_t i = 0; i < slope_kinds; ++i) values[kinds + i] += gap * slope[i];
        }
    };
    return add_by_group(before, first_row, truth, kinds + slope_kinds, fill);
}

}  // namespace megalabel
