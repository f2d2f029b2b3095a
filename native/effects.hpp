// What each group of rows does to metrics that are not sums over rows: means over labels, which
// follow from the labels' counts, and calibration errors, which follow from those of bins. Thread-
// safe: no state is kept, and neither threads nor batches change a bit.
#pragma once

#include "evaluation.hpp"
#include "lanes.hpp"

namespace megalabel {

// Room for the metrics of a label.
inline constexpr std::size_t effect_lanes = newton::lanes;

// The sum of some lines of a table.
MEGALABEL_CLONES inline void sum_lines(const float* table, const std::uint32_t* lines,
                                       std::size_t count, float* out) {
    newton::Vector sum = {};
    for (std::size_t i = 0; i < count; ++i) sum += newton::vectors(table)[lines[i]];
    *newton::vectors(out) = sum;
}

// What one row does to the metrics at one cutoff, given all rows' counts.
struct Effects {
    // Labels of the same counts are of one class, so that the classes' effects stay in a cache.
    std::span<const std::int32_t> class_of;
    // (classes, 3, effect_lanes): of a row that is tagged with the label and right, beyond that of
    // a row that misses it; of one that is tagged and wrong; and of one that misses it.
    std::span<const float> of_class;
    // (cells, bin_kinds): the bins of calibration errors that a pair in this cell falls into, of
    // `bins_of_errors` in all; below 0 for none
    std::span<const std::int32_t> bins_of_cell;
    std::size_t bin_kinds;
    std::size_t bins_of_errors;
    std::size_t bins;

    void check() const {
        constexpr std::size_t stride = 3 * effect_lanes;
        const auto classes = static_cast<std::int64_t>(of_class.size() / stride);
        if (of_class.size() % stride != 0 ||
            std::ranges::any_of(class_of, [&](auto c) { return c < 0 || c >= classes; }))
            throw std::invalid_argument("labels' classes and their effects do not fit each other");
        if (classes >= std::int64_t{1} << 30) throw std::invalid_argument("too many classes");
        if (bin_kinds > 0 &&
            (bins == 0 || bins_of_cell.size() != bin_kinds * (fine_cells + bins - 1)))
            throw std::invalid_argument("bins and cells do not fit each other");
        const auto most = static_cast<std::int64_t>(bins_of_errors);
        if (std::ranges::any_of(bins_of_cell, [&](auto b) { return b >= most; }))
            throw std::invalid_argument("a cell falls into a bin that is not there");
    }

    // The line of the table for a row whose label is found, wrong or missed: 0, 1 or 2.
    std::uint32_t line(std::int32_t label, std::uint32_t what) const {
        return 3 * static_cast<std::uint32_t>(class_of[label]) + what;
    }
};

// The rows' effects by group, (sample_groups, effect_lanes + bins_of_errors), at the cutoff k: what
// they do to the metrics of labels, and their confidence above their hits by bin. `scores` are
// probabilities; they may be empty if there are no bins.
inline std::vector<double> add_effects(std::span<const double> before, std::uint64_t first_row,
                                       const RankedView& ranked, std::span<const float> scores,
                                       const Truth& truth, std::size_t k, const Effects& effects) {
    truth.check(ranked.rows);
    effects.check();
    if (ranked.labels > static_cast<std::int64_t>(effects.class_of.size()))
        throw std::invalid_argument("there are fewer labels with effects than ranked ones");
    if (effects.bin_kinds > 0 && scores.size() != ranked.ids.size())
        throw std::invalid_argument("ids and scores differ in size");
    const std::size_t depth = std::min(k, ranked.width);
    const auto fill = [&](std::size_t row, const RowLabels& labels, std::span<double> values) {
        thread_local std::vector<std::uint32_t> lines;
        lines.resize(std::max(lines.size(), labels.labels().size() + depth));
        std::size_t count = 0;
        for (auto label : labels.labels()) {
            if (label < 0 || static_cast<std::size_t>(label) >= effects.class_of.size())
                throw std::invalid_argument("the truth holds a label without effects");
            lines[count++] = effects.line(label, 2);
        }
        const auto gaps = values.subspan(effect_lanes);
        std::ranges::fill(gaps, 0.0);
        for (std::size_t j = row * ranked.width; j < row * ranked.width + depth; ++j) {
            const auto id = ranked.ids[j];
            if (id < 0 || id >= ranked.labels) continue;
            const bool hit = labels.holds(id);
            lines[count++] = effects.line(id, hit ? 0 : 1);
            if (effects.bin_kinds == 0) continue;
            const auto fallen = effects.bins_of_cell.subspan(
                cell_number(scores[j], effects.bins) * effects.bin_kinds, effects.bin_kinds);
            const double gap = static_cast<double>(scores[j]) - (hit ? 1 : 0);
            for (auto bin : fallen)
                if (bin >= 0) gaps[static_cast<std::size_t>(bin)] += gap;
        }
        float sums[effect_lanes];
        sum_lines(effects.of_class.data(), lines.data(), count, sums);
        std::copy(std::begin(sums), std::end(sums), values.begin());
    };
    return add_by_group(before, first_row, truth, effect_lanes + effects.bins_of_errors, fill);
}

}  // namespace megalabel
