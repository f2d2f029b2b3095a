// The rows that labels are trained on, and their products with vectors of many labels side by side
// or of one label.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lanes.hpp"
#include "parallel.hpp"

namespace megalabel::newton {

// Rows and features of one group of labels, renumbered so that both are without gaps; features
// that many rows have come first, where they share cache lines. The first `dense` columns, such as
// those of an embedding, are stored for every row, without column numbers.
struct Rows {
    std::size_t dense = 0;
    std::vector<float> block;  // size x dense
    std::vector<std::int64_t> starts{0};
    // One of the two: 16 bits where they are enough, as the solver waits for memory more than for
    // anything else.
    std::vector<std::int32_t> columns;
    std::vector<std::uint16_t> narrow;
    std::span<const float> values;       // kept by whoever made the rows
    std::vector<std::int32_t> features;  // the original number of each column

    std::size_t size() const { return starts.size() - 1; }
    std::size_t width() const { return features.size(); }
    const float* dense_row(std::size_t i) const { return block.data() + i * dense; }

    // Calls f with a pointer to the columns, of whichever type.
    template <class F>
    void with_columns(const F& f) const {
        if (columns.empty())
            f(narrow.data());
        else
            f(columns.data());
    }
};

// out[r] = <x_row, w> for every listed row and lane; the bias weight comes last in w.
template <class Column>
MEGALABEL_CLONES inline void multiply(const Rows& x, const Column* columns, float bias,
                                      const float* weights, float* out) {
    const Vector* w = vectors(weights);
    const Vector start = bias * w[x.width()];
    const float* values = x.values.data();
    for (std::size_t i = 0; i < x.size(); ++i) {
        Vector even = start, odd = {};
        std::int64_t e = x.starts[i];
        const std::int64_t end = x.starts[i + 1];
        for (; e + 1 < end; e += 2) {
            even += values[e] * w[columns[e]];
            odd += values[e + 1] * w[columns[e + 1]];
        }
        if (e < end) even += values[e] * w[columns[e]];
        vectors(out)[i] = even + odd;
    }
    // four rows for each load of weights
    for (std::size_t i = 0; x.dense && i < x.size(); i += 4) {
        const float* row[4];
        Vector sums[4] = {};
        for (std::size_t r = 0; r < 4; ++r) row[r] = x.dense_row(std::min(i + r, x.size() - 1));
        for (std::size_t j = 0; j < x.dense; ++j)
            for (std::size_t r = 0; r < 4; ++r) sums[r] += row[r][j] * w[j];
        for (std::size_t r = 0; r < 4 && i + r < x.size(); ++r) vectors(out)[i + r] += sums[r];
    }
}

// out += X' coefficients over those listed rows that have a slope in a wanted lane (a bit each);
// coefficients are in the order of the list.
template <class Column>
MEGALABEL_CLONES inline void add(const Rows& x, const Column* columns, float bias,
                                 const std::int32_t* rows, std::size_t count,
                                 const std::uint16_t* sloped, std::uint16_t wanted,
                                 const float* coefficients, float* out) {
    Vector* o = vectors(out);
    Vector offset = {};
    for (std::size_t r = 0; r < count; ++r) {
        if (!(sloped[r] & wanted)) continue;
        const Vector c = vectors(coefficients)[r];
        offset += bias * c;
        const float* dense = x.dense_row(rows[r]);
        for (std::size_t j = 0; j < x.dense; ++j) o[j] += dense[j] * c;
        for (auto e = x.starts[rows[r]]; e < x.starts[rows[r] + 1]; ++e)
            o[columns[e]] += x.values[e] * c;
    }
    o[x.width()] += offset;
}

// out += X' diag(curvature) X direction over those rows, both halves while a row is in cache.
template <class Column>
MEGALABEL_CLONES inline void hessian(const Rows& x, const Column* columns, float bias,
                                     const std::int32_t* rows, std::size_t count,
                                     const std::uint16_t* sloped, std::uint16_t wanted,
                                     const float* curvature, const float* direction, float* out) {
    const Vector* d = vectors(direction);
    Vector* o = vectors(out);
    const Vector start = bias * d[x.width()];
    Vector offset = {};
    const float* values = x.values.data();
    for (std::size_t r = 0; r < count; ++r) {
        if (!(sloped[r] & wanted)) continue;
        const std::int64_t begin = x.starts[rows[r]], end = x.starts[rows[r] + 1];
        Vector even = start, odd = {};
        std::int64_t e = begin;
        for (; e + 1 < end; e += 2) {
            even += values[e] * d[columns[e]];
            odd += values[e + 1] * d[columns[e + 1]];
        }
        if (e < end) even += values[e] * d[columns[e]];
        const float* dense = x.dense_row(rows[r]);
        std::size_t j = 0;
        for (; j + 1 < x.dense; j += 2) {
            even += dense[j] * d[j];
            odd += dense[j + 1] * d[j + 1];
        }
        if (j < x.dense) even += dense[j] * d[j];
        const Vector c = (even + odd) * vectors(curvature)[r];
        offset += bias * c;
        for (j = 0; j < x.dense; ++j) o[j] += dense[j] * c;
        for (e = begin; e < end; ++e) o[columns[e]] += values[e] * c;
    }
    o[x.width()] += offset;
}

// <a, b> over n places, and out += c * a.
__attribute__((always_inline)) inline float dense_product(const float* a, const float* b,
                                                          std::size_t n) {
    Vector sums = {};
    std::size_t j = 0;
    for (; j + lanes <= n; j += lanes) sums += *vectors(a + j) * *vectors(b + j);
    float sum = 0;
    for (; j < n; ++j) sum += a[j] * b[j];
    for (std::size_t k = 0; k < lanes; ++k) sum += sums[k];
    return sum;
}

__attribute__((always_inline)) inline void add_dense(const float* a, std::size_t n, float c,
                                                     float* out) {
    std::size_t j = 0;
    for (; j + lanes <= n; j += lanes) *vectors(out + j) += c * *vectors(a + j);
    for (; j < n; ++j) out[j] += c * a[j];
}

// The same two for one label, whose vectors lie along: out += X' coefficients, and
// out += X' diag(curvature) X direction, over its own rows.
template <class Column>
MEGALABEL_CLONES inline void add_alone(const Rows& x, const Column* columns, float bias,
                                       std::span<const std::int32_t> rows,
                                       const float* coefficients, float* out) {
    const float* values = x.values.data();
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const float c = coefficients[r];
        add_dense(x.dense_row(rows[r]), x.dense, c, out);
        const std::int64_t end = x.starts[rows[r] + 1];
        for (std::int64_t e = x.starts[rows[r]]; e < end; ++e) out[columns[e]] += values[e] * c;
        out[x.width()] += bias * c;
    }
}

template <class Column>
MEGALABEL_CLONES inline void hessian_alone(const Rows& x, const Column* columns, float bias,
                                           std::span<const std::int32_t> rows,
                                           const float* curvature, const float* direction,
                                           float* out) {
    const float* values = x.values.data();
    const float start = bias * direction[x.width()];
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::int64_t begin = x.starts[rows[r]], end = x.starts[rows[r] + 1];
        float sums[4] = {start, 0, 0, 0};
        std::int64_t e = begin;
        for (; e + 3 < end; e += 4)
            for (int j = 0; j < 4; ++j) sums[j] += values[e + j] * direction[columns[e + j]];
        for (; e < end; ++e) sums[0] += values[e] * direction[columns[e]];
        const float* dense = x.dense_row(rows[r]);
        const float c =
            ((sums[0] + sums[1]) + (sums[2] + sums[3]) + dense_product(dense, direction, x.dense)) *
            curvature[r];
        add_dense(dense, x.dense, c, out);
        for (e = begin; e < end; ++e) out[columns[e]] += values[e] * c;
        out[x.width()] += bias * c;
    }
}

}  // namespace megalabel::newton
