// What a tile of rows gives to the gradients of a group of labels (fan_in.hpp): of its weights, and
// of the features it looks at. All in registers; the gradient by the scores is one tile, of which
// labels and rows that are zero throughout are passed over.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "fan_in.hpp"
#include "fan_in_losses.hpp"

namespace megalabel::fan_in {

// A tile of a group that is being learned.
struct Learning {
    const float* rows;
    std::size_t row_count;
    std::size_t fan_in, size;
    const std::uint32_t* offsets;
    const float* weights;
    float* scores;                        // (size, tile): then the gradient by them
    float* turned;                        // (tile, size): the gradient, if labels fill registers
    const float* label_weights;           // as negatives; below 0: no label
    const float *normalisers, *masses;    // of the rows, of softmax
    float number;                         // of the loss
    std::uint16_t *active, *rows_active;  // labels and rows with a gradient
    std::size_t active_count, rows_active_count;
    float* by_weights;  // (fan_in, size), or as many Vectors if labels do not fill them
    float* by_bias;     // a Vector a label
    float* by_rows;     // a tile
    double value;
};

// Whether labels fill registers.
inline bool filled(std::size_t size) { return size % lanes == 0; }

// The scores of labels that are no entries become their gradients; `valued`: their losses are added
// up.
template <Form form>
__attribute__((always_inline)) inline void negatives(Learning& l, bool valued) {
    alignas(64) float kept[tile];
    for (std::size_t r = 0; r < tile; ++r) kept[r] = r < l.row_count ? 1.f : 0.f;
    Vector total = {};
    for (std::size_t i = 0; i < l.size; ++i) {
        Vector* s = vectors(l.scores + i * tile);
        const float weight = l.label_weights[i];
        for (std::size_t half = 0; half < 2; ++half) {
            if (weight < 0) {
                s[half] = Vector{};
                continue;
            }
            const Integers there = vectors(kept)[half] != 0.f;
            Vector slope = s[half];
            if constexpr (form == Form::softmax) {
                slope = l.number * slope - vectors(l.normalisers)[half];
                exponential(slope);
                slope = slope * vectors(l.masses)[half] * l.number;
            } else {
                if (valued) {
                    Vector value = s[half];
                    Negative<form>::value(value, l.number);
                    total += there ? weight * value : Vector{};
                }
                Negative<form>::slope(slope, l.number);
                slope = weight * slope;
            }
            s[half] = there ? slope : Vector{};
        }
    }
    for (std::size_t k = 0; k < lanes; ++k) l.value += static_cast<double>(total[k]);
}

// Which labels and rows have a gradient that is not zero.
__attribute__((always_inline)) inline void find_active(Learning& l) {
    Integers left = {}, right = {};
    l.active_count = 0;
    for (std::size_t i = 0; i < l.size; ++i) {
        const Vector* g = vectors(l.scores + i * tile);
        const Integers a = g[0] != 0.f, b = g[1] != 0.f;
        left |= a;
        right |= b;
        if (newton::all_bits((a | b) & newton::lane_bits) != 0)
            l.active[l.active_count++] = static_cast<std::uint16_t>(i);
    }
    std::uint32_t bits = newton::all_bits(left & newton::lane_bits) |
                         newton::all_bits(right & newton::lane_bits) << lanes;
    l.rows_active_count = 0;
    for (; bits != 0; bits &= bits - 1)
        l.rows_active[l.rows_active_count++] = static_cast<std::uint16_t>(__builtin_ctz(bits));
}

// One step of turning 16 registers over: blocks of `distance` lanes change places with registers
// that far away.
template <std::size_t distance, std::size_t... lane>
__attribute__((always_inline)) inline void turn_blocks(Vector (&v)[lanes],
                                                       std::index_sequence<lane...>) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < lanes; ++i) {
        if (i & distance) continue;
        const Vector a = v[i], b = v[i + distance];
        v[i] =
            __builtin_shufflevector(a, b, (lane & distance ? lanes + (lane ^ distance) : lane)...);
        v[i + distance] =
            __builtin_shufflevector(a, b, (lane & distance ? lanes + lane : lane ^ distance)...);
    }
}

// (size, tile) to (tile, size).
__attribute__((always_inline)) inline void turn(const float* from, std::size_t size, float* to) {
    constexpr auto all = std::make_index_sequence<lanes>{};
    for (std::size_t i = 0; i < size; i += lanes)
        for (std::size_t half = 0; half < 2; ++half) {
            Vector v[lanes];
#pragma GCC unroll 16
            for (std::size_t k = 0; k < lanes; ++k) v[k] = vectors(from + (i + k) * tile)[half];
            turn_blocks<8>(v, all);
            turn_blocks<4>(v, all);
            turn_blocks<2>(v, all);
            turn_blocks<1>(v, all);
#pragma GCC unroll 16
            for (std::size_t k = 0; k < lanes; ++k)
                *vectors(to + (half * lanes + k) * size + i) = v[k];
        }
}

template <std::size_t side>
struct Backward {
    // The gradient by the rows: what each feature gets from all labels of the group.
    __attribute__((always_inline)) static void to_rows(const Learning& l) {
        std::size_t f = 0;
        for (; f + side <= l.fan_in; f += side) features<side>(l, f);
        for (; f < l.fan_in; ++f) features<1>(l, f);
    }

    // The gradient by the weights, where labels fill registers.
    __attribute__((always_inline)) static void to_weights(const Learning& l) {
        std::size_t i = 0;
        for (; i + 2 * lanes <= l.size; i += 2 * lanes) labels<2>(l, i);
        for (; i < l.size; i += lanes) labels<1>(l, i);
    }

    // Both of a single label.
    __attribute__((always_inline)) static void own(const Learning& l) {
        const Vector left = vectors(l.scores)[0], right = vectors(l.scores)[1];
        const float* rows = l.rows;
        const float* weights = l.weights;
        const std::uint32_t* offsets = l.offsets;
        float* by_rows = l.by_rows;
        Vector* sums = vectors(l.by_weights);
        const std::size_t fan_in = l.fan_in;
#pragma GCC unroll 4
        for (std::size_t f = 0; f < fan_in; ++f) {
            const Vector* x = vectors(rows + offsets[f]);
            Vector* to = vectors(by_rows + offsets[f]);
            sums[f] += x[0] * left + x[1] * right;
            to[0] += left * weights[f];
            to[1] += right * weights[f];
        }
    }

    // The gradient by the weights where labels do not fill registers: one for each weight, whose
    // lanes are rows.
    __attribute__((always_inline)) static void to_lanes(const Learning& l) {
        Vector* sums = vectors(l.by_weights);
        for (std::size_t f = 0; f < l.fan_in; ++f) {
            const Vector* x = vectors(l.rows + l.offsets[f]);
            for (std::size_t a = 0; a < l.active_count; ++a) {
                const std::size_t i = l.active[a];
                const Vector* g = vectors(l.scores + i * tile);
                sums[f * l.size + i] += x[0] * g[0] + x[1] * g[1];
            }
        }
    }

    __attribute__((always_inline)) static void to_bias(const Learning& l) {
        for (std::size_t a = 0; a < l.active_count; ++a) {
            const Vector* g = vectors(l.scores + l.active[a] * tile);
            vectors(l.by_bias)[l.active[a]] += g[0] + g[1];
        }
    }

  private:
    template <std::size_t n>
    __attribute__((always_inline)) static void features(const Learning& l, std::size_t f) {
        Vector sum[n][2] = {};
        const float* w = l.weights + f * l.size;
        for (std::size_t a = 0; a < l.active_count; ++a) {
            const std::size_t i = l.active[a];
            const Vector* g = vectors(l.scores + i * tile);
            const Vector left = g[0], right = g[1];
#pragma GCC unroll 16
            for (std::size_t k = 0; k < n; ++k) {
                sum[k][0] += left * w[k * l.size + i];
                sum[k][1] += right * w[k * l.size + i];
            }
        }
#pragma GCC unroll 16
        for (std::size_t k = 0; k < n; ++k) {
            Vector* to = vectors(l.by_rows + l.offsets[f + k]);
            to[0] += sum[k][0];
            to[1] += sum[k][1];
        }
    }

    template <std::size_t parts>
    __attribute__((always_inline)) static void labels(const Learning& l, std::size_t i) {
        std::size_t f = 0;
        for (; f + side <= l.fan_in; f += side) weights<side, parts>(l, f, i);
        for (; f < l.fan_in; ++f) weights<1, parts>(l, f, i);
    }

    template <std::size_t n, std::size_t parts>
    __attribute__((always_inline)) static void weights(const Learning& l, std::size_t f,
                                                       std::size_t i) {
        Vector sum[n][parts];
        const float* x[n];
        float* out = l.by_weights + f * l.size + i;
#pragma GCC unroll 16
        for (std::size_t k = 0; k < n; ++k) {
            x[k] = l.rows + l.offsets[f + k];
#pragma GCC unroll 16
            for (std::size_t p = 0; p < parts; ++p) sum[k][p] = vectors(out + k * l.size)[p];
        }
        for (std::size_t a = 0; a < l.rows_active_count; ++a) {
            const std::size_t row = l.rows_active[a];
            const Vector* g = vectors(l.turned + row * l.size + i);
            Vector by_score[parts];
#pragma GCC unroll 16
            for (std::size_t p = 0; p < parts; ++p) by_score[p] = g[p];
#pragma GCC unroll 16
            for (std::size_t k = 0; k < n; ++k)
#pragma GCC unroll 16
                for (std::size_t p = 0; p < parts; ++p) sum[k][p] += by_score[p] * x[k][row];
        }
#pragma GCC unroll 16
        for (std::size_t k = 0; k < n; ++k)
#pragma GCC unroll 16
            for (std::size_t p = 0; p < parts; ++p) vectors(out + k * l.size)[p] = sum[k][p];
    }
};

template <std::size_t side>
__attribute__((always_inline)) inline void learn_negatives(Learning& l, Form form, bool valued) {
    switch (form) {
        case Form::logistic:
            return negatives<Form::logistic>(l, valued);
        case Form::squared_hinge:
            return negatives<Form::squared_hinge>(l, valued);
        case Form::focal:
            return negatives<Form::focal>(l, valued);
        case Form::softmax:
            return negatives<Form::softmax>(l, valued);
    }
}

template <std::size_t side>
__attribute__((always_inline)) inline void go_back(Learning& l, bool update) {
    find_active(l);
    if (l.active_count == 0) return;
    if (update && l.by_bias != nullptr) Backward<side>::to_bias(l);
    if (update && l.size == 1) return Backward<side>::own(l);
    Backward<side>::to_rows(l);
    if (!update) return;
    if (filled(l.size)) {
        turn(l.scores, l.size, l.turned);
        Backward<side>::to_weights(l);
    } else {
        Backward<side>::to_lanes(l);
    }
}

// The lanes of registers summed up; there is room for a multiple of 16 of both.
__attribute__((always_inline)) inline void add_lanes(const float* from, std::size_t n, float* to) {
    constexpr auto all = std::make_index_sequence<lanes>{};
    for (std::size_t i = 0; i < n; i += lanes) {
        Vector v[lanes];
#pragma GCC unroll 16
        for (std::size_t k = 0; k < lanes; ++k) v[k] = vectors(from)[i + k];
        turn_blocks<8>(v, all);
        turn_blocks<4>(v, all);
        turn_blocks<2>(v, all);
        turn_blocks<1>(v, all);
#pragma GCC unroll 4
        for (std::size_t half = lanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
            for (std::size_t k = 0; k < half; ++k) v[k] += v[k + half];
        *vectors(to + i) = v[0];
    }
}

using Adding = void (*)(const float*, std::size_t, float*);
inline const Adding sum_lanes = choose<Adding>(
    [](const float* from, std::size_t n, float* to) MEGALABEL_AVX512 { add_lanes(from, n, to); },
    [](const float* from, std::size_t n, float* to) MEGALABEL_AVX2 { add_lanes(from, n, to); },
    [](const float* from, std::size_t n, float* to) { add_lanes(from, n, to); });

using Losses = void (*)(Learning&, Form, bool);
inline const Losses to_gradients = choose<Losses>(
    [](Learning& l, Form form, bool valued)
        MEGALABEL_AVX512 { learn_negatives<8>(l, form, valued); },
    [](Learning& l, Form form, bool valued) MEGALABEL_AVX2 { learn_negatives<2>(l, form, valued); },
    [](Learning& l, Form form, bool valued) { learn_negatives<2>(l, form, valued); });

using Back = void (*)(Learning&, bool);
inline const Back back =
    choose<Back>([](Learning& l, bool update) MEGALABEL_AVX512 { go_back<8>(l, update); },
                 [](Learning& l, bool update) MEGALABEL_AVX2 { go_back<2>(l, update); },
                 [](Learning& l, bool update) { go_back<2>(l, update); });

}  // namespace megalabel::fan_in
