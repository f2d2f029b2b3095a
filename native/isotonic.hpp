// Isotonic regression: the non-decreasing map from score to hit rate that is best by least squares.
//
// Scores of hits and of misses are sorted apart, as bare 32-bit keys where there are no weights:
// half the memory traffic of sorting pairs. Both lists are then walked together, so that equal
// scores are one point of their joint weight, and adjacent violators are pooled as they appear.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"

namespace megalabel::isotonic {

// Numbers in the order of the scores. Infinite ones become the largest finite ones, between which
// a line can be drawn; -0 is 0.
inline float finite(float score) {
    constexpr float most = std::numeric_limits<float>::max();
    return std::clamp(score, -most, most) + 0.0f;
}
inline std::uint32_t key_of(float score) {
    const auto bits = std::bit_cast<std::uint32_t>(finite(score));
    return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}
inline float score_of(std::uint32_t key) {
    return std::bit_cast<float>(key ^ ((key >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

struct Plain {
    std::uint32_t key;
    double weight() const { return 1; }
};
struct Weighted {
    std::uint32_t key;
    float value;
    double weight() const { return value; }
};

constexpr std::size_t piece = std::size_t{1} << 20;  // items of one step of work

// Sorts by key, byte by byte, keeping the order of equal keys.
template <class Item>
void sort(std::vector<Item>& items) {
    using Counts = std::array<std::size_t, 256>;
    const std::size_t n = items.size(), pieces = n == 0 ? 0 : (n - 1) / piece + 1;
    std::vector<Item> other(n);
    std::vector<Counts> counts(pieces);
    for (int shift = 0; shift < 32; shift += 8) {
        parallel_for(n, piece, [&](std::size_t begin, std::size_t end) {
            Counts& mine = counts[begin / piece];
            mine.fill(0);
            for (std::size_t i = begin; i < end; ++i) ++mine[items[i].key >> shift & 255];
        });
        std::size_t place = 0;
        bool apart = false;  // whether this byte tells any keys apart
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::size_t before = place;
            for (Counts& of_piece : counts) {
                const std::size_t count = of_piece[byte];
                of_piece[byte] = place;
                place += count;
            }
            apart |= place != before && place - before != n;
        }
        if (!apart) continue;
        parallel_for(n, piece, [&](std::size_t begin, std::size_t end) {
            Counts& next = counts[begin / piece];
            for (std::size_t i = begin; i < end; ++i)
                other[next[items[i].key >> shift & 255]++] = items[i];
        });
        items.swap(other);
    }
}

template <class Item>
struct Split {
    std::vector<Item> misses, hits;
};

// The pairs of score and hit as two lists, in order.
template <class Item, class Make>
Split<Item> split(std::span<const float> scores, std::span<const std::uint8_t> hits, Make&& make) {
    const std::size_t n = scores.size(), pieces = n == 0 ? 0 : (n - 1) / piece + 1;
    std::vector<std::size_t> starts(pieces + 1);
    parallel_for(n, piece, [&](std::size_t begin, std::size_t end) {
        std::size_t count = 0;
        for (std::size_t i = begin; i < end; ++i) {
            if (std::isnan(scores[i])) throw std::invalid_argument("a score is not a number");
            count += hits[i] != 0;
        }
        starts[begin / piece + 1] = count;
    });
    for (std::size_t p = 0; p < pieces; ++p) starts[p + 1] += starts[p];
    Split<Item> made;
    made.hits.resize(starts[pieces]);
    made.misses.resize(n - starts[pieces]);
    parallel_for(n, piece, [&](std::size_t begin, std::size_t end) {
        std::size_t hit = starts[begin / piece], miss = begin - hit;
        for (std::size_t i = begin; i < end; ++i)
            (hits[i] != 0 ? made.hits[hit++] : made.misses[miss++]) = make(i);
    });
    return made;
}

// A map by its knots: linear between them, constant beyond.
struct Map {
    std::vector<float> thresholds, values;
};

// A run of scores with one hit rate.
struct Block {
    float first, last;
    double weight, hits;
};

template <class Item>
Map pool(Split<Item>&& pairs) {
    sort(pairs.misses);
    sort(pairs.hits);
    std::vector<Block> blocks;
    // one piece, so that it can be interrupted
    parallel_for(1, 1, [&](std::size_t, std::size_t) {
        const auto &misses = pairs.misses, &hits = pairs.hits;
        std::size_t miss = 0, hit = 0, steps = 0;
        while (miss < misses.size() || hit < hits.size()) {
            if (++steps % piece == 0) end_if_cancelled();
            std::uint32_t key = std::numeric_limits<std::uint32_t>::max();
            if (miss < misses.size()) key = misses[miss].key;
            if (hit < hits.size()) key = std::min(key, hits[hit].key);
            double right = 0, wrong = 0;
            while (miss < misses.size() && misses[miss].key == key)
                wrong += misses[miss++].weight();
            while (hit < hits.size() && hits[hit].key == key) right += hits[hit++].weight();
            Block block{score_of(key), score_of(key), right + wrong, right};
            if (block.weight == 0) continue;
            while (!blocks.empty() &&
                   blocks.back().hits * block.weight >= block.hits * blocks.back().weight) {
                const Block& before = blocks.back();
                block = {before.first, block.last, before.weight + block.weight,
                         before.hits + block.hits};
                blocks.pop_back();
            }
            blocks.push_back(block);
        }
    });
    Map map;
    float value = 0;
    for (const Block& block : blocks) {
        // rounding must not make the map fall
        value = std::clamp(static_cast<float>(block.hits / block.weight), value, 1.0f);
        for (float threshold : {block.first, block.last}) {
            if (!map.thresholds.empty() && map.thresholds.back() == threshold) continue;
            map.thresholds.push_back(threshold);
            map.values.push_back(value);
        }
    }
    return map;
}

// The map learned from pairs of score and hit; `weights` is empty where all pairs count alike.
inline Map fit(std::span<const float> scores, std::span<const std::uint8_t> hits,
               std::span<const float> weights) {
    if (hits.size() != scores.size() || (!weights.empty() && weights.size() != scores.size()))
        throw std::invalid_argument("scores, hits and weights must be as many");
    if (weights.empty())
        return pool(split<Plain>(scores, hits,
                                 [&](std::size_t i) -> Plain { return {key_of(scores[i])}; }));
    return pool(split<Weighted>(scores, hits, [&](std::size_t i) -> Weighted {
        if (!(weights[i] >= 0) || std::isinf(weights[i]))
            throw std::invalid_argument("weights must be finite and not negative");
        return {key_of(scores[i]), weights[i]};
    }));
}

// A score through the map, which has a value for each of its thresholds, one at least.
inline float through(float given, std::span<const float> thresholds,
                     std::span<const float> values) {
    const float score = finite(given);
    if (std::isnan(score)) return score;
    const std::size_t after =
        std::upper_bound(thresholds.begin(), thresholds.end(), score) - thresholds.begin();
    if (after == 0 || after == thresholds.size()) return values[after == 0 ? 0 : after - 1];
    const double low = thresholds[after - 1], high = thresholds[after];
    const double from = values[after - 1], to = values[after];
    const double between = from + (score - low) / (high - low) * (to - from);
    return std::clamp(static_cast<float>(between), values[after - 1],
                      std::max(values[after - 1], values[after]));
}

inline void check_map(std::span<const float> thresholds, std::span<const float> values) {
    if (thresholds.empty() || thresholds.size() != values.size())
        throw std::invalid_argument("a map needs a value for each of its thresholds");
}

// Each score through the map.
inline std::vector<float> apply(std::span<const float> scores, std::span<const float> thresholds,
                                std::span<const float> values) {
    check_map(thresholds, values);
    std::vector<float> mapped(scores.size());
    parallel_for(scores.size(), piece / 16, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            mapped[i] = through(scores[i], thresholds, values);
    });
    return mapped;
}

// Neighbours that share their mean.
struct Run {
    double sum;
    std::size_t length;
};

// Makes a row of probabilities never rise: neighbours among the first `pooled` that do share their
// mean, which keeps the sum; beyond them none is above the one before. `runs` is scratch.
inline void fall(std::span<float> row, std::size_t pooled, std::vector<Run>& runs) {
    runs.clear();
    for (std::size_t c = 0; c < std::min(pooled, row.size()); ++c) {
        Run run{row[c], 1};
        while (!runs.empty() && runs.back().sum * static_cast<double>(run.length) <
                                    run.sum * static_cast<double>(runs.back().length)) {
            run.sum += runs.back().sum;
            run.length += runs.back().length;
            runs.pop_back();
        }
        runs.push_back(run);
    }
    std::size_t at = 0;
    for (const Run& run : runs) {
        if (run.length == 1) {
            ++at;
            continue;
        }
        const auto mean = static_cast<float>(run.sum / static_cast<double>(run.length));
        for (std::size_t i = 0; i < run.length; ++i) row[at++] = mean;
    }
    for (std::size_t c = 1; c < row.size(); ++c) row[c] = std::min(row[c], row[c - 1]);
}

// Rows of probabilities that never rise; see `fall`.
inline std::vector<float> falling_rows(std::span<const float> rows, std::size_t columns,
                                       std::size_t pooled) {
    std::vector<float> fallen(rows.begin(), rows.end());
    if (columns == 0) return fallen;
    parallel_for(rows.size() / columns, std::max<std::size_t>(1, piece / 16 / columns),
                 [&](std::size_t begin, std::size_t end) {
                     std::vector<Run> runs;
                     for (std::size_t r = begin; r < end; ++r)
                         fall(std::span(fallen).subspan(r * columns, columns), pooled, runs);
                 });
    return fallen;
}

}  // namespace megalabel::isotonic
