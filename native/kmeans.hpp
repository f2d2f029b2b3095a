// Many clusters of label vectors at once: spherical k-means at the nodes of a level.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "clustering.hpp"

namespace megalabel::clustering {

struct KMeansScratch {
    NodeRows rows;
    std::vector<float> centres, scales, cosines, block;
    std::vector<std::int32_t> group, order;
    std::vector<std::size_t> group_starts;
};

struct KMeansOptions {
    std::size_t largest;     // nodes with more members than that are split,
    std::size_t arity, aim;  // into at most `arity` groups, of no fewer than `aim` in the mean
    bool balanced;
    std::size_t iterations;
    double tolerance;  // of the mean cosine: less gain than that, and it is done

    std::size_t groups(std::size_t members) const {
        return std::min(arity, (members - 1) / std::max<std::size_t>(aim, 1) + 1);
    }
};

// Spherical k-means of one node into k groups, as scratch.group.
class KMeans {
  public:
    KMeans(KMeansScratch& scratch, std::size_t k)
        : s_(scratch),
          n_(scratch.rows.size()),
          width_(scratch.rows.width()),
          k_(k),
          tiles_((k + kTile - 1) / kTile) {}

    void run(const KMeansOptions& options, Random random) {
        start(random);
        double before = 0;
        for (std::size_t iteration = 0; iteration < options.iterations; ++iteration) {
            if (iteration > 0) move_centres();
            choose_nearest();
            if (options.balanced) choose_with_room();
            double total = std::accumulate(s_.cosines.begin(), s_.cosines.end(), 0.0);
            if (iteration > 0 && total - before < options.tolerance * static_cast<double>(n_))
                break;
            before = total;
        }
        auto all_in_one = [&] {
            return std::all_of(s_.group.begin(), s_.group.end(),
                               [&](std::int32_t g) { return g == s_.group[0]; });
        };
        // Vectors that nothing tells apart are dealt out, or a tree could never end.
        if (k_ > 1 && all_in_one())
            for (std::size_t i = 0; i < n_; ++i)
                s_.group[i] = static_cast<std::int32_t>(i * k_ / n_);
    }

  private:
    static constexpr std::size_t rows_a_piece = 256;

    float* tile(std::size_t t) const { return s_.centres.data() + t * width_ * kTile; }
    std::size_t row_length() const { return tiles_ * kTile; }  // of a row of scores

    // k distinct members are the first centres.
    void start(Random& random) {
        s_.order.resize(n_);
        std::iota(s_.order.begin(), s_.order.end(), 0);
        s_.centres.assign(tiles_ * width_ * kTile, 0);
        s_.scales.resize(k_);
        s_.group.resize(n_);
        s_.cosines.resize(n_);
        for (std::size_t j = 0; j < k_; ++j) {
            std::swap(s_.order[j], s_.order[j + random.below(n_ - j)]);
            auto member = static_cast<std::size_t>(s_.order[j]);
            s_.rows.add(member, 1, tile(j / kTile) + j % kTile, kTile);
            s_.scales[j] = s_.rows.inverse_length(member);
        }
    }

    // A row of cosines with the centres for each of some members. One tile after the other, as a
    // tile may stay in the cache where all of them would not.
    void score(std::span<const std::int32_t> members, float* out) const {
        for (std::size_t t = 0; t < tiles_; ++t)
            for (std::size_t i = 0; i < members.size(); ++i)
                s_.rows.dots(static_cast<std::size_t>(members[i]), tile(t),
                             out + i * row_length() + t * kTile);
        for (std::size_t i = 0; i < members.size(); ++i)
            for (std::size_t j = 0; j < k_; ++j) {
                float& score = out[i * row_length() + j];
                score *= s_.scales[j];
                if (!std::isfinite(score)) score = 0;
            }
    }

    std::span<const std::int32_t> ordered(std::size_t begin, std::size_t end) const {
        return std::span<const std::int32_t>(s_.order).subspan(begin, end - begin);
    }

    void choose_nearest() {
        parallel_for(n_, rows_a_piece, [&](std::size_t begin, std::size_t end) {
            std::vector<float> scores((end - begin) * row_length());
            score(ordered(begin, end), scores.data());
            for (std::size_t i = begin; i < end; ++i) {
                const float* row = scores.data() + (i - begin) * row_length();
                const float* best = std::max_element(row, row + k_);
                auto member = static_cast<std::size_t>(s_.order[i]);
                s_.group[member] = static_cast<std::int32_t>(best - row);
                s_.cosines[member] = *best;
            }
        });
    }

    // In order of falling similarity to the nearest centre, each takes the nearest with room left.
    // Scores are made again a block at a time, as all at once would take n times k numbers.
    void choose_with_room() {
        constexpr std::size_t block = 4096;
        std::iota(s_.order.begin(), s_.order.end(), 0);
        std::sort(s_.order.begin(), s_.order.end(), [&](std::int32_t a, std::int32_t b) {
            float x = s_.cosines[static_cast<std::size_t>(a)];
            float y = s_.cosines[static_cast<std::size_t>(b)];
            return x > y || (x == y && a < b);
        });
        std::vector<std::size_t> room(k_, n_ / k_);
        std::size_t larger = n_ % k_;  // groups that may take one more
        s_.block.resize(std::min(block, n_) * row_length());
        for (std::size_t first = 0; first < n_; first += block) {
            std::size_t count = std::min(block, n_ - first);
            parallel_for(count, rows_a_piece, [&](std::size_t begin, std::size_t end) {
                score(ordered(first + begin, first + end), s_.block.data() + begin * row_length());
            });
            for (std::size_t i = 0; i < count; ++i) {
                const float* scores = s_.block.data() + i * row_length();
                std::size_t best = k_;
                for (std::size_t j = 0; j < k_; ++j)
                    if (has_room(room[j], larger) && (best == k_ || scores[j] > scores[best]))
                        best = j;
                auto member = static_cast<std::size_t>(s_.order[first + i]);
                s_.group[member] = static_cast<std::int32_t>(best);
                s_.cosines[member] = scores[best];
                if (room[best] == 0) {
                    room[best] = full;
                    --larger;
                } else {
                    --room[best];
                }
            }
        }
    }

    static constexpr std::size_t full = static_cast<std::size_t>(-1);
    static bool has_room(std::size_t room, std::size_t larger) {
        return room != full && (room > 0 || larger > 0);
    }

    // Centres are left as sums; `scales` makes them unit vectors.
    void move_centres() {
        list_groups();
        parallel_for(tiles_, 1, [&](std::size_t t, std::size_t) {
            std::fill_n(tile(t), width_ * kTile, 0.0f);
            double squares[kTile] = {};
            const std::size_t first = t * kTile, last = std::min(k_, first + kTile);
            for (std::size_t j = first; j < last; ++j)
                for (std::size_t p = s_.group_starts[j]; p < s_.group_starts[j + 1]; ++p)
                    s_.rows.add(static_cast<std::size_t>(s_.order[p]), 1, tile(t) + j - first,
                                kTile);
            for (std::size_t c = 0; c < width_; ++c)
                for (std::size_t lane = 0; lane < kTile; ++lane) {
                    double x = tile(t)[c * kTile + lane];
                    squares[lane] += x * x;
                }
            for (std::size_t j = first; j < last; ++j) {
                double total = squares[j - first];
                s_.scales[j] = total > 0 ? static_cast<float>(1 / std::sqrt(total)) : 0;
            }
        });
    }

    // Members by group, in rising order within each: `order` and `group_starts`.
    void list_groups() {
        s_.group_starts.assign(k_ + 1, 0);
        for (std::int32_t g : s_.group) ++s_.group_starts[static_cast<std::size_t>(g) + 1];
        std::partial_sum(s_.group_starts.begin(), s_.group_starts.end(), s_.group_starts.begin());
        std::vector<std::size_t> next(s_.group_starts.begin(), s_.group_starts.end() - 1);
        for (std::size_t i = 0; i < n_; ++i)
            s_.order[next[static_cast<std::size_t>(s_.group[i])]++] = static_cast<std::int32_t>(i);
    }

    KMeansScratch& s_;
    std::size_t n_, width_, k_, tiles_;
};

struct Groups {
    std::vector<std::int32_t> members;
    std::vector<std::int64_t> starts;        // of the groups' members
    std::vector<std::int64_t> child_starts;  // of the nodes' groups
};

// Every node's groups. Empty ones are left out; a node that is not split is one group.
inline Groups cluster_level(const Level& level, const KMeansOptions& options) {
    level.check(options.iterations);
    if (options.arity < 2) throw std::invalid_argument("expected at least two groups");
    std::vector<std::int32_t> group(level.members.size(), 0);
    auto wanted = [&](std::size_t members) {
        return members > std::max<std::size_t>(1, options.largest);
    };
    for_each_node<KMeansScratch>(
        level, std::max<std::size_t>(1, options.arity / 8), wanted,
        [&](KMeansScratch& scratch, std::size_t node) {
            KMeans(scratch, options.groups(level.size(node)))
                .run(options, {level.seed, level.depth, node});
            std::copy(scratch.group.begin(), scratch.group.end(),
                      group.begin() + static_cast<std::ptrdiff_t>(level.begin(node)));
        });
    Groups result{{}, {0}, {0}};
    result.members.resize(level.members.size());
    std::vector<std::size_t> next(std::min(options.arity, level.members.size()));
    for (std::size_t node = 0; node < level.nodes(); ++node) {
        const std::size_t begin = level.begin(node), end = level.begin(node + 1);
        std::fill(next.begin(), next.end(), std::size_t{0});
        for (std::size_t p = begin; p < end; ++p) ++next[static_cast<std::size_t>(group[p])];
        std::size_t place = begin;
        for (std::size_t& count : next) {
            place += std::exchange(count, place);
            if (place != static_cast<std::size_t>(result.starts.back()))
                result.starts.push_back(static_cast<std::int64_t>(place));
        }
        result.child_starts.push_back(static_cast<std::int64_t>(result.starts.size()) - 1);
        for (std::size_t p = begin; p < end; ++p)
            result.members[next[static_cast<std::size_t>(group[p])]++] = level.members[p];
    }
    return result;
}

}  // namespace megalabel::clustering
