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

// The places of ranks 1, 2, ... between the model's.
inline std::vector<Place> places_of_ranks(const Model& model, std::size_t columns) {
    std::vector<Place> ranks(columns);
    for (std::size_t c = 0; c < columns; ++c)
        ranks[c] = place_of(std::log(static_cast<double>(c + 1)), model.ranks);
    return ranks;
}

// A score through the model.
inline float probability(const Model& model, float score, Place rank, std::uint8_t level) {
    const Place frequency = model.level(level);
    const double height = between(model.heights, place_of(score, model.knots));
    const double margin = model.at(model.constants, rank, frequency) +
                          model.at(model.slopes, rank, frequency) * height;
    return static_cast<float>(1 / (1 + std::exp(-margin)));
}

// Scores (rows, columns) best first, and the level of frequency of the label of each.
inline std::vector<float> apply(std::span<const float> scores, std::span<const std::uint8_t> levels,
                                std::size_t columns, const Model& model) {
    model.check();
    if (levels.size() != scores.size())
        throw std::invalid_argument("there must be a level for each score");
    std::vector<float> mapped(scores.size());
    if (columns == 0) return mapped;
    const auto ranks = places_of_ranks(model, columns);
    parallel_for(scores.size() / columns, std::max<std::size_t>(1, (1u << 14) / columns),
                 [&](std::size_t begin, std::size_t end) {
                     for (std::size_t i = begin * columns; i < end * columns; ++i)
                         mapped[i] = probability(model, scores[i], ranks[i % columns], levels[i]);
                 });
    return mapped;
}

// The whole map: the model, probabilities that fall along each row (among the first `pooled` by
// their means), and a map in the end that never falls.
struct Calibration {
    Model model;
    std::span<const std::uint8_t> levels;  // of the labels, of which there may be more by now
    std::size_t pooled;
    std::span<const float> thresholds, values;

    void check() const {
        model.check();
        isotonic::check_map(thresholds, values);
    }
};

// Answers rows of one width, one at a time; not to be shared by threads.
class Rows {
  public:
    Rows(const Calibration& given, std::size_t columns)
        : given_(given), ranks_(places_of_ranks(given.model, columns)) {}

    // Writes the probabilities of a row of ranked labels; ids from `labels` on are padding.
    void answer(std::span<const std::int32_t> ids, std::span<const float> scores,
                std::size_t labels, std::span<float> out) {
        constexpr float none = -std::numeric_limits<float>::infinity();
        for (std::size_t c = 0; c < ids.size(); ++c) {
            const auto id = static_cast<std::size_t>(ids[c]);  // below 0: a large number
            const std::uint8_t level = id < given_.levels.size() ? given_.levels[id] : 0;
            out[c] = id < labels ? probability(given_.model, scores[c], ranks_[c], level) : none;
        }
        isotonic::fall(out, given_.pooled, runs_);
        for (std::size_t c = 0; c < ids.size(); ++c)
            out[c] = static_cast<std::size_t>(ids[c]) < labels
                         ? isotonic::through(out[c], given_.thresholds, given_.values)
                         : none;
    }

  private:
    Calibration given_;
    std::vector<Place> ranks_;
    std::vector<isotonic::Run> runs_;
};

// Probabilities of ranked labels (rows, columns).
inline std::vector<float> answer(std::span<const std::int32_t> ids, std::span<const float> scores,
                                 std::size_t columns, std::size_t labels,
                                 const Calibration& calibration) {
    calibration.check();
    if (ids.size() != scores.size())
        throw std::invalid_argument("there must be a label for each score");
    std::vector<float> out(ids.size());
    if (columns == 0) return out;
    parallel_for(ids.size() / columns, std::max<std::size_t>(1, (1u << 14) / columns),
                 [&](std::size_t begin, std::size_t end) {
                     Rows rows(calibration, columns);
                     for (std::size_t i = begin; i < end; ++i)
                         rows.answer(ids.subspan(i * columns, columns),
                                     scores.subspan(i * columns, columns), labels,
                                     std::span(out).subspan(i * columns, columns));
                 });
    return out;
}

}  // namespace megalabel::joint
