// Gradients and curvatures of rows, and their sums by feature and bin.
//
// They are rounded to whole numbers of 30 bits, so that sums are exact: the same whichever thread
// adds which rows, and a histogram less that of one child is that of the other.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "boosting_bins.hpp"
#include "lanes.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::boosting {

struct Slope {
    std::int32_t gradient, curvature;
};

// Of logistic loss at the margins of newton::lanes rows, times their weights and a scale.
MEGALABEL_CLONES inline void find_lanes_slopes(const float* margins, const float* targets,
                                               const float* weights, float scale, Slope* slopes) {
    using newton::Integers, newton::Vector, newton::vectors;
    const Vector margin = *vectors(margins);
    Vector power = margin < 0.f ? margin : -margin;
    newton::exp_negative(power);
    const Vector weight = *vectors(weights) * scale, inverse = 1.f / (1.f + power);
    const Vector share = (margin < 0.f ? power : Vector{} + 1.f) * inverse;
    const Vector gradient = weight * (share - *vectors(targets));
    const Vector curvature = weight * power * inverse * inverse;
    // converting rounds towards zero
    const Vector half = gradient < 0.f ? Vector{} - 0.5f : Vector{} + 0.5f;
    const Integers g = __builtin_convertvector(gradient + half, Integers);
    const Integers h = __builtin_convertvector(curvature + 0.5f, Integers);
    for (std::size_t k = 0; k < newton::lanes; ++k) slopes[k] = {g[k], h[k]};
}

// Sums over rows: gradient, curvature, number; the fourth makes it a register.
typedef std::int64_t Sums __attribute__((vector_size(32)));
using Histogram = Paged<Sums>;

// Adds up the slopes of rows by the bins of their features.
class RowSums {
  public:
    explicit RowSums(const Bins& bins) : bins_(bins) {}

    // Threads take rows in turn, each for a histogram of its own.
    void of(std::span<const std::int32_t> rows, std::span<const Slope> slopes,
            std::span<const std::size_t> features, Histogram& histogram) {
        const std::size_t pieces = (rows.size() + row_piece - 1) / row_piece;
        const auto threads = static_cast<std::size_t>(loop_threads(pieces, 1));
        parts_.resize(std::max(parts_.size(), threads));
        std::vector<Column> columns;
        for (const std::size_t feature : features)
            columns.push_back({feature, bins_.start(feature)});
        std::atomic<std::size_t> next{0};
        parallel_for(threads, 1, [&](std::size_t thread, std::size_t) {
            Histogram& part = thread == 0 ? histogram : parts_[thread];
            part.assign(bins_.total(), Sums{});
            for (std::size_t piece; (piece = next++) < pieces;) {
                const std::size_t begin = piece * row_piece;
                const std::size_t end = std::min(rows.size(), begin + row_piece);
                for (std::size_t row = begin; row < end; row += block)
                    add_block(rows.data() + row, std::min(block, end - row), slopes.data(),
                              bins_.row(0), bins_.width(), columns.data(), columns.size(),
                              part.data());
                end_if_cancelled();
            }
        });
        for (std::size_t t = 1; t < threads; ++t)
            for (std::size_t b = 0; b < histogram.size(); ++b) histogram[b] += parts_[t][b];
    }

  private:
    static constexpr std::size_t block = 256;  // rows whose bins and slopes stay in the first cache

    // Where the bins of a feature are in a row and in a histogram.
    struct Column {
        std::size_t place, start;
    };

    // Four features together, so that rows of one bin after each other need not wait.
    MEGALABEL_CLONES static void add_block(const std::int32_t* rows, std::size_t count,
                                           const Slope* slopes, const std::uint8_t* codes,
                                           std::size_t width, const Column* columns,
                                           std::size_t features, Sums* histogram) {
        const std::uint8_t* of_row[block];
        Sums sums[block];
        for (std::size_t i = 0; i < count; ++i) {
            const auto row = static_cast<std::size_t>(rows[i]);
            of_row[i] = codes + row * width;
            sums[i] = Sums{slopes[row].gradient, slopes[row].curvature, 1, 0};
        }
        std::size_t j = 0;
        for (; j + 4 <= features; j += 4) {
            const Column a = columns[j], b = columns[j + 1], c = columns[j + 2], d = columns[j + 3];
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint8_t* code = of_row[i];
                const Sums sum = sums[i];
                histogram[a.start + code[a.place]] += sum;
                histogram[b.start + code[b.place]] += sum;
                histogram[c.start + code[c.place]] += sum;
                histogram[d.start + code[d.place]] += sum;
            }
        }
        for (; j < features; ++j)
            for (std::size_t i = 0; i < count; ++i)
                histogram[columns[j].start + of_row[i][columns[j].place]] += sums[i];
    }

    const Bins& bins_;
    std::vector<Histogram> parts_;
};

}  // namespace megalabel::boosting
