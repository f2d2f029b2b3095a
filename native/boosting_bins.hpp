// Features as small whole numbers: which of up to 255 ranges of values each one lies in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "boosting.hpp"
#include "clustering.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::boosting {

inline constexpr std::size_t most_bins = 255;    // and one for missing values: a byte
inline constexpr std::size_t sampled = 200'000;  // rows that say where bins end
inline constexpr std::size_t row_piece = 4096;   // rows of one step of work

// Infinite values are as the largest finite ones, between which there is a middle.
inline float finite(float value) {
    constexpr float most = std::numeric_limits<float>::max();
    return std::clamp(value, -most, most);
}

// A number between two others, the higher of which it is below.
inline float between(float low, float high) {
    const auto middle = static_cast<float>((double{low} + double{high}) / 2);
    return middle < high ? middle : low;
}

// The last value of each bin but the last bin, of values in rising order. A bin has about as many
// values as any other, but one value is never in two of them: one that would fill a bin has it for
// itself, and the others share the rest.
inline std::vector<float> edges_of(std::span<const float> values, std::size_t bins) {
    struct Run {
        float value;
        std::size_t count;
    };
    std::vector<Run> runs;
    for (const float value : values) {
        if (runs.empty() || runs.back().value != value) runs.push_back({value, 0});
        ++runs.back().count;
    }
    std::vector<float> edges;
    if (runs.size() < 2) return edges;
    const std::size_t full = runs.size() <= bins ? 0 : values.size() / bins;
    std::size_t left = 0, places = bins;  // values that fill no bin, and the bins they share
    for (const Run& run : runs)
        if (run.count > full)
            --places;
        else
            left += run.count;
    std::size_t count = 0;  // of values in the bin that is being filled
    for (std::size_t r = 0; r + 1 < runs.size() && edges.size() + 1 < bins; ++r) {
        const bool alone = runs[r].count > full, next_alone = runs[r + 1].count > full;
        count += runs[r].count;
        const bool enough = count * std::max<std::size_t>(places, 1) >= left;
        if (!alone && !enough && !(next_alone && places > 0)) continue;
        edges.push_back(between(runs[r].value, runs[r + 1].value));
        if (!alone) {
            left -= std::min(left, count);
            places -= std::min<std::size_t>(places, 1);
        }
        count = 0;
    }
    return edges;
}

// The bins of all values of rows, row by row. A feature's last bin, after as many as it has ranges,
// is that of its missing values.
class Bins {
  public:
    // Edges are of those `rows` that are listed, or of some of them.
    Bins(const Rows& rows, std::span<const std::int32_t> listed, std::size_t bins,
         std::uint64_t seed)
        : width_(rows.width), edges_(rows.width), starts_(rows.width + 1) {
        const std::size_t count = std::min(sampled, listed.size());
        std::vector<std::int32_t> sample(count);
        for (std::size_t i = 0; i < count; ++i) {  // one of each of as many even parts
            const std::size_t begin = i * listed.size() / count;
            const std::size_t end = (i + 1) * listed.size() / count;
            sample[i] = listed[begin + clustering::Random(seed, 0, i).below(end - begin)];
        }
        parallel_for(width_, 1, [&](std::size_t f, std::size_t) {
            std::vector<float> values;
            values.reserve(count);
            for (const std::int32_t row : sample) {
                const float value = rows.values[static_cast<std::size_t>(row) * width_ + f];
                if (!std::isnan(value)) values.push_back(finite(value));
            }
            std::sort(values.begin(), values.end());
            edges_[f] = edges_of(values, bins);
        });
        for (std::size_t f = 0; f < width_; ++f) starts_[f + 1] = starts_[f] + edges_[f].size() + 2;
        codes_.resize(rows.count * width_);
        parallel_for(rows.count, row_piece, [&](std::size_t begin, std::size_t end) {
            for (std::size_t f = 0; f < width_; ++f) {
                const std::vector<float>& edges = edges_[f];
                for (std::size_t row = begin; row < end; ++row) {
                    const float value = rows.values[row * width_ + f];
                    codes_[row * width_ + f] = static_cast<std::uint8_t>(
                        std::isnan(value)
                            ? missing(f)
                            : std::lower_bound(edges.begin(), edges.end(), value) - edges.begin());
                }
            }
        });
    }

    std::size_t width() const { return width_; }
    std::size_t missing(std::size_t feature) const { return edges_[feature].size() + 1; }
    // Where a feature's bins are among those of all features.
    std::size_t start(std::size_t feature) const { return starts_[feature]; }
    std::size_t total() const { return starts_[width_]; }
    const std::uint8_t* row(std::int32_t number) const {
        return codes_.data() + static_cast<std::size_t>(number) * width_;
    }
    // What a value of a bin, or of one before it, is at most.
    float edge(std::size_t feature, std::size_t bin) const {
        const auto& edges = edges_[feature];
        return bin < edges.size() ? edges[bin] : std::numeric_limits<float>::infinity();
    }

  private:
    std::size_t width_;
    std::vector<std::vector<float>> edges_;
    std::vector<std::size_t> starts_;
    Paged<std::uint8_t> codes_;
};

}  // namespace megalabel::boosting
