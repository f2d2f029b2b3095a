// Losses of rows and their slopes, for many labels side by side: where a step leads, and the list
// of rows that the next one starts from.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "lanes.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::newton {

enum class Loss { squared_hinge, logistic };

// Loss, slope and curvature of one row in every lane, given margins and signed costs: `cost` of
// the row's class, `sign` 1 or -1.
__attribute__((always_inline)) inline void terms(Loss kind, const Vector& margin,
                                                 const Vector& sign, const Vector& cost,
                                                 Vector& loss, Vector& slope, Vector& curvature) {
    const Vector m = sign * margin;
    if (kind == Loss::squared_hinge) {
        Vector gap = 1.f - m;
        gap = gap > 0.f ? gap : Vector{};
        loss = cost * gap * gap;
        slope = -2.f * cost * sign * gap;
        curvature = gap > 0.f ? 2.f * cost : Vector{};
        return;
    }
    Vector e = m > 0.f ? -m : m;
    exp_negative(e);
    const Vector near = 1.f / (1.f + e);
    const Vector wrong = m > 0.f ? e * near : near;  // sigmoid(-m)
    // log(1 + e) = 2 atanh(e / (2 + e)) by its series, as e <= 1
    const Vector z = e / (2.f + e), zz = z * z;
    Vector series = 1.f / 13 * zz + 1.f / 11;
    series = series * zz + 1.f / 9;
    series = series * zz + 1.f / 7;
    series = series * zz + 1.f / 5;
    series = series * zz + 1.f / 3;
    series = series * zz + 1.f;
    loss = cost * (2.f * z * series + (m > 0.f ? Vector{} : -m));
    slope = -cost * sign * wrong;
    curvature = cost * e * near * near;  // not wrong * (1 - wrong): that is 0 for all m < -17
}

// What a pass over all rows needs of the labels: which rows are positive in which lane, and costs.
struct Classes {
    const std::uint16_t* positive;  // a bit for each lane, a row each
    const float* positive_cost;
    const float* negative_cost;
    const float* factors;  // of the cost where a row is positive, a row x lane each; null: all 1

    __attribute__((always_inline)) void row(std::size_t i, Vector& sign, Vector& cost) const {
        const Integers own = ((Integers{} + positive[i]) & lane_bits) != 0;
        sign = own ? Vector{} + 1.f : Vector{} - 1.f;
        cost = own ? *vectors(positive_cost) : *vectors(negative_cost);
        if (!factors) return;
        for (unsigned in = positive[i]; in; in &= in - 1) {
            const auto k = static_cast<std::size_t>(std::countr_zero(in));
            cost[k] *= factors[i * lanes + k];
        }
    }

    // The cost of a row in one lane.
    __attribute__((always_inline)) float one(std::size_t i, std::size_t lane) const {
        if (!(positive[i] >> lane & 1)) return negative_cost[lane];
        return positive_cost[lane] * (factors ? factors[i * lanes + lane] : 1.f);
    }
};

// The rows that have a slope in some lane. Slopes lie one after the other: those of a row in the
// order of its lanes, where they are few, or of all lanes. Most rows of many have a slope in a few
// lanes, and memory that is not written to does not count. The curvature of the squared hinge is
// twice the cost wherever there is a slope; that of the logistic loss is kept in the same places.
struct Sloped {
    int few = 0;  // lanes whose slopes lie together
    Paged<std::int32_t> rows;
    Paged<std::uint16_t> bits;    // of the lanes, for each row
    Paged<std::uint32_t> starts;  // of the row's slopes
    Buffer slopes, curvatures;
    std::size_t size = 0, entries = 0;
    std::array<std::int32_t, lanes> counts{};  // of the rows, in each lane

    void resize(std::size_t n, Loss loss, bool packed) {
        few = packed ? 4 : 0;
        if (n >= std::size_t{1} << 28) throw std::length_error("a label has 2^28 rows or more");
        rows.resize(n);
        bits.resize(n);
        starts.resize(n);
        slopes.resize(n * lanes);
        if (loss == Loss::logistic) curvatures.resize(n * lanes);
    }

    void clear() {
        size = entries = 0;
        counts = {};
    }

    __attribute__((always_inline)) void push(std::int32_t row, unsigned in, const Vector& slope,
                                             const Vector& curvature, Loss loss) {
        rows[size] = row;
        bits[size] = static_cast<std::uint16_t>(in);
        starts[size++] = static_cast<std::uint32_t>(entries);
        if (std::popcount(in) > few) {
            *vectors(slopes.data() + entries) = slope;
            if (loss == Loss::logistic) *vectors(curvatures.data() + entries) = curvature;
            entries += lanes;
            return;
        }
        for (; in; in &= in - 1, ++entries) {
            const int k = std::countr_zero(in);
            slopes[entries] = slope[k];
            if (loss == Loss::logistic) curvatures[entries] = curvature[k];
        }
    }

    std::size_t place(std::size_t r, std::size_t lane) const {
        if (std::popcount(bits[r]) > few) return starts[r] + lane;
        return starts[r] + static_cast<std::size_t>(std::popcount(bits[r] & ((1u << lane) - 1)));
    }
    // What lies in the places of a row, in its lanes.
    __attribute__((always_inline)) void spread(const Buffer& numbers, std::size_t r,
                                               Vector& out) const {
        const float* next = numbers.data() + starts[r];
        if (std::popcount(bits[r]) > few) {
            out = *vectors(next);
            return;
        }
        out = Vector{};
        for (unsigned in = bits[r]; in; in &= in - 1) out[std::countr_zero(in)] = *next++;
    }
};

// Slopes or curvatures of listed rows; slopes in some lanes.
struct Slopes {
    const Sloped& sloped;
    std::uint32_t wanted;
    __attribute__((always_inline)) void row(std::size_t r, Vector& slope) const {
        sloped.spread(sloped.slopes, r, slope);
        keep_lanes(wanted, slope);
    }
};

struct Curvatures {
    const Classes& classes;
    const Sloped& sloped;
    Loss loss;

    __attribute__((always_inline)) void row(std::size_t r, Vector& curvature) const {
        if (loss == Loss::logistic) {
            sloped.spread(sloped.curvatures, r, curvature);
            return;
        }
        Vector sign;
        classes.row(static_cast<std::size_t>(sloped.rows[r]), sign, curvature);
        curvature *= 2.f;
        keep_lanes(sloped.bits[r], curvature);
    }

    // In a lane that has a slope.
    float one(std::size_t r, std::size_t lane) const {
        return loss == Loss::logistic ? sloped.curvatures[sloped.place(r, lane)]
                                      : 2.f * classes.one(sloped.rows[r], lane);
    }
};

// Adds those of some rows that have a slope to the list, and the losses of all of them to the sums
// of the lanes, for some lanes of each row. The margin of the r-th is at `place_of(r)`. (In float32
// there are slopes without curvature, but no curvature without a slope.)
template <class PlaceOf>
MEGALABEL_CLONES inline void list_sloped(Loss kind, const Classes& classes,
                                         std::span<const std::int32_t> rows,
                                         const std::uint32_t* wanted, const float* margin,
                                         const PlaceOf& place_of, Sloped& sloped, double* sums) {
    Vector part = {};
    Integers counts = {};
    for (std::size_t r = 0; r < rows.size(); ++r) {
        Vector sign, cost, loss, slope, curvature;
        classes.row(static_cast<std::size_t>(rows[r]), sign, cost);
        keep_lanes(wanted[r], cost);
        terms(kind, vectors(margin)[place_of(r)], sign, cost, loss, slope, curvature);
        part += loss;
        counts -= slope != 0.f;
        Integers each = {};
        mark(slope, 0, each);
        if (const auto bits = all_bits(each)) sloped.push(rows[r], bits, slope, curvature, kind);
    }
    for (std::size_t k = 0; k < lanes; ++k) sums[k] += part[k], sloped.counts[k] += counts[k];
}

// The lengths of a step that are looked at in one pass: the longest, and half of it. What the rows
// add there to the loss, and to its slope along the step.
inline constexpr std::size_t tries = 2;
struct Along {
    Lanes loss{}, slope{};
};

// In which lanes a row may have a slope, by two bits a lane: at the longest or half of it, or
// anywhere between them (margins change in proportion to the length); and between half and none.
inline constexpr std::uint32_t every_bit = ~std::uint32_t{0};
inline constexpr int upper_half = 0, lower_half = lanes;

// Adds the losses of the rows from `first` on at margin + a * change, for each length a, and says
// which lanes have a slope there.
template <Loss kind>
MEGALABEL_CLONES inline void add_losses(const Classes& classes, const float* margin,
                                        const float* change, const float* length, std::size_t first,
                                        std::size_t last, std::array<Along, tries>& sums,
                                        std::uint32_t* reached) {
    Vector losses[tries] = {}, slopes[tries] = {};
    for (std::size_t i = first; i < last; ++i) {
        Vector sign, cost, loss, slope, curvature;
        classes.row(i, sign, cost);
        const Vector at = vectors(margin)[i - first], whole = vectors(change)[i - first];
        Vector step = *vectors(length) * whole;
        Vector upper = {}, lower = {};  // slopes of a row all have the same sign
        for (std::size_t t = 0; t < tries; ++t) {
            terms(kind, at + step, sign, cost, loss, slope, curvature);
            losses[t] += loss;
            slopes[t] += slope * whole;
            upper += slope;
            lower = slope;
            step *= 0.5f;
        }
        reached[i] = every_bit;
        if (kind == Loss::logistic) continue;
        terms(kind, at, sign, cost, loss, slope, curvature);
        Integers bits = {};
        mark(upper, upper_half, bits);
        mark(lower + slope, lower_half, bits);
        reached[i] = all_bits(bits);
    }
    for (std::size_t t = 0; t < tries; ++t)
        for (std::size_t k = 0; k < lanes; ++k)
            sums[t].loss[k] += losses[t][k], sums[t].slope[k] += slopes[t][k];
}

}  // namespace megalabel::newton
