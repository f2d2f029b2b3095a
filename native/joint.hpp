// Scores to probabilities by score, rank and label frequency together: a logistic regression on a
// rising function of the score, whose slope and constant are interpolated between knots of rank and
// of frequency (calibration/joint.py has the formula).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "isotonic.hpp"
#include "parallel.hpp"

namespace megalabel::joint {

// Where a value lies between rising knots: that many are before it, and it is such a share of the
// way to the next. Values beyond the ends count as the ends.
struct Place {
    std::size_t knot;
    double share;
};
inline Place place_of(double value, std::span<const double> knots) {
    const auto above = std::upper_bound(knots.begin(), knots.end(), value);
    const auto knot = std::clamp<std::ptrdiff_t>(above - knots.begin() - 1, 0,
                                                 static_cast<std::ptrdiff_t>(knots.size()) - 2);
    const double low = knots[knot], high = knots[knot + 1];
    return {static_cast<std::size_t>(knot), (std::clamp(value, low, high) - low) / (high - low)};
}
inline double between(std::span<const double> values, Place at) {
    return values[at.knot] + at.share * (values[at.knot + 1] - values[at.knot]);
}

struct Model {
    std::span<const double> knots, heights;      // the rising function of the score
    std::span<const double> ranks, frequencies;  // logarithms, rising
    std::span<const double> constants, slopes;   // (ranks, frequencies)
    double steps;                                // levels of frequency a unit of the logarithm

    void check() const {
        const std::size_t cells = ranks.size() * frequencies.size();
        if (knots.size() < 2 || heights.size() != knots.size() || ranks.size() < 2 ||
            frequencies.size() < 2 || constants.size() != cells || slopes.size() != cells)
            throw std::invalid_argument("the parts of a joint calibration do not fit together");
    }
    Place level(std::uint8_t level) const { return place_of(level / steps, frequencies); }
    double at(std::span<const double> grid, Place rank, Place frequency) const {
        const std::size_t width = frequencies.size();
        const double low = between(grid.subspan(rank.knot * width, width), frequency);
        const double high = between(grid.subspan((rank.knot + 1) * width, width), frequency);
        return low + rank.share * (high - low);
    }
};

// Scores (rows, columns) best first, and the level of frequency of the label of each.
inline std::vector<float> apply(std::span<const float> scores, std::span<const std::uint8_t> levels,
                                std::size_t columns, const Model& model) {
    model.check();
    if (levels.size() != scores.size())
        throw std::invalid_argument("there must be a level for each score");
    std::vector<float> mapped(scores.size());
    if (columns == 0) return mapped;
    std::vector<Place> ranks(columns);
    for (std::size_t c = 0; c < columns; ++c)
        ranks[c] = place_of(std::log(static_cast<double>(c + 1)), model.ranks);
    parallel_for(scores.size() / columns, std::max<std::size_t>(1, (1u << 14) / columns),
                 [&](std::size_t begin, std::size_t end) {
                     for (std::size_t i = begin * columns; i < end * columns; ++i) {
                         const Place rank = ranks[i % columns], frequency = model.level(levels[i]);
                         const double height =
                             between(model.heights, place_of(scores[i], model.knots));
                         const double margin = model.at(model.constants, rank, frequency) +
                                               model.at(model.slopes, rank, frequency) * height;
                         mapped[i] = static_cast<float>(1 / (1 + std::exp(-margin)));
                     }
                 });
    return mapped;
}

// Probabilities of ranked labels: those of the model, falling along each row (among the first
// `pooled` by their means), through a map that never falls. `levels` are those of all labels, of
// which there may be more by now; ids from `labels` on are padding.
inline std::vector<float> answer(std::span<const std::int32_t> ids, std::span<const float> scores,
                                 std::size_t columns, std::size_t labels,
                                 std::span<const std::uint8_t> levels, const Model& model,
                                 std::size_t pooled, std::span<const float> thresholds,
                                 std::span<const float> values) {
    if (ids.size() != scores.size())
        throw std::invalid_argument("there must be a label for each score");
    std::vector<std::uint8_t> of_cells(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto id = static_cast<std::size_t>(ids[i]);  // below 0: a large number
        of_cells[i] = id < levels.size() ? levels[id] : 0;
    }
    const auto pad = [&](std::vector<float>& mapped) {
        for (std::size_t i = 0; i < ids.size(); ++i)
            if (static_cast<std::size_t>(ids[i]) >= labels)
                mapped[i] = -std::numeric_limits<float>::infinity();
    };
    auto mapped = apply(scores, of_cells, columns, model);
    pad(mapped);
    mapped = isotonic::falling_rows(mapped, columns, pooled);
    mapped = isotonic::apply(mapped, thresholds, values);
    pad(mapped);
    return mapped;
}

}  // namespace megalabel::joint
