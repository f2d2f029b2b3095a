// The best split of a leaf, from the histogram of its rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "boosting.hpp"
#include "boosting_bins.hpp"
#include "boosting_sums.hpp"

namespace megalabel::boosting {

struct Options {
    std::size_t trees, leaves;
    std::size_t depth;  // 0: any
    std::size_t bins;
    double rate;
    std::size_t min_rows;  // of a leaf
    double min_hessian;    // of a leaf: the sum of weight * p * (1 - p)
    double l2, min_gain;
    double feature_share, row_share;  // that a tree sees
    std::size_t patience;             // trees without gain in validation before the end
    std::uint64_t seed;

    void check() const {
        if (leaves < 2 || leaves > most_leaves)
            throw std::invalid_argument("boosted trees must have 2 to " +
                                        std::to_string(most_leaves) + " leaves");
        if (bins < 2 || bins > most_bins)
            throw std::invalid_argument("features must have 2 to " + std::to_string(most_bins) +
                                        " bins");
        if (!(rate > 0) || !(min_hessian >= 0) || !(l2 >= 0) || !(min_gain >= 0) ||
            !(l2 + min_hessian > 0) || !(feature_share > 0) || !(row_share > 0))
            throw std::invalid_argument("options of boosted trees must be positive");
    }
};

inline std::size_t rows_of(const Sums& sums) { return static_cast<std::size_t>(sums[2]); }

struct Split {
    double gain = 0;
    std::size_t feature = 0, bin = 0;  // values of that bin and of those before it go left
    bool missing_left = false;
    Sums left = {};
};

// That of most gain, of several features' in their order.
inline Split best_of(const std::vector<Split>& found) {
    Split best;
    for (const Split& split : found)
        if (split.gain > best.gain) best = split;
    return best;
}

class Splits {
  public:
    // Gradients and curvatures have been multiplied by the scale, a power of two.
    Splits(const Bins& bins, const Options& options, double scale)
        : bins_(bins), options_(options), unit_(1 / scale) {}

    // The best split by a feature of rows with such sums; of no gain if there is none. Missing
    // values go to the side where they gain more; where there are none, to that with more rows.
    Split best(const Histogram& histogram, const Sums& all, std::size_t feature) const {
        const Sums* sums = histogram.data() + bins_.start(feature);
        const std::size_t last = bins_.missing(feature);
        const Sums& missing = sums[last];
        const double whole = gain_of(all);
        const double least = std::max(options_.min_gain, 1e-12 * whole);  // rounding is no gain
        Split best;
        const auto consider = [&](const Sums& left, std::size_t bin, bool missing_left) {
            const Sums right = all - left;
            if (rows_of(left) < options_.min_rows || rows_of(right) < options_.min_rows ||
                curvature(left) < options_.min_hessian || curvature(right) < options_.min_hessian)
                return;
            const double gain = gain_of(left) + gain_of(right) - whole;
            if (gain > least && gain > best.gain) best = {gain, feature, bin, missing_left, left};
        };
        Sums left = {};
        for (std::size_t bin = 0; bin < last; ++bin) {
            if (rows_of(sums[bin]) == 0) continue;
            left += sums[bin];
            if (rows_of(missing) == 0) {
                consider(left, bin, 2 * rows_of(left) >= rows_of(all));
                continue;
            }
            consider(left, bin, false);
            const Sums with_missing = left + missing;
            consider(with_missing, bin, true);
        }
        return best;
    }

    // The margin by which the loss of rows with such sums falls most (Newton's step).
    double step(const Sums& sums) const {
        return -gradient(sums) / (curvature(sums) + options_.l2);
    }

  private:
    double gradient(const Sums& sums) const { return static_cast<double>(sums[0]) * unit_; }
    double curvature(const Sums& sums) const { return static_cast<double>(sums[1]) * unit_; }
    double gain_of(const Sums& sums) const {
        const double slope = gradient(sums);
        return slope * slope / (curvature(sums) + options_.l2);
    }

    const Bins& bins_;
    const Options& options_;
    const double unit_;
};

}  // namespace megalabel::boosting
