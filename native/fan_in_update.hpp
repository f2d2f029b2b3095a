// How weights move by their gradient, in place: gradient descent or Adam. Numbers of 16 bits are
// rounded at random, so that small steps are right on average; what is drawn depends on the seed,
// the step, the array and the place alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "fan_in.hpp"

namespace megalabel::fan_in {

enum class Method { sgd, adam };

struct Optimiser {
    Method method;
    float rate, momentum, decay;     // momentum: of sgd; decay: of weights, times the rate
    float beta1, beta2, epsilon;     // of adam
    float correction1, correction2;  // 1 - beta^steps
    std::uint64_t seed, step;
};

// Two words from which those of a group are drawn.
struct Key {
    std::uint32_t low, high;
};

inline Key key_of(std::uint64_t seed, std::uint64_t step, std::uint64_t stream,
                  std::uint64_t group) {
    std::uint64_t x = seed;
    for (const std::uint64_t part : {step, stream, group}) {
        x += (part + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;  // the finaliser of SplitMix64
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32)};
}

__attribute__((always_inline)) inline std::uint32_t draw(Key key, std::uint32_t place) {
    std::uint32_t x = place * 0x9e3779b9u + key.low;
    x = (x ^ x >> 16 ^ key.high) * 0x21f0aaadu;
    x = (x ^ x >> 15) * 0x735a2d97u;
    return x ^ x >> 15;
}

// A neighbour of each number, of which that is the mean; what is not finite stays.
__attribute__((always_inline)) inline void round_all(const float* from, std::size_t n, Key key,
                                                     BFloat* to) {
    for (std::size_t i = 0; i < n; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, from + i, sizeof bits);
        const bool finite = (bits & 0x7f800000) != 0x7f800000;
        bits += finite ? draw(key, static_cast<std::uint32_t>(i)) & 0xffff : 0;
        to[i].bits = static_cast<std::uint16_t>(bits >> 16);
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
    std::size_t count;
    const float* gradient;
    float *weights, *first, *second;  // moments: null if not kept
};

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
    Key key;
    BFloat* to;
};

using MoveAll = void (*)(const Move&, const Optimiser&);
inline const MoveAll move_weights =
    choose<MoveAll>([](const Move& m, const Optimiser& by) MEGALABEL_AVX512 { move_all(m, by); },
                    [](const Move& m, const Optimiser& by) MEGALABEL_AVX2 { move_all(m, by); },
                    [](const Move& m, const Optimiser& by) { move_all(m, by); });

using RoundAll = void (*)(const Rounding&);
inline const RoundAll round_randomly = choose<RoundAll>(
    [](const Rounding& r) MEGALABEL_AVX512 { round_all(r.from, r.count, r.key, r.to); },
    [](const Rounding& r) MEGALABEL_AVX2 { round_all(r.from, r.count, r.key, r.to); },
    [](const Rounding& r) { round_all(r.from, r.count, r.key, r.to); });

// The arrays of a layer that move, all of one type.
template <class T>
struct Moving {
    T *weights, *first, *second;  // moments: null if not kept
    std::size_t connections;      // of a group

    struct Scratch {
        Paged<float> first, second;
    };

    // Move the weights of a group; `weights` are the same in single precision.
    void move(std::size_t group, float* held, const float* gradient, const Optimiser& by,
              Scratch& scratch) const {
        const std::size_t at = group * connections;
        if constexpr (std::is_same_v<T, float>) {
            move_weights({connections, gradient, weights + at, part(first, at), part(second, at)},
                         by);
        } else {
            move_weights({connections, gradient, held, widened(first, at, scratch.first),
                          widened(second, at, scratch.second)},
                         by);
            const float* moved[] = {held, scratch.first.data(), scratch.second.data()};
            T* all[] = {weights, first, second};
            for (std::uint64_t stream = 0; stream < 3; ++stream)
                if (all[stream] != nullptr)
                    round_randomly({moved[stream], connections,
                                    key_of(by.seed, by.step, stream, group), all[stream] + at});
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
