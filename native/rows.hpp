// The rows that labels are trained on, and their products with vectors of many labels side by side
// or of one label.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lanes.hpp"
#include "parallel.hpp"

namespace megalabel::newton {

// Columns in 16 bits, and in a list those few that need more: features are numbered by falling
// frequency, so that 65,535 of them make up nearly all values of most texts.
struct MostlyNarrow {
    static constexpr std::uint16_t listed = 65535;
    static constexpr int step_bits = 8;  // the list is entered every so many values
    struct Wide {
        std::int64_t place;
        std::int32_t column;
    };
    const std::uint16_t* narrow;
    const std::uint32_t* entries;
    const Wide* wide;

    std::int32_t operator[](std::int64_t e) const {
        const std::uint16_t column = narrow[e];
        return column != listed ? column : find(e);
    }
    __attribute__((noinline)) std::int32_t find(std::int64_t e) const {
        const Wide* next = wide + entries[e >> step_bits];
        while (next->place != e) ++next;
        return next->column;
    }
};

// Rows and features of one group of labels, renumbered so that both are without gaps; features
// that many rows have come first, where they share cache lines. The first `dense` columns, such as
// those of an embedding, are stored for every row, without column numbers.
struct Rows {
    std::size_t dense = 0;
    std::vector<float> block;  // size x dense
    // One of the two: 16 bits where they are enough, or nearly (`wide`), as the solver waits for
    // memory more than for anything else.
    Paged<std::int32_t> columns;
    Paged<std::uint16_t> narrow;
    std::vector<MostlyNarrow::Wide> wide;
    std::vector<std::uint32_t> wide_entries;
    std::span<const std::int64_t> starts;  // these two are kept by whoever made the rows
    std::span<const float> values;
    std::vector<std::int32_t> features;  // the original number of each column

    std::size_t size() const { return starts.size() - 1; }
    std::size_t width() const { return features.size(); }
    const float* dense_row(std::size_t i) const { return block.data() + i * dense; }

    // Calls f with the columns, of whichever type.
    template <class F>
    void with_columns(const F& f) const {
        if (!columns.empty())
            f(columns.data());
        else if (!wide.empty())
            f(MostlyNarrow{narrow.data(), wide_entries.data(), wide.data()});
        else
            f(narrow.data());
    }

    // Columns of 32 bits into those of 16, if nearly all of them fit.
    void narrow_columns() {
        constexpr auto listed = MostlyNarrow::listed;
        const auto fits = [](std::int32_t column) { return column < listed; };
        const auto fit = std::count_if(columns.begin(), columns.end(), fits);
        if (columns.size() - static_cast<std::size_t>(fit) > columns.size() / 32) return;
        narrow.reserve(columns.size());
        for (std::size_t e = 0; e < columns.size(); ++e) {
            if (!(e & ((1u << MostlyNarrow::step_bits) - 1)))
                wide_entries.push_back(static_cast<std::uint32_t>(wide.size()));
            narrow.push_back(fits(columns[e]) ? static_cast<std::uint16_t>(columns[e]) : listed);
            if (!fits(columns[e])) wide.push_back({static_cast<std::int64_t>(e), columns[e]});
        }
        columns = Paged<std::int32_t>();
    }
};

// Rows whose dense columns are multiplied and then summed while they are in cache.
inline constexpr std::size_t tile = 64;

// Four rows of dense columns at a time, for each load of weights: calls f with them, with their
// places in the list, and with how many there are; the last repeats where there are fewer. Rows
// without a slope in a wanted lane (a bit each) are passed over.
template <class F>
__attribute__((always_inline)) inline void by_fours(const Rows& x, const std::int32_t* rows,
                                                    std::size_t count, const std::uint16_t* sloped,
                                                    std::uint16_t wanted, const F& f) {
    for (std::size_t next = 0; next < count;) {
        const float* dense[4];
        std::size_t places[4], found = 0;
        for (; next < count && found < 4; ++next)
            if (sloped[next] & wanted) places[found++] = next;
        for (std::size_t b = 0; found && b < 4; ++b)
            dense[b] = x.dense_row(rows[places[std::min(b, found - 1)]]);
        if (found) f(dense, places, found);
    }
}

// out = <dense columns, w> of those rows, every lane, in the order of the list.
MEGALABEL_CLONES inline void multiply_dense(const Rows& x, const std::int32_t* rows,
                                            std::size_t count, const std::uint16_t* sloped,
                                            std::uint16_t wanted, const Vector* w, Vector* out) {
    by_fours(x, rows, count, sloped, wanted, [&](auto& dense, auto& places, std::size_t found) {
        Vector sums[4] = {};
        for (std::size_t j = 0; j < x.dense; ++j)
            for (std::size_t b = 0; b < 4; ++b) sums[b] += dense[b][j] * w[j];
        for (std::size_t b = 0; b < found; ++b) out[places[b]] = sums[b];
    });
}

// out += dense columns * coefficients of those rows, every lane; one row after the other, so that
// one with a coefficient of 0 changes nothing.
MEGALABEL_CLONES inline void add_dense(const Rows& x, const std::int32_t* rows, std::size_t count,
                                       const std::uint16_t* sloped, std::uint16_t wanted,
                                       const Vector* coefficients, Vector* out) {
    by_fours(x, rows, count, sloped, wanted, [&](auto& dense, auto& places, std::size_t found) {
        Vector c[4] = {};
        for (std::size_t b = 0; b < found; ++b) c[b] = coefficients[places[b]];
        for (std::size_t j = 0; j < x.dense; ++j) {
            Vector sum = out[j];
            for (std::size_t b = 0; b < 4; ++b) sum += dense[b][j] * c[b];
            out[j] = sum;
        }
    });
}

// Which rows: some in turn, or those of a list.
struct RowsFrom {
    std::size_t first;
    std::size_t operator()(std::size_t r) const { return first + r; }
};
struct ListedRows {
    const std::int32_t* rows;
    std::size_t operator()(std::size_t r) const { return static_cast<std::size_t>(rows[r]); }
};

// out[r] = <x_row, w> for each of some vectors, every lane; rows are `row_of(0)` to
// `row_of(count - 1)`, and the bias weight comes last in w.
template <std::size_t vectors_count, class Columns, class RowOf>
MEGALABEL_CLONES inline void multiply(const Rows& x, Columns columns, float bias,
                                      const std::array<const float*, vectors_count>& weights,
                                      std::size_t count, const RowOf& row_of,
                                      const std::array<float*, vectors_count>& out) {
    const float* values = x.values.data();
    for (std::size_t r = 0; r < count; ++r) {
        Vector even[vectors_count], odd[vectors_count] = {};
        const std::size_t i = row_of(r);
        std::int64_t e = x.starts[i];
        const std::int64_t end = x.starts[i + 1];
        for (std::size_t v = 0; v < vectors_count; ++v)
            even[v] = bias * vectors(weights[v])[x.width()];
        for (; e + 1 < end; e += 2) {
            for (std::size_t v = 0; v < vectors_count; ++v) {
                even[v] += values[e] * vectors(weights[v])[columns[e]];
                odd[v] += values[e + 1] * vectors(weights[v])[columns[e + 1]];
            }
        }
        for (std::size_t v = 0; v < vectors_count; ++v) {
            if (e < end) even[v] += values[e] * vectors(weights[v])[columns[e]];
            vectors(out[v])[r] = even[v] + odd[v];
        }
    }
    // four rows for each load of weights
    for (std::size_t r = 0; x.dense && r < count; r += 4) {
        const float* row[4];
        for (std::size_t b = 0; b < 4; ++b)
            row[b] = x.dense_row(row_of(std::min(r + b, count - 1)));
        for (std::size_t v = 0; v < vectors_count; ++v) {
            Vector sums[4] = {};
            for (std::size_t j = 0; j < x.dense; ++j)
                for (std::size_t b = 0; b < 4; ++b) sums[b] += row[b][j] * vectors(weights[v])[j];
            for (std::size_t b = 0; b < 4 && r + b < count; ++b) vectors(out[v])[r + b] += sums[b];
        }
    }
}

// out += X' coefficients over those listed rows that have a slope in a wanted lane (a bit each);
// `coefficients.row(place in the list, out)` gives that of every lane.
template <class Columns, class Coefficients>
MEGALABEL_CLONES inline void add(const Rows& x, Columns columns, float bias,
                                 const std::int32_t* rows, std::size_t count,
                                 const std::uint16_t* sloped, std::uint16_t wanted,
                                 const Coefficients& coefficients, float* out) {
    Vector* o = vectors(out);
    Vector offset = {};
    Vector tiled[tile];
    for (std::size_t first = 0; first < count; first += tile) {
        const std::size_t last = std::min(count, first + tile);
        for (std::size_t r = first; r < last; ++r) {
            if (!(sloped[r] & wanted)) continue;
            Vector c;
            coefficients.row(r, c);
            offset += bias * c;
            for (auto e = x.starts[rows[r]]; e < x.starts[rows[r] + 1]; ++e)
                o[columns[e]] += x.values[e] * c;
            if (x.dense) tiled[r - first] = c;
        }
        if (x.dense) add_dense(x, rows + first, last - first, sloped + first, wanted, tiled, o);
    }
    o[x.width()] += offset;
}

// out += X' diag(curvature) X direction over those rows, both halves while a row is in cache.
template <class Columns, class Curvatures>
MEGALABEL_CLONES inline void hessian(const Rows& x, Columns columns, float bias,
                                     const std::int32_t* rows, std::size_t count,
                                     const std::uint16_t* sloped, std::uint16_t wanted,
                                     const Curvatures& curvatures, const float* direction,
                                     float* out) {
    const Vector* d = vectors(direction);
    Vector* o = vectors(out);
    const Vector start = bias * d[x.width()];
    Vector offset = {};
    const float* values = x.values.data();
    Vector dense[tile];  // first the products of dense columns, then what these are multiplied by
    for (std::size_t first = 0; first < count; first += tile) {
        const std::size_t last = std::min(count, first + tile);
        if (x.dense)
            multiply_dense(x, rows + first, last - first, sloped + first, wanted, d, dense);
        for (std::size_t r = first; r < last; ++r) {
            if (!(sloped[r] & wanted)) continue;
            const std::int64_t begin = x.starts[rows[r]], end = x.starts[rows[r] + 1];
            Vector even = start, odd = {};
            std::int64_t e = begin;
            for (; e + 1 < end; e += 2) {
                even += values[e] * d[columns[e]];
                odd += values[e + 1] * d[columns[e + 1]];
            }
            if (e < end) even += values[e] * d[columns[e]];
            if (x.dense) even += dense[r - first];
            Vector c;
            curvatures.row(r, c);
            c *= even + odd;
            offset += bias * c;
            for (e = begin; e < end; ++e) o[columns[e]] += values[e] * c;
            if (x.dense) dense[r - first] = c;
        }
        if (x.dense) add_dense(x, rows + first, last - first, sloped + first, wanted, dense, o);
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
template <class Columns>
MEGALABEL_CLONES inline void add_alone(const Rows& x, Columns columns, float bias,
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

template <class Columns>
MEGALABEL_CLONES inline void hessian_alone(const Rows& x, Columns columns, float bias,
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
