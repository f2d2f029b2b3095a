// Products of dense rows: X W^T in single precision, each cell the same whatever rows and labels
// are beside it.
//
// A cell is summed up in one order: 16 lanes, of which lane j takes the places j, j + 16, ..., then
// the lanes by halves. Cells are made 16 at a time, as 4 rows by 4 labels or as one row by 16
// labels. Every tile is whole: rows end in zeros up to a multiple of 16 places, and blocks in rows
// of zeros, so that there is no other way for what remains.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "chunks.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::products {

inline constexpr std::size_t lanes = 16;  // sums of a cell
inline constexpr std::size_t cells = 16;  // of a tile
inline constexpr std::size_t group = 4;   // rows of a tile that has several

constexpr std::size_t rounded_up(std::size_t n, std::size_t unit) {
    return (n + unit - 1) / unit * unit;
}

// A matrix, row by row.
template <class T>
struct Rows {
    const T* data;
    std::size_t count, width;

    Rows some(std::size_t first, std::size_t most) const {
        return {data + first * width, std::min(most, count - first), width};
    }
};

// What is multiplied at a time. Rows and labels may be read past their count, up to whole tiles.
template <class T>
struct Block {
    const float* rows;  // which end in zeros
    std::size_t row_count, row_stride;
    const T* labels;
    std::size_t label_count, label_stride;
    std::size_t places;  // of labels, a multiple of 16
    const float* rest;   // if any: the places of each label after those, 16 with zeros
    float* out;
    std::size_t out_stride;
};

// The kernel in registers of `width` floats.
template <std::size_t width>
struct Kernel {
    typedef float Register __attribute__((vector_size(width * sizeof(float))));
    static constexpr std::size_t parts = lanes / width;

    // Tiles of several rows are summed up `side` rows by `side` labels at a time: what registers
    // hold.
    template <std::size_t side, class T>
    __attribute__((always_inline)) static void multiply(const Block<T>& block) {
        for (std::size_t row = 0; row < block.row_count; row += group)
            if (row + 1 == block.row_count)
                multiply_group<1, cells, 1, 4>(block, row);
            else
                multiply_group<group, cells / group, side, side>(block, row);
    }

  private:
    // Tiles of `height` rows from `row` on and `length` labels.
    template <std::size_t height, std::size_t length, std::size_t rows, std::size_t labels, class T>
    __attribute__((always_inline)) static void multiply_group(const Block<T>& block,
                                                              std::size_t row) {
        for (std::size_t label = 0; label < block.label_count; label += length) {
            Register sums[cells][parts];
            for (std::size_t r = 0; r < height; r += rows)
                for (std::size_t l = 0; l < length; l += labels)
                    add_up<rows, labels>(block, row + r, label + l, length, sums + r * length + l);
            alignas(64) float tile[cells];
            fold(sums, tile);
            float* out = block.out + row * block.out_stride + label;
            if (row + height <= block.row_count && label + length <= block.label_count) {
#pragma GCC unroll 4
                for (std::size_t r = 0; r < height; ++r)
                    std::memcpy(out + r * block.out_stride, tile + r * length,
                                length * sizeof(float));
            } else {
                const std::size_t there = std::min(length, block.label_count - label);
                for (std::size_t r = 0; r < std::min(height, block.row_count - row); ++r)
                    std::copy_n(tile + r * length, there, out + r * block.out_stride);
            }
        }
    }

    // The sums in lanes of some rows by some labels, of a tile that is `length` labels wide.
    template <std::size_t rows, std::size_t labels, class T>
    __attribute__((always_inline)) static void add_up(const Block<T>& block, std::size_t row,
                                                      std::size_t label, std::size_t length,
                                                      Register (*sums)[parts]) {
        Register sum[rows][labels][parts] = {};
        const float* x = block.rows + row * block.row_stride;
        const T* w = block.labels + label * block.label_stride;
        for (std::size_t j = 0; j < block.places; j += lanes)
            add_step<rows, labels>(x + j, block.row_stride, w + j, block.label_stride, sum);
        if (block.rest != nullptr)
            add_step<rows, labels>(x + block.places, block.row_stride, block.rest + label * lanes,
                                   lanes, sum);
#pragma GCC unroll 16
        for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 16
            for (std::size_t l = 0; l < labels; ++l)
#pragma GCC unroll 16
                for (std::size_t part = 0; part < parts; ++part)
                    sums[r * length + l][part] = sum[r][l][part];
    }

    // The products of 16 places.
    template <std::size_t rows, std::size_t labels, class T>
    __attribute__((always_inline)) static void add_step(const float* x, std::size_t x_stride,
                                                        const T* w, std::size_t w_stride,
                                                        Register (&sum)[rows][labels][parts]) {
#pragma GCC unroll 16
        for (std::size_t part = 0; part < parts; ++part) {
            Register left[rows], right;
#pragma GCC unroll 16
            for (std::size_t r = 0; r < rows; ++r) load(x + r * x_stride + part * width, left[r]);
#pragma GCC unroll 16
            for (std::size_t l = 0; l < labels; ++l) {
                load(w + l * w_stride + part * width, right);
#pragma GCC unroll 16
                for (std::size_t r = 0; r < rows; ++r) sum[r][l][part] += left[r] * right;
            }
        }
    }

    __attribute__((always_inline)) static void load(const float* from, Register& to) {
        std::memcpy(&to, from, sizeof to);
    }
    __attribute__((always_inline)) static void load(const Half* from, Register& to) {
        typedef std::int32_t Integers __attribute__((vector_size(width * sizeof(std::int32_t))));
        std::int32_t signed_bits[width];
        for (std::size_t k = 0; k < width; ++k)
            signed_bits[k] = static_cast<std::int16_t>(from[k].bits);
        Integers bits;
        std::memcpy(&bits, signed_bits, sizeof bits);
        // As `widen` does; the largest exponent stands for what is not finite.
        const Integers shifted = bits << 13 & static_cast<std::int32_t>(0x8fffe000);
        const Integers beyond = ((bits & 0x7c00) == 0x7c00) & 0x7f800000;
        to = reinterpret_cast<Register>(
            reinterpret_cast<Integers>(reinterpret_cast<Register>(shifted) * 0x1p112f) | beyond);
    }

    // The lanes of each cell summed up: the lower half and the upper one, until one is left.
    __attribute__((always_inline)) static void fold(Register (*sums)[parts], float* out) {
        Register folded[cells];
#pragma GCC unroll 16
        for (std::size_t c = 0; c < cells; ++c) {
#pragma GCC unroll 4
            for (std::size_t half = parts / 2; half > 0; half /= 2)
#pragma GCC unroll 4
                for (std::size_t part = 0; part < half; ++part)
                    sums[c][part] += sums[c][part + half];
            folded[c] = sums[c][0];
        }
        merge<width>(folded, std::make_index_sequence<width>{});
        std::memcpy(out, folded, cells * sizeof(float));
    }

    // Registers hold a block of lanes for each of one or more cells: two registers become one, with
    // blocks of half the length.
    template <std::size_t length, std::size_t... lane>
    __attribute__((always_inline)) static void merge(Register* folded,
                                                     std::index_sequence<lane...> all) {
        constexpr std::size_t half = length / 2;
#pragma GCC unroll 16
        for (std::size_t i = 0; i < cells * half / width; ++i) {
            const Register a = folded[2 * i], b = folded[2 * i + 1];
            folded[i] =
                __builtin_shufflevector(a, b, (lane / half * length + lane % half)...) +
                __builtin_shufflevector(a, b, (lane / half * length + lane % half + half)...);
        }
        if constexpr (half > 1) merge<half>(folded, all);
    }
};

template <class T>
using Multiply = void (*)(const Block<T>&);

// The kernel for this processor. By hand and not as clones: they would share one size of tiles.
template <class T>
Multiply<T> multiply_here() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f"))
        return [](const Block<T>& block)
                   __attribute__((target("avx512f"))) { Kernel<16>::multiply<4>(block); };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return [](const Block<T>& block)
                   __attribute__((target("avx2,fma"))) { Kernel<8>::multiply<2>(block); };
#endif
    return [](const Block<T>& block) { Kernel<4>::multiply<2>(block); };
}

template <class T>
inline const Multiply<T> multiply = multiply_here<T>();

// Numbers in single precision.
inline void widen_all(const float* from, std::size_t n, float* to) { std::copy_n(from, n, to); }
MEGALABEL_CLONES inline void widen_all(const Half* from, std::size_t n, float* to) {
    for (std::size_t j = 0; j < n; ++j) {
        const auto bits = std::bit_cast<std::uint32_t>(widen(from[j]));
        // `widen` is for finite numbers: the largest exponent stands for those that are not.
        const bool finite = (from[j].bits & 0x7c00) != 0x7c00;
        to[j] = std::bit_cast<float>(finite ? bits : bits | 0x7f800000);
    }
}

// A copy of the columns from `first` on, with zeros up to 16 columns and `unit` rows or a multiple.
template <class T>
const float* padded(Rows<T> from, std::size_t first, std::size_t unit, Paged<float>& held) {
    const std::size_t width = from.width - first, stride = rounded_up(width, lanes);
    held.resize(rounded_up(from.count, unit) * stride);
    float* to = held.data();
    for (std::size_t i = 0; i < from.count; ++i, to += stride) {
        widen_all(from.data + i * from.width + first, width, to);
        std::fill(to + width, to + stride, 0.f);
    }
    std::fill(to, held.data() + held.size(), 0.f);
    return held.data();
}

// out (rows, labels) = X (rows, width) W (labels, width)^T.
template <class T>
void multiply_all(Rows<float> x, Rows<T> w, float* out) {
    constexpr std::size_t most = std::size_t{1} << 16;  // numbers of each side, in a core's cache
    const std::size_t stride = rounded_up(x.width, lanes);
    const std::size_t size = rounded_up(most / std::max(stride, lanes) + 1, cells);
    const std::size_t across = rounded_up(w.count, size) / size;
    auto fill = [&](std::size_t row, std::size_t label) {
        thread_local Paged<float> held_rows, held_labels;
        const auto rows = x.some(row, size);
        const auto labels = w.some(label, size);
        const float* left = padded(rows, 0, group, held_rows);
        float* to = out + row * w.count + label;
        // Whole tiles are read where they are, but for the last places. Not halves for many rows:
        // each group would widen them anew.
        const bool direct = std::is_same_v<T, float> || rows.count <= group;
        if (direct && labels.count % cells == 0) {
            const std::size_t places = w.width / lanes * lanes;
            const float* rest =
                places < w.width ? padded(labels, places, cells, held_labels) : nullptr;
            multiply<T>({left, rows.count, stride, labels.data, labels.count, w.width, places, rest,
                         to, w.count});
        } else {
            const float* right = padded(labels, 0, cells, held_labels);
            multiply<float>({left, rows.count, stride, right, labels.count, stride, stride, nullptr,
                             to, w.count});
        }
    };
    parallel_for(rounded_up(x.count, size) / size * across, 1,
                 [&](std::size_t begin, std::size_t end) {
                     for (std::size_t piece = begin; piece < end; ++piece)
                         fill(piece / across * size, piece % across * size);
                 });
}

}  // namespace megalabel::products
