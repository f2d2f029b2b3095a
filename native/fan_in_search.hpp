// The best labels of dense rows, where labels look at a few features (fan_in.hpp): all labels are
// scored, a tile at a time, and what does not reach a row's k-th best is forgotten at once.
//
// Of few rows a tile would be mostly empty: then the labels of a group lie in the lanes. A score is
// the same either way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "fan_in.hpp"
#include "ranked.hpp"

namespace megalabel::fan_in {

// Where the scores of some places reach the bars of their rows: place * tile + row, rising.
__attribute__((always_inline)) inline std::size_t find_reaching(const float* scores,
                                                                std::size_t places,
                                                                const float* bars,
                                                                std::uint32_t* found) {
    constexpr std::size_t together = 8;
    const Vector low = vectors(bars)[0], high = vectors(bars)[1];
    std::size_t count = 0;
    for (std::size_t first = 0; first < places; first += together) {
        const std::size_t last = std::min(first + together, places);
        Integers any = {};
        for (std::size_t p = first; p < last; ++p) {
            const Vector* s = vectors(scores + p * tile);
            any |= (s[0] >= low) | (s[1] >= high);
        }
        any &= newton::lane_bits;
        if (newton::all_bits(any) == 0) continue;
        for (std::size_t p = first; p < last; ++p) {
            const Vector* s = vectors(scores + p * tile);
            const Integers left = (s[0] >= low) & newton::lane_bits;
            const Integers right = (s[1] >= high) & newton::lane_bits;
            std::uint32_t bits = newton::all_bits(left) | newton::all_bits(right) << lanes;
            for (; bits != 0; bits &= bits - 1)
                found[count++] = static_cast<std::uint32_t>(p * tile) +
                                 static_cast<std::uint32_t>(__builtin_ctz(bits));
        }
    }
    return count;
}

using Reaching = std::size_t (*)(const float*, std::size_t, const float*, std::uint32_t*);
inline const Reaching reaching =
    choose<Reaching>([](const float* s, std::size_t n, const float* bars, std::uint32_t* found)
                         MEGALABEL_AVX512 { return find_reaching(s, n, bars, found); },
                     [](const float* s, std::size_t n, const float* bars, std::uint32_t* found)
                         MEGALABEL_AVX2 { return find_reaching(s, n, bars, found); },
                     [](const float* s, std::size_t n, const float* bars, std::uint32_t* found) {
                         return find_reaching(s, n, bars, found);
                     });

// a b + c, rounded as registers do it: left to itself, the compiler splits what it cannot put into
// one.
template <bool fused>
__attribute__((always_inline)) inline float add_product(float a, float b, float c) {
    if constexpr (fused)
        return __builtin_fmaf(a, b, c);
    else
        return a * b + c;
}

#if defined(__FP_FAST_FMAF)
inline constexpr bool fused_anyway = true;
#else
inline constexpr bool fused_anyway = false;
#endif

// Scores of the places of some groups for one row, whose features lie side by side.
struct ScoredRow {
    const float* row;
    std::size_t groups, fan_in, size;
    const std::uint32_t* offsets;
    const float* weights;
    const float* bias;  // null: none
    float* taken;       // room for `fan_in` values
    float* out;         // (places,)
};

template <std::size_t n>
__attribute__((always_inline)) inline void score_vectors(const ScoredRow& s, const float* weights,
                                                         float* out) {
    Vector sum[n] = {};
    for (std::size_t f = 0; f < s.fan_in; ++f, weights += s.size)
#pragma GCC unroll 4
        for (std::size_t k = 0; k < n; ++k) sum[k] += vectors(weights)[k] * s.taken[f];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < n; ++k) vectors(out)[k] = sum[k];
}

template <std::size_t n, bool fused>
__attribute__((always_inline)) inline void score_labels(const ScoredRow& s, std::size_t place) {
    const float* row = s.row;
    const std::size_t fan_in = s.fan_in;
    const std::uint32_t* offsets[n];
    const float* weights[n];
    float sum[n];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < n; ++k) {
        offsets[k] = s.offsets + (place + k) * fan_in;
        weights[k] = s.weights + (place + k) * fan_in;
        sum[k] = 0;
    }
    for (std::size_t f = 0; f < fan_in; ++f)
#pragma GCC unroll 8
        for (std::size_t k = 0; k < n; ++k)
            sum[k] = add_product<fused>(row[offsets[k][f]], weights[k][f], sum[k]);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < n; ++k) s.out[place + k] = sum[k];
}

template <bool fused>
__attribute__((always_inline)) inline void score_one(const ScoredRow& s) {
    constexpr std::size_t apart = 4;
    if (s.size == 1) {
        std::size_t place = 0;
        for (; place + apart <= s.groups; place += apart) score_labels<apart, fused>(s, place);
        for (; place < s.groups; ++place) score_labels<1, fused>(s, place);
    } else {
        for (std::size_t g = 0; g < s.groups; ++g) {
            const float* weights = s.weights + g * s.fan_in * s.size;
            float* out = s.out + g * s.size;
            for (std::size_t f = 0; f < s.fan_in; ++f)
                s.taken[f] = s.row[s.offsets[g * s.fan_in + f]];
            std::size_t i = 0;
            for (; i + 4 * lanes <= s.size; i += 4 * lanes)
                score_vectors<4>(s, weights + i, out + i);
            for (; i + 2 * lanes <= s.size; i += 2 * lanes)
                score_vectors<2>(s, weights + i, out + i);
            for (; i + lanes <= s.size; i += lanes) score_vectors<1>(s, weights + i, out + i);
            for (; i < s.size; ++i) {
                float sum = 0;
                for (std::size_t f = 0; f < s.fan_in; ++f)
                    sum = add_product<fused>(s.taken[f], weights[f * s.size + i], sum);
                out[i] = sum;
            }
        }
    }
    if (s.bias != nullptr)
        for (std::size_t p = 0; p < s.groups * s.size; ++p) s.out[p] += s.bias[p];
}

using ScoreRow = void (*)(const ScoredRow&);
inline const ScoreRow score_row =
    choose<ScoreRow>([](const ScoredRow& s) MEGALABEL_AVX512 { score_one<true>(s); },
                     [](const ScoredRow& s) MEGALABEL_AVX2 { score_one<true>(s); },
                     [](const ScoredRow& s) { score_one<fused_anyway>(s); });

class Search {
  public:
    // allowed: a mark for each label that may be found; empty: all.
    Search(Layer layer, products::Rows<float> rows, std::span<const std::uint8_t> allowed,
           std::size_t k)
        : layer_(layer), rows_(rows), allowed_(allowed), k_(k) {
        layer_.check();
        if (k == 0) throw std::invalid_argument("k must be at least 1");
        if (rows.width != layer.width)
            throw std::invalid_argument("rows have " + std::to_string(rows.width) +
                                        " features, but a layer sees " +
                                        std::to_string(layer.width));
        if (!allowed.empty() && allowed.size() != layer.names)
            throw std::invalid_argument("allowed are " + std::to_string(allowed.size()) + " of " +
                                        std::to_string(layer.names) + " labels");
        const std::size_t each = std::max<std::size_t>(layer.connections(), 1);
        const std::size_t most = std::max<std::size_t>(layer.size, 1024) / layer.size;
        together_ = std::clamp<std::size_t>(held_weights / each, 1, most);
    }

    Ranked run() const {
        Ranked out(rows_.count, k_, layer_.names);
        for (std::size_t first = 0; first < rows_.count; first += block)
            search(first, std::min(block, rows_.count - first), out);
        return out;
    }

  private:
    static constexpr std::size_t block = 128;             // rows that are searched for together
    static constexpr std::size_t held_weights = 1 << 13;  // of groups that are scored together
    static constexpr std::size_t piece = std::size_t{1} << 31;  // products of a piece of work

    struct Scratch {
        std::vector<std::uint32_t> offsets, found;
        Paged<float> held, scores, taken, bars;
    };

    bool few(std::size_t count) const { return count <= (layer_.size % lanes == 0 ? 8 : 2); }

    // Slices of the groups are searched in parallel, each on its own.
    void search(std::size_t first, std::size_t count, Ranked& out) const {
        const auto threads = static_cast<std::size_t>(ThreadPool::threads().load());
        const std::size_t work = layer_.groups * layer_.connections() * count;
        const std::size_t slices =
            std::clamp<std::size_t>(std::max(threads == 1 ? 1 : 2 * threads, work / piece), 1,
                                    std::max<std::size_t>(layer_.groups, 1));
        std::vector<Best> best(slices * count);
        for (Best& each : best) each.reset(k_, -std::numeric_limits<float>::infinity());
        const Tiles tiles(rows_, first, few(count) ? 0 : count);
        ScratchPool<Scratch> pool;
        parallel_for(slices, 1, [&](std::size_t slice, std::size_t) {
            pool.with([&](Scratch& scratch) {
                const std::span<Best> mine(best.data() + slice * count, count);
                const std::size_t begin = layer_.groups * slice / slices;
                const std::size_t end = layer_.groups * (slice + 1) / slices;
                scan(begin, end, first, tiles, mine, scratch);
            });
        });
        parallel_for(count, 8, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                for (std::size_t slice = 1; slice < slices; ++slice)
                    for (const Best::Entry& entry : best[slice * count + i].unsorted())
                        best[i].offer(entry.score, entry.id);
                best[i].write(out, first + i);
            }
        });
    }

    bool wanted(std::size_t first, std::size_t count) const {
        if (allowed_.empty()) return true;
        for (std::size_t p = first * layer_.size; p < (first + count) * layer_.size; ++p)
            if (allows(layer_.label(p))) return true;
        return false;
    }
    bool allows(std::int32_t label) const {
        return label >= 0 && (allowed_.empty() || allowed_[static_cast<std::size_t>(label)] != 0);
    }

    void scan(std::size_t begin, std::size_t end, std::size_t first_row, const Tiles& tiles,
              std::span<Best> best, Scratch& scratch) const {
        const bool one_by_one = few(best.size());
        const std::size_t most = together_ * layer_.size;
        scratch.offsets.resize(together_ * layer_.fan_in);
        scratch.taken.resize(layer_.fan_in);
        scratch.scores.resize(most * (one_by_one ? 1 : tile));
        scratch.found.resize(most * tile);
        scratch.bars.assign(rounded_rows(best.size()), -std::numeric_limits<float>::infinity());
        for (std::size_t group = begin; group < end; group += together_) {
            end_if_cancelled();
            const std::size_t count = std::min(together_, end - group);
            if (!wanted(group, count)) continue;
            layer_.offsets(group, count, one_by_one ? 1 : tile, scratch.offsets.data());
            const float* weights = layer_.widened(group, count, scratch.held);
            const float* bias =
                layer_.bias.empty() ? nullptr : layer_.bias.data() + group * layer_.size;
            if (one_by_one) {
                for (std::size_t i = 0; i < best.size(); ++i) {
                    score_row({rows_.data + (first_row + i) * rows_.width, count, layer_.fan_in,
                               layer_.size, scratch.offsets.data(), weights, bias,
                               scratch.taken.data(), scratch.scores.data()});
                    for (std::size_t p = 0; p < count * layer_.size; ++p)
                        if (scratch.scores[p] >= best[i].refused_below())
                            offer(best[i], scratch.scores[p], group * layer_.size + p);
                }
                continue;
            }
            for (std::size_t t = 0; t < tiles_of(best.size()); ++t) {
                float* scores = scratch.scores.data();
                float* bars = scratch.bars.data() + t * tile;
                score_tile({tiles[t], count, layer_.fan_in, layer_.size, scratch.offsets.data(),
                            weights, bias, scores});
                const std::size_t found =
                    reaching(scores, count * layer_.size, bars, scratch.found.data());
                for (std::size_t h = 0; h < found; ++h) {
                    const std::size_t at = scratch.found[h], row = at % tile;
                    if (t * tile + row >= best.size()) continue;
                    Best& mine = best[t * tile + row];
                    offer(mine, scores[at], group * layer_.size + at / tile);
                    bars[row] = mine.refused_below();
                }
            }
        }
    }

    static std::size_t rounded_rows(std::size_t rows) { return tiles_of(rows) * tile; }

    void offer(Best& best, float score, std::size_t place) const {
        const std::int32_t label = layer_.label(place);
        if (allows(label)) best.offer(score, label);
    }

    Layer layer_;
    products::Rows<float> rows_;
    std::span<const std::uint8_t> allowed_;
    std::size_t k_, together_;
};

}  // namespace megalabel::fan_in
