// Sums of weighted outer products of rows, as Newton's method for regressions takes them. BLAS
// would do, but its threads wait for each other in loops, which takes many times as long beside
// other work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"

namespace megalabel {

namespace detail {

// Adds to the upper triangle of `sums`. Zeros of a row are passed over.
MEGALABEL_CLONES inline void add_outer(const double* row, std::size_t width, double weight,
                                       double* sums) {
    for (std::size_t i = 0; i < width; ++i) {
        const double scaled = weight * row[i];
        if (scaled == 0) continue;
        double* line = sums + i * width;
        for (std::size_t j = i; j < width; ++j) line[j] += scaled * row[j];
    }
}

}  // namespace detail

// The matrix (width, width) of the sum over rows of weight * row * row transposed. The same for any
// number of threads: rows are summed in blocks, and blocks in their order.
inline std::vector<double> weighted_gram(std::span<const double> rows, std::size_t width,
                                         std::span<const double> weights) {
    if (rows.size() != width * weights.size())
        throw std::invalid_argument("there must be a weight for each row");
    constexpr std::size_t block = 2048;
    const std::size_t n = weights.size(), blocks = (n + block - 1) / block;
    std::vector<std::vector<double>> parts(blocks);
    parallel_for(blocks, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t b = begin; b < end; ++b) {
            parts[b].assign(width * width, 0.0);
            for (std::size_t i = b * block; i < std::min(n, (b + 1) * block); ++i)
                detail::add_outer(rows.data() + i * width, width, weights[i], parts[b].data());
        }
    });
    std::vector<double> sums(width * width, 0.0);
    for (const auto& part : parts)
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += part[i];
    for (std::size_t i = 0; i < width; ++i)
        for (std::size_t j = 0; j < i; ++j) sums[i * width + j] = sums[j * width + i];
    return sums;
}

}  // namespace megalabel
