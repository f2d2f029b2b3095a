// Clusters of label vectors, one level of a label tree at a time: what all ways to split share, and
// balanced halves.
//
// A level is a list of members (rows of the vectors) in which each node holds a contiguous range.
// Splitting a level reorders the members within each node so that the groups are contiguous too;
// inside a group members stay in rising order. Small nodes are split side by side, one thread each;
// the members of a large node are shared out. Sums are made of the same parts in the same order
// whatever the number of threads, and randomness is seeded by node, so the tree is always the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::clustering {

// Splitmix64: its whole state is the seed, so each node can have its own.
class Random {
  public:
    Random(std::uint64_t seed, std::uint64_t level, std::uint64_t node) : state_(seed) {
        state_ = next() + level;
        state_ = next() + node;
    }

    std::size_t below(std::size_t n) {
        return static_cast<std::size_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
    }

  private:
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    std::uint64_t state_;
};

struct Level {
    const SparseRows& vectors;
    std::span<const std::int32_t> members;
    std::span<const std::int64_t> starts;  // one more than there are nodes
    std::uint64_t seed, depth;

    std::size_t nodes() const { return starts.size() - 1; }
    std::size_t begin(std::size_t node) const { return static_cast<std::size_t>(starts[node]); }
    std::size_t size(std::size_t node) const { return begin(node + 1) - begin(node); }
    std::span<const std::int32_t> members_of(std::size_t node) const {
        return members.subspan(begin(node), size(node));
    }

    // After this no position needs another look.
    void check(std::size_t iterations) const {
        if (iterations < 1) throw std::invalid_argument("expected at least one iteration");
        vectors.check();
        parallel_for(vectors.size(), 4096, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = first; i < last; ++i) {
                auto [begin, end] = vectors.row(i);
                for (std::size_t p = begin; p < end; ++p) vectors.column(p);
            }
        });
        if (starts.empty() || starts.front() != 0 ||
            starts.back() != static_cast<std::int64_t>(members.size()) ||
            !std::is_sorted(starts.begin(), starts.end()))
            throw std::invalid_argument("starts of nodes do not fit their members");
        for (std::int32_t member : members)
            if (member < 0 || static_cast<std::size_t>(member) >= vectors.size())
                throw std::invalid_argument("member " + std::to_string(member) +
                                            " is outside the " + std::to_string(vectors.size()) +
                                            " vectors");
    }
};

// A tile is 16 dense vectors side by side, column by column: a product with all of them stays in
// registers, and what it reads of the tile is one line of the cache for each column.
constexpr std::size_t kTile = 16;
typedef float Lanes __attribute__((vector_size(kTile * sizeof(float)), aligned(4), may_alias));

// The vectors of one node's members. Where they have few entries for the width, they are copied
// with only the columns that occur, so that what is dense in a column stays small.
class NodeRows {
  public:
    void load(const SparseRows& all, std::span<const std::int32_t> members, std::size_t entries) {
        places_.clear();
        for (std::int32_t member : members)
            places_.push_back(all.row(static_cast<std::size_t>(member)));
        entries_ = entries;
        columns_ = all.columns.data();
        values_ = all.values.data();
        width_ = all.width;
        if (entries < 4 * all.width) renumber();
    }

    std::size_t size() const { return places_.size(); }
    std::size_t width() const { return width_; }
    std::size_t entries() const { return entries_; }

    float dot(std::size_t i, const float* dense) const {
        auto [p, end] = places_[i];
        // Two sums halve the wait for one addition after the other.
        float even = 0, odd = 0;
        for (; p + 1 < end; p += 2) {
            even += values_[p] * dense[columns_[p]];
            odd += values_[p + 1] * dense[columns_[p + 1]];
        }
        if (p < end) even += values_[p] * dense[columns_[p]];
        float sum = even + odd;
        return std::isfinite(sum) ? sum : 0;  // so that sorting has an order to go by
    }

    // Adds `weight` times row i to every `stride`-th number of `dense`.
    void add(std::size_t i, float weight, float* dense, std::size_t stride = 1) const {
        auto [begin, end] = places_[i];
        for (std::size_t p = begin; p < end; ++p)
            dense[static_cast<std::size_t>(columns_[p]) * stride] += weight * values_[p];
    }

    // 1 / length, or 0 for a row of zeros.
    float inverse_length(std::size_t i) const {
        auto [begin, end] = places_[i];
        double squares = 0;
        for (std::size_t p = begin; p < end; ++p)
            squares += static_cast<double>(values_[p]) * values_[p];
        return squares > 0 ? static_cast<float>(1 / std::sqrt(squares)) : 0;
    }

    // The products of row i with the 16 dense vectors that lie side by side in a tile.
    void dots(std::size_t i, const float* tile, float* out) const {
        auto [begin, end] = places_[i];
        dots(columns_ + begin, values_ + begin, end - begin, tile, out);
    }

  private:
    MEGALABEL_CLONES static void dots(const std::int32_t* columns, const float* values,
                                      std::size_t count, const float* tile, float* out) {
        Lanes even{}, odd{};
        auto lanes = [&](std::size_t p) -> const Lanes& {
            return *reinterpret_cast<const Lanes*>(tile +
                                                   static_cast<std::size_t>(columns[p]) * kTile);
        };
        std::size_t p = 0;
        for (; p + 1 < count; p += 2) {
            even += values[p] * lanes(p);
            odd += values[p + 1] * lanes(p + 1);
        }
        if (p < count) even += values[p] * lanes(p);
        *reinterpret_cast<Lanes*>(out) = even + odd;
    }

    void renumber() {
        number_of_.resize(width_, -1);
        own_columns_.resize(entries_);
        own_values_.resize(entries_);
        found_.clear();
        std::size_t next = 0;
        for (auto& [begin, end] : places_) {
            std::size_t first = next;
            for (std::size_t p = begin; p < end; ++p, ++next) {
                std::int32_t& number = number_of_[static_cast<std::size_t>(columns_[p])];
                if (number < 0) {
                    number = static_cast<std::int32_t>(found_.size());
                    found_.push_back(columns_[p]);
                }
                own_columns_[next] = number;
                own_values_[next] = values_[p];
            }
            begin = first;
            end = next;
        }
        for (std::int32_t column : found_) number_of_[static_cast<std::size_t>(column)] = -1;
        columns_ = own_columns_.data();
        values_ = own_values_.data();
        width_ = found_.size();
    }

    std::vector<std::pair<std::size_t, std::size_t>> places_;
    std::size_t entries_ = 0, width_ = 0;
    const std::int32_t* columns_ = nullptr;
    const float* values_ = nullptr;
    std::vector<std::int32_t> own_columns_, number_of_, found_;
    std::vector<float> own_values_;
};

// Calls split(scratch, node) for every node with its rows loaded. Nodes whose work is over a limit
// come one after the other, so that loops inside split use all threads; the rest side by side.
template <class Scratch, class Wanted, class Split>
void for_each_node(const Level& level, std::size_t work_of_entry, Wanted&& wanted, Split&& split) {
    constexpr std::size_t large = 1 << 18;
    ScratchPool<Scratch> pool;
    auto run = [&](std::size_t node, std::size_t entries) {
        pool.with([&](Scratch& scratch) {
            scratch.rows.load(level.vectors, level.members_of(node), entries);
            split(scratch, node);
        });
    };
    std::vector<std::pair<std::size_t, std::size_t>> small;
    for (std::size_t node = 0; node < level.nodes(); ++node) {
        if (!wanted(level.size(node))) continue;
        std::size_t entries = 0;
        for (std::int32_t member : level.members_of(node)) {
            auto [begin, end] = level.vectors.row(static_cast<std::size_t>(member));
            entries += end - begin;
        }
        if (entries * work_of_entry < large)
            small.emplace_back(node, entries);
        else
            run(node, entries);
    }
    parallel_for(small.size(), 1,
                 [&](std::size_t i, std::size_t) { run(small[i].first, small[i].second); });
}

struct HalvingScratch {
    NodeRows rows;
    std::vector<float> sums, direction, scores, sorted;
    std::vector<std::uint8_t> side, before;
};

// Balanced 2-means of one node, into scratch.side: members are ordered by how much nearer they are
// to the right centre than to the left one (ties by number) and the first half goes left.
class Halving {
  public:
    Halving(HalvingScratch& scratch, bool spherical)
        : s_(scratch),
          n_(scratch.rows.size()),
          width_(scratch.rows.width()),
          spherical_(spherical),
          // Parts of each half that are summed on their own, to be shared out among threads.
          lanes_(std::clamp<std::size_t>(
              scratch.rows.entries() / (8 * std::max<std::size_t>(width_, 1)), 1, 8)) {}

    void run(std::size_t iterations, Random random) {
        std::size_t left = random.below(n_), right = random.below(n_ - 1);
        right += right >= left;
        s_.direction.assign(width_, 0);
        s_.sums.assign(2 * lanes_ * width_, 0);
        s_.scores.resize(n_);
        s_.side.assign(n_, neither);
        s_.rows.add(right, spherical_ ? s_.rows.inverse_length(right) : 1, s_.direction.data());
        s_.rows.add(left, spherical_ ? -s_.rows.inverse_length(left) : -1, s_.direction.data());
        for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
            if (iteration > 0) point_from_left_to_right();
            s_.before = s_.side;
            choose_sides();
            if (s_.side == s_.before) break;
            if (iteration + 1 < iterations) move_sums();
        }
    }

  private:
    static constexpr std::uint8_t neither = 2;

    void choose_sides() {
        const std::size_t rows_a_piece = (n_ << 16) / (s_.rows.entries() + 1) + 1;
        parallel_for(n_, rows_a_piece, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i)
                s_.scores[i] = s_.rows.dot(i, s_.direction.data());
        });
        const std::size_t half = n_ / 2;
        s_.sorted = s_.scores;
        auto middle = s_.sorted.begin() + static_cast<std::ptrdiff_t>(half);
        std::nth_element(s_.sorted.begin(), middle, s_.sorted.end());
        const float bar = *middle;
        auto below = std::count_if(s_.sorted.begin(), middle, [&](float x) { return x < bar; });
        std::size_t ties = half - static_cast<std::size_t>(below);  // that still go left
        for (std::size_t i = 0; i < n_; ++i) {
            bool goes_left = s_.scores[i] < bar || (s_.scores[i] == bar && ties > 0);
            ties -= goes_left && s_.scores[i] == bar;
            s_.side[i] = !goes_left;
        }
    }

    // Only what has changed sides is added and taken away: after a few rounds that is little.
    void move_sums() {
        parallel_for(2 * lanes_, 1, [&](std::size_t first, std::size_t last) {
            for (std::size_t part = first; part < last; ++part) {
                const std::size_t side = part / lanes_, lane = part % lanes_;
                float* sum = s_.sums.data() + part * width_;
                for (std::size_t i = n_ * lane / lanes_; i < n_ * (lane + 1) / lanes_; ++i) {
                    const bool is = s_.side[i] == side, was = s_.before[i] == side;
                    if (is != was) s_.rows.add(i, is ? 1.0f : -1.0f, sum);
                }
            }
        });
    }

    float sum(std::size_t side, std::size_t column) const {
        const float* part = s_.sums.data() + side * lanes_ * width_ + column;
        float total = part[0];
        for (std::size_t lane = 1; lane < lanes_; ++lane) total += part[lane * width_];
        return total;
    }

    // The right centre less the left one, up to a factor.
    void point_from_left_to_right() {
        constexpr std::size_t grain = 1 << 15;
        double scales[2] = {1.0 / static_cast<double>(n_ / 2),
                            1.0 / static_cast<double>(n_ - n_ / 2)};
        if (spherical_) {
            std::vector<double> squares(2 * (width_ / grain + 1));
            parallel_for(width_, grain, [&](std::size_t begin, std::size_t end) {
                for (std::size_t side : {0, 1})
                    for (std::size_t c = begin; c < end; ++c)
                        squares[2 * (begin / grain) + side] +=
                            static_cast<double>(sum(side, c)) * sum(side, c);
            });
            for (std::size_t side : {0, 1}) {
                double total = 0;
                for (std::size_t p = side; p < squares.size(); p += 2) total += squares[p];
                scales[side] = total > 0 ? 1 / std::sqrt(total) : 0;
            }
        }
        const auto left = static_cast<float>(scales[0]), right = static_cast<float>(scales[1]);
        parallel_for(width_, grain, [&](std::size_t begin, std::size_t end) {
            for (std::size_t c = begin; c < end; ++c)
                s_.direction[c] = right * sum(1, c) - left * sum(0, c);
        });
    }

    HalvingScratch& s_;
    std::size_t n_, width_;
    bool spherical_;
    std::size_t lanes_;
};

// The members of every node reordered: its left half, of size floor(n / 2), then its right half.
inline std::vector<std::int32_t> halve_level(const Level& level, bool spherical,
                                             std::size_t iterations) {
    level.check(iterations);
    std::vector<std::int32_t> result(level.members.begin(), level.members.end());
    auto wanted = [](std::size_t members) { return members > 1; };
    for_each_node<HalvingScratch>(level, 1, wanted, [&](HalvingScratch& scratch, std::size_t node) {
        Halving(scratch, spherical).run(iterations, {level.seed, level.depth, node});
        std::size_t next[2] = {level.begin(node), level.begin(node) + level.size(node) / 2};
        auto members = level.members_of(node);
        for (std::size_t i = 0; i < members.size(); ++i)
            result[next[scratch.side[i]]++] = members[i];
    });
    return result;
}

}  // namespace megalabel::clustering
