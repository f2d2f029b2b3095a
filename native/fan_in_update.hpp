// How weights move by their gradient, in place: gradient descent or Adam. Numbers of 16 bits are
// rounded at random, so that small steps are right on average; what is drawn depends on the seed,
// the step, the array and the place alone, and is what steps of torch and of GPUs draw
// (neural/heads/steps/rounding.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "fan_in.hpp"

namespace megalabel::fan_in {

// adam: a second moment of each weight; label_adam: of each label, the mean over its weights.
enum class Method { sgd, adam, label_adam };

struct Optimiser {
    Method method;
    float rate, momentum, decay;     // momentum: of sgd; decay: of weights, times the rate
    float beta1, beta2, epsilon;     // of adam
    float correction1, correction2;  // 1 - beta^steps
    std::uint64_t seed, step;
    std::uint64_t first;  // the number of the first place among all, for what is drawn
};

// What is drawn for a group, of which `row` is the number of the first place.
struct Drawing {
    std::uint64_t seed;
    std::uint32_t row, step, stream;
};

inline constexpr std::size_t drawn_together = 256;

// Numbers of 16 random bits for 256 columns in a row: eight counters of Philox with 7 rounds
// (Salmon et al. 2011) give four words each, and each word eight numbers of a multiplicative
// generator.
__attribute__((always_inline)) inline void draw(const Drawing& by, std::uint32_t block,
                                                std::uint32_t* out) {
    constexpr std::size_t counters = 8, words = 4, turns = 8;
    std::uint32_t x[words][counters];
    for (std::uint32_t i = 0; i < counters; ++i) {
        x[0][i] = by.row;
        x[1][i] = block * counters + i;
        x[2][i] = by.step;
        x[3][i] = by.stream;
    }
    auto low = static_cast<std::uint32_t>(by.seed),
         high = static_cast<std::uint32_t>(by.seed >> 32);
    for (int round = 0; round < 7; ++round) {
        for (std::size_t i = 0; i < counters; ++i) {
            const std::uint64_t c = std::uint64_t{0xcd9e8d57u} * x[2][i];
            const std::uint64_t a = std::uint64_t{0xd2511f53u} * x[0][i];
            x[0][i] = static_cast<std::uint32_t>(c >> 32) ^ x[1][i] ^ low;
            x[1][i] = static_cast<std::uint32_t>(c);
            x[2][i] = static_cast<std::uint32_t>(a >> 32) ^ x[3][i] ^ high;
            x[3][i] = static_cast<std::uint32_t>(a);
        }
        low += 0x9e3779b9u;
        high += 0xbb67ae85u;
    }
    for (std::size_t word = 0; word < words; ++word)
        for (std::size_t i = 0; i < counters; ++i) {
            std::uint32_t factor = 1;
            for (std::size_t turn = 0; turn < turns; ++turn, factor *= 0xadb4a92du)
                *out++ = x[word][i] * factor >> 16;
        }
}

// A neighbour of each number, of which that is the mean; what is not finite stays.
__attribute__((always_inline)) inline void round_all(const float* from, std::size_t n,
                                                     const Drawing& by, BFloat* to) {
    std::uint32_t drawn[drawn_together];
    for (std::size_t first = 0; first < n; first += drawn_together) {
        draw(by, static_cast<std::uint32_t>(first / drawn_together), drawn);
        for (std::size_t i = first; i < std::min(n, first + drawn_together); ++i) {
            std::uint32_t bits;
            std::memcpy(&bits, from + i, sizeof bits);
            const bool finite = (bits & 0x7f800000) != 0x7f800000;
            bits += finite ? drawn[i - first] : 0;
            to[i].bits = static_cast<std::uint16_t>(bits >> 16);
        }
    }
}

// A square root without the care that negative numbers need: 1/sqrt by Newton's method. Zero gives
// zero.
__attribute__((always_inline)) inline float root(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = 0x5f375a86u - (bits >> 1);
    float y;
    std::memcpy(&y, &bits, sizeof y);
    for (int i = 0; i < 3; ++i) y *= 1.5f - 0.5f * x * y * y;
    return x * y;
}

// The numbers of a group, in single precision, and its gradient.
struct Move {
    std::size_t count, size;  // size: of the group
    const float* gradient;
    float *weights, *first, *second;  // moments: null if not kept
    float* squares;                   // of label_adam: the second moments of the labels
    float* paces;                     // room for a number a label
};

__attribute__((always_inline)) inline void find_paces(const Move& m, const Optimiser& by) {
    float* __restrict paces = m.paces;
    for (std::size_t i = 0; i < m.size; ++i) paces[i] = 0;
    for (std::size_t c = 0; c < m.count; c += m.size)
        for (std::size_t i = 0; i < m.size; ++i) paces[i] += m.gradient[c + i] * m.gradient[c + i];
    const float share = static_cast<float>(m.size) / static_cast<float>(std::max(m.count, m.size));
    for (std::size_t i = 0; i < m.size; ++i) {
        float& square = m.squares[i];
        square += (1 - by.beta2) * (share * paces[i] - square);
        paces[i] = 1 / (by.correction1 * (std::sqrt(square / by.correction2) + by.epsilon));
    }
}

__attribute__((always_inline)) inline void move_all(const Move& m, const Optimiser& by) {
    const float* __restrict gradient = m.gradient;
    float* __restrict weights = m.weights;
    float* __restrict first = m.first;
    float* __restrict second = m.second;
    if (by.method == Method::adam) {
        const float pace = 1 / by.correction1, spread = 1 / by.correction2;
        for (std::size_t i = 0; i < m.count; ++i) {
            const float g = gradient[i];
            first[i] = by.beta1 * first[i] + (1 - by.beta1) * g;
            second[i] = by.beta2 * second[i] + (1 - by.beta2) * g * g;
            const float change = pace * first[i] / (root(spread * second[i]) + by.epsilon);
            weights[i] -= by.rate * (change + by.decay * weights[i]);
        }
    } else if (by.method == Method::label_adam) {
        find_paces(m, by);
        const float* __restrict paces = m.paces;
        for (std::size_t c = 0; c < m.count; c += m.size)
            for (std::size_t i = 0; i < m.size; ++i) {
                const std::size_t at = c + i;
                first[at] = by.beta1 * first[at] + (1 - by.beta1) * gradient[at];
                weights[at] -= by.rate * (first[at] * paces[i] + by.decay * weights[at]);
            }
    } else if (first != nullptr) {
        for (std::size_t i = 0; i < m.count; ++i) {
            first[i] = by.momentum * first[i] + (gradient[i] + by.decay * weights[i]);
            weights[i] -= by.rate * first[i];
        }
    } else {
        for (std::size_t i = 0; i < m.count; ++i)
            weights[i] -= by.rate * (gradient[i] + by.decay * weights[i]);
    }
}

struct Rounding {
    const float* from;
    std::size_t count;
    Drawing by;
    BFloat* to;
};

using MoveAll = void (*)(const Move&, const Optimiser&);
inline const MoveAll move_weights =
    choose<MoveAll>([](const Move& m, const Optimiser& by) MEGALABEL_AVX512 { move_all(m, by); },
                    [](const Move& m, const Optimiser& by) MEGALABEL_AVX2 { move_all(m, by); },
                    [](const Move& m, const Optimiser& by) { move_all(m, by); });

using RoundAll = void (*)(const Rounding&);
inline const RoundAll round_randomly = choose<RoundAll>(
    [](const Rounding& r) MEGALABEL_AVX512 { round_all(r.from, r.count, r.by, r.to); },
    [](const Rounding& r) MEGALABEL_AVX2 { round_all(r.from, r.count, r.by, r.to); },
    [](const Rounding& r) { round_all(r.from, r.count, r.by, r.to); });

// The arrays of a layer that move, all of one type.
template <class T>
struct Moving {
    T *weights, *first, *second;    // moments: null if not kept
    float* squares;                 // of label_adam, by place
    std::size_t connections, size;  // of a group

    struct Scratch {
        Paged<float> first, second, paces;
    };

    // Move the weights of a group; `weights` are the same in single precision.
    void move(std::size_t group, float* held, const float* gradient, const Optimiser& by,
              Scratch& scratch) const {
        const std::size_t at = group * connections;
        scratch.paces.resize(size);
        Move move{connections,
                  size,
                  gradient,
                  held,
                  nullptr,
                  nullptr,
                  squares == nullptr ? nullptr : squares + group * size,
                  scratch.paces.data()};
        if constexpr (std::is_same_v<T, float>) {
            move.weights = weights + at;
            move.first = part(first, at);
            move.second = part(second, at);
            move_weights(move, by);
        } else {
            move.first = widened(first, at, scratch.first);
            move.second = widened(second, at, scratch.second);
            move_weights(move, by);
            const auto row = static_cast<std::uint32_t>(by.first + group * size);
            const float* moved[] = {held, scratch.first.data(), scratch.second.data()};
            T* all[] = {weights, first, second};
            for (std::uint32_t stream = 0; stream < 3; ++stream)
                if (all[stream] != nullptr)
                    round_randomly({moved[stream],
                                    connections,
                                    {by.seed, row, static_cast<std::uint32_t>(by.step), stream},
                                    all[stream] + at});
        }
    }

  private:
    static float* part(T* all, std::size_t at) { return all == nullptr ? nullptr : all + at; }
    float* widened(const T* all, std::size_t at, Paged<float>& held) const {
        if (all == nullptr) return nullptr;
        held.resize(connections);
        widen_all(all + at, connections, held.data());
        return held.data();
    }
};

}  // namespace megalabel::fan_in
