// Labels that each look at a few features of a dense row: their weights, and rows side by side.
//
// Labels come in groups. Those of a group share the numbers of their features, in any order and
// perhaps several times, and each has weights of its own; a group may be a single label. The labels
// of a group lie side by side for each feature. A place without a label has the name -1.
//
// Rows are taken in tiles of 32, whose values of a feature lie side by side: so what is gathered is
// whole registers, once for all labels of a group. A score is summed up feature by feature, in
// their order, whatever rows and labels are beside it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>

#include "chunks.hpp"
#include "lanes.hpp"
#include "memory.hpp"
#include "parallel.hpp"
#include "products.hpp"

namespace megalabel::fan_in {

using newton::Integers;
using newton::lanes;
using newton::Vector;
using newton::vectors;

inline constexpr std::size_t tile = 2 * lanes;  // rows side by side

// A number of 16 bits: the upper half of a float.
struct BFloat {
    std::uint16_t bits;
};

inline std::size_t tiles_of(std::size_t rows) { return (rows + tile - 1) / tile; }

inline void widen_all(const float* from, std::size_t n, float* to) { std::copy_n(from, n, to); }
inline void widen_all(const Half* from, std::size_t n, float* to) {
    products::widen_all(from, n, to);
}
MEGALABEL_CLONES inline void widen_all(const BFloat* from, std::size_t n, float* to) {
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t bits = std::uint32_t{from[i].bits} << 16;
        std::memcpy(to + i, &bits, sizeof bits);
    }
}
MEGALABEL_CLONES inline void widen_all(const std::int8_t* from, std::size_t n, float* to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
}

// Numbers times `factor`; the largest of them.
template <class Index>
__attribute__((always_inline)) inline std::uint32_t scale_each(const Index* from, std::size_t n,
                                                               std::uint32_t factor,
                                                               std::uint32_t* to) {
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t number = from[i];
        most = std::max(most, number);
        to[i] = number * factor;
    }
    return most;
}
MEGALABEL_CLONES inline std::uint32_t scale_all(const std::uint16_t* from, std::size_t n,
                                                std::uint32_t factor, std::uint32_t* to) {
    return scale_each(from, n, factor, to);
}
MEGALABEL_CLONES inline std::uint32_t scale_all(const std::uint32_t* from, std::size_t n,
                                                std::uint32_t factor, std::uint32_t* to) {
    return scale_each(from, n, factor, to);
}

// The weights of a group, each times the scale of its label.
MEGALABEL_CLONES inline void multiply_each(float* weights, std::size_t fan_in, std::size_t size,
                                           const float* scales) {
    if (size == 1) {
        const float scale = scales[0];
        for (std::size_t f = 0; f < fan_in; ++f) weights[f] *= scale;
    } else {
        for (std::size_t f = 0; f < fan_in; ++f)
            for (std::size_t i = 0; i < size; ++i) weights[f * size + i] *= scales[i];
    }
}

struct Layer {
    std::variant<const std::uint16_t*, const std::uint32_t*> indices;  // (groups, fan_in)
    // (groups, fan_in, size)
    std::variant<const float*, const Half*, const BFloat*, const std::int8_t*> weights;
    std::span<const float> scales, bias;   // by place; none: 1 and 0
    std::span<const std::int32_t> labels;  // by place
    std::size_t groups, fan_in, size;      // size: of a group
    std::size_t width;                     // of rows
    std::size_t names;                     // labels there are, here or elsewhere

    std::size_t places() const { return groups * size; }
    std::size_t connections() const { return fan_in * size; }  // of a group

    void check() const {
        auto by_place = [&](const char* what, std::size_t found) {
            if (found != 0 && found != places())
                throw std::invalid_argument(std::string(what) + " are " + std::to_string(found) +
                                            " for " + std::to_string(groups) + " groups of " +
                                            std::to_string(size));
        };
        by_place("scales", scales.size());
        by_place("biases", bias.size());
        by_place("labels", labels.size());
        if (labels.size() != places())
            throw std::invalid_argument("a layer of " + std::to_string(places()) +
                                        " places has no labels");
        if (size == 0) throw std::invalid_argument("a group has at least one place");
        if (width >= std::numeric_limits<std::uint32_t>::max() / tile)
            throw std::invalid_argument("rows of " + std::to_string(width) +
                                        " features are too wide");
    }

    // The features of some groups, times `factor`.
    void offsets(std::size_t first, std::size_t count, std::size_t factor,
                 std::uint32_t* to) const {
        const std::uint32_t most = std::visit(
            [&](const auto* from) {
                return scale_all(from + first * fan_in, count * fan_in,
                                 static_cast<std::uint32_t>(factor), to);
            },
            indices);
        if (count * fan_in > 0 && most >= width) [[unlikely]]
            throw std::invalid_argument("a label looks at feature " + std::to_string(most) +
                                        " of " + std::to_string(width));
    }

    // The weights of some groups in single precision: where they are, or in `held`.
    const float* widened(std::size_t first, std::size_t count, Paged<float>& held) const {
        return std::visit(
            [&](const auto* all) -> const float* {
                const auto* from = all + first * connections();
                if constexpr (std::is_same_v<decltype(all), const float*>) {
                    if (scales.empty()) return from;
                }
                held.resize(count * connections());
                widen_all(from, held.size(), held.data());
                if (!scales.empty())
                    for (std::size_t g = 0; g < count; ++g)
                        multiply_each(held.data() + g * connections(), fan_in, size,
                                      scales.data() + (first + g) * size);
                return held.data();
            },
            weights);
    }

    // The label of a place: -1 for none.
    std::int32_t label(std::size_t place) const {
        const std::int32_t label = labels[place];
        if (label >= 0 && static_cast<std::size_t>(label) >= names) [[unlikely]]
            throw std::invalid_argument("a layer names label " + std::to_string(label) + " of " +
                                        std::to_string(names));
        return label;
    }
};

// Dense rows in tiles: the 32 values of a feature side by side, zeros where there is no row.
class Tiles {
  public:
    Tiles(products::Rows<float> rows, std::size_t first, std::size_t count)
        : width_(rows.width), values_(tiles_of(count) * rows.width * tile) {
        parallel_for(tiles_of(count), 1, [&](std::size_t begin, std::size_t end) {
            for (std::size_t t = begin; t < end; ++t)
                fill(rows.some(first + t * tile, std::min(tile, count - t * tile)),
                     values_.data() + t * size());
        });
    }

    std::size_t size() const { return width_ * tile; }  // of a tile
    const float* operator[](std::size_t t) const { return values_.data() + t * size(); }

  private:
    static void fill(products::Rows<float> rows, float* to) {
        for (std::size_t r = 0; r < tile; ++r) {
            const float* row = rows.data + r * rows.width;
            for (std::size_t j = 0; j < rows.width; ++j)
                to[j * tile + r] = r < rows.count ? row[j] : 0.f;
        }
    }

    std::size_t width_;
    Paged<float> values_;
};

// Scores of the places of some groups, for the rows of a tile.
struct Scored {
    const float* rows;
    std::size_t groups, fan_in, size;
    const std::uint32_t* offsets;  // of the features in a tile
    const float* weights;
    const float* bias;  // null: none
    float* out;         // (places, tile)
};

// What is done to a tile, in registers. `side` labels or features at a time: what registers hold.
template <std::size_t side>
struct Kernel {
    __attribute__((always_inline)) static void scores(const Scored& s) {
        if (s.size == 1) {
            std::size_t place = 0;
            for (; place + apart <= s.groups; place += apart) score_apart<apart>(s, place);
            for (; place < s.groups; ++place) score_apart<1>(s, place);
            return;
        }
        for (std::size_t g = 0; g < s.groups; ++g) {
            std::size_t i = 0;
            for (; i + side <= s.size; i += side) score_shared<side>(s, g, i);
            for (; i < s.size; ++i) score_shared<1>(s, g, i);
        }
    }

  private:
    static constexpr std::size_t apart = std::min<std::size_t>(side, 4);

    template <std::size_t n>
    __attribute__((always_inline)) static void score_shared(const Scored& s, std::size_t group,
                                                            std::size_t i) {
        Vector sum[n][2] = {};
        const std::uint32_t* offsets = s.offsets + group * s.fan_in;
        const float* w = s.weights + group * s.fan_in * s.size + i;
        for (std::size_t f = 0; f < s.fan_in; ++f, w += s.size) {
            const Vector* x = vectors(s.rows + offsets[f]);
            const Vector a = x[0], b = x[1];
#pragma GCC unroll 16
            for (std::size_t k = 0; k < n; ++k) {
                sum[k][0] += a * w[k];
                sum[k][1] += b * w[k];
            }
        }
        put<n>(s, group * s.size + i, sum);
    }

    template <std::size_t n>
    __attribute__((always_inline)) static void score_apart(const Scored& s, std::size_t place) {
        Vector sum[n][2] = {};
        const std::uint32_t* offsets = s.offsets + place * s.fan_in;
        const float* w = s.weights + place * s.fan_in;
        for (std::size_t f = 0; f < s.fan_in; ++f) {
#pragma GCC unroll 16
            for (std::size_t k = 0; k < n; ++k) {
                const Vector* x = vectors(s.rows + offsets[k * s.fan_in + f]);
                const float weight = w[k * s.fan_in + f];
                sum[k][0] += x[0] * weight;
                sum[k][1] += x[1] * weight;
            }
        }
        put<n>(s, place, sum);
    }

    template <std::size_t n>
    __attribute__((always_inline)) static void put(const Scored& s, std::size_t place,
                                                   Vector (&sum)[n][2]) {
#pragma GCC unroll 16
        for (std::size_t k = 0; k < n; ++k) {
            const float bias = s.bias == nullptr ? 0.f : s.bias[place + k];
            Vector* out = vectors(s.out + (place + k) * tile);
            out[0] = sum[k][0] + bias;
            out[1] = sum[k][1] + bias;
        }
    }
};

// A function for this processor, of three that take and do the same.
template <class Function>
Function choose([[maybe_unused]] Function avx512, [[maybe_unused]] Function avx2, Function plain) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) return avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2;
#endif
    return plain;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define MEGALABEL_AVX512 __attribute__((target("avx512f")))
#define MEGALABEL_AVX2 __attribute__((target("avx2,fma")))
#else
#define MEGALABEL_AVX512
#define MEGALABEL_AVX2
#endif

using Score = void (*)(const Scored&);
inline const Score score_tile =
    choose<Score>([](const Scored& s) MEGALABEL_AVX512 { Kernel<8>::scores(s); },
                  [](const Scored& s) MEGALABEL_AVX2 { Kernel<2>::scores(s); },
                  [](const Scored& s) { Kernel<2>::scores(s); });

}  // namespace megalabel::fan_in
