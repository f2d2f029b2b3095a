// Values of many labels side by side, a lane each, and what is done to arrays of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::newton {

inline constexpr std::size_t lanes = 16;
// A value for each lane: one register with AVX-512, two with AVX2.
typedef float Vector __attribute__((vector_size(lanes * sizeof(float)), aligned(4), may_alias));
typedef std::int32_t Integers
    __attribute__((vector_size(lanes * sizeof(std::int32_t)), aligned(4), may_alias));
using Lanes = std::array<double, lanes>;
using Factors = std::array<float, lanes>;

// No Vector straddles two cache lines.
using Buffer = std::vector<float, Pages<float, sizeof(Vector)>>;

inline Vector* vectors(float* p) { return reinterpret_cast<Vector*>(p); }
inline const Vector* vectors(const float* p) { return reinterpret_cast<const Vector*>(p); }

// A bit for each lane.
inline constexpr Integers lane_bits = {1 << 0,  1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                                       1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                       1 << 12, 1 << 13, 1 << 14, 1 << 15};

// Zero in the lanes without their bit.
__attribute__((always_inline)) inline void keep_lanes(std::uint32_t bits, Vector& v) {
    v = ((Integers{} + static_cast<std::int32_t>(bits)) & lane_bits) != 0 ? v : Vector{};
}

// Sets the bit of each lane where the vector is not zero, `shift` places up; `all_bits` brings them
// together.
__attribute__((always_inline)) inline void mark(const Vector& v, int shift, Integers& bits) {
    bits |= (v != 0.f) & (lane_bits << shift);
}
__attribute__((always_inline)) inline std::uint32_t all_bits(const Integers& bits) {
    typedef std::int32_t Eight __attribute__((vector_size(32)));
    typedef std::int32_t Four __attribute__((vector_size(16)));
    Eight eight[2];
    std::memcpy(eight, &bits, sizeof eight);
    eight[0] |= eight[1];
    Four four[2];
    std::memcpy(four, eight, sizeof four);
    four[0] |= four[1];
    return static_cast<std::uint32_t>((four[0][0] | four[0][1]) | (four[0][2] | four[0][3]));
}

// Sums of a * b over n places for every lane; in double every 64 places.
MEGALABEL_CLONES inline void dot(const float* a, const float* b, std::size_t n, double* out) {
    double sum[lanes] = {};
    for (std::size_t j = 0; j < n; j += 64) {
        Vector part = {};
        for (std::size_t q = j; q < std::min(n, j + 64); ++q) part += vectors(a)[q] * vectors(b)[q];
        for (std::size_t k = 0; k < lanes; ++k) sum[k] += part[k];
    }
    for (std::size_t k = 0; k < lanes; ++k) out[k] = sum[k];
}

// y += a * x over n places, a different a for every lane.
MEGALABEL_CLONES inline void add_scaled(const float* a, const float* x, float* y, std::size_t n) {
    const Vector factor = *vectors(a);
    for (std::size_t q = 0; q < n; ++q) vectors(y)[q] += factor * vectors(x)[q];
}

// Some lanes of x to y, over n places.
MEGALABEL_CLONES inline void copy_lanes(std::uint32_t bits, const float* x, float* y,
                                        std::size_t n) {
    const Integers chosen = ((Integers{} + static_cast<std::int32_t>(bits)) & lane_bits) != 0;
    for (std::size_t q = 0; q < n; ++q) vectors(y)[q] = chosen ? vectors(x)[q] : vectors(y)[q];
}

// One step of conjugate gradients over n places: s += a d and r -= a p; r.r for every lane.
MEGALABEL_CLONES inline void advance(const float* a, const float* d, const float* p, float* s,
                                     float* r, std::size_t n, double* rr) {
    const Vector factor = *vectors(a);
    double sum[lanes] = {};
    for (std::size_t j = 0; j < n; j += 64) {
        Vector part = {};
        for (std::size_t q = j; q < std::min(n, j + 64); ++q) {
            vectors(s)[q] += factor * vectors(d)[q];
            const Vector rest = vectors(r)[q] - factor * vectors(p)[q];
            vectors(r)[q] = rest;
            part += rest * rest;
        }
        for (std::size_t k = 0; k < lanes; ++k) sum[k] += part[k];
    }
    for (std::size_t k = 0; k < lanes; ++k) rr[k] = sum[k];
}

// d = r + b * d, and p = d, where the next product starts from (the ridge's part of it).
MEGALABEL_CLONES inline void turn(const float* r, const float* b, float* d, float* p,
                                  std::size_t n) {
    const Vector factor = *vectors(b);
    for (std::size_t q = 0; q < n; ++q)
        vectors(p)[q] = vectors(d)[q] = vectors(r)[q] + factor * vectors(d)[q];
}

// exp(x) for x <= 0, to a few units in the last place: 2^n e^r with |r| <= ln(2)/2.
__attribute__((always_inline)) inline void exp_negative(Vector& x) {
    x = x < -87.f ? Vector{} - 87.f : x;
    const Vector scaled = x * 1.44269504f - 0.5f;
    const Integers n = __builtin_convertvector(scaled, Integers);  // towards zero: rounds x to even
    const Vector whole = __builtin_convertvector(n, Vector);
    const Vector r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Vector p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.f;
    const Integers bits = (n + 127) << 23;
    Vector power;
    std::memcpy(&power, &bits, sizeof power);
    x = p * power;
}

}  // namespace megalabel::newton
