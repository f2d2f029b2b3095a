// Labels as vectors: for each label the weighted sum of the rows that carry it, of unit length.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// A sparse matrix by rows, as Python will hold it.
struct SparseVectors {
    std::vector<std::int64_t> starts;
    std::vector<std::int32_t> columns;
    std::vector<float> values;
};

// One dense sum in double, so that neither the order of rows nor their number shows in the result.
class RowSum {
  public:
    void add(const SparseRows& rows, std::size_t row, double weight) {
        if (sums_.size() < rows.width) {
            sums_.resize(rows.width);
            seen_.resize(rows.width);
        }
        auto [begin, end] = rows.row(row);
        for (std::size_t p = begin; p < end; ++p) {
            std::size_t column = rows.column(p);
            if (!seen_[column]) {
                seen_[column] = 1;
                touched_.push_back(static_cast<std::int32_t>(column));
            }
            sums_[column] += weight * rows.values[p];
        }
    }

    // Appends the `keep` heaviest entries as a row of unit length, and is empty again.
    void take(std::size_t keep, SparseVectors& out) {
        order_touched();
        kept_ = touched_;
        if (kept_.size() > keep) {
            auto heavier = [&](std::int32_t a, std::int32_t b) {
                double x = std::abs(sums_[static_cast<std::size_t>(a)]);
                double y = std::abs(sums_[static_cast<std::size_t>(b)]);
                return x > y || (x == y && a < b);
            };
            std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(keep),
                             kept_.end(), heavier);
            kept_.resize(keep);
            std::sort(kept_.begin(), kept_.end());
        }
        double squares = 0;
        for (std::int32_t c : kept_) squares += square(sums_[static_cast<std::size_t>(c)]);
        const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
        for (std::int32_t c : kept_) {
            auto value = static_cast<float>(scale * sums_[static_cast<std::size_t>(c)]);
            if (value == 0) continue;
            out.columns.push_back(c);
            out.values.push_back(value);
        }
        out.starts.push_back(static_cast<std::int64_t>(out.columns.size()));
        for (std::int32_t c : touched_) {
            sums_[static_cast<std::size_t>(c)] = 0;
            seen_[static_cast<std::size_t>(c)] = 0;
        }
        touched_.clear();
    }

  private:
    static double square(double x) { return x * x; }

    void order_touched() {
        if (touched_.size() < seen_.size() / 16) {
            std::sort(touched_.begin(), touched_.end());
            return;
        }
        touched_.clear();  // so many that looking at all columns is quicker than sorting
        for (std::size_t c = 0; c < seen_.size(); ++c)
            if (seen_[c]) touched_.push_back(static_cast<std::int32_t>(c));
    }

    std::vector<double> sums_;
    std::vector<std::uint8_t> seen_;
    std::vector<std::int32_t> touched_, kept_;
};

// For each row of `weights` the sum of the rows of X that it names, cut to the `keep` heaviest
// entries and scaled to unit length. A row without weights stays empty.
inline SparseVectors weighted_sums(const SparseRows& weights, const SparseRows& X,
                                   std::size_t keep) {
    weights.check();
    X.check();
    constexpr std::size_t grain = 16;
    std::vector<SparseVectors> pieces((weights.size() + grain - 1) / grain);
    ScratchPool<RowSum> scratch;
    parallel_for(weights.size(), grain, [&](std::size_t first, std::size_t last) {
        scratch.with([&](RowSum& sum) {
            for (std::size_t label = first; label < last; ++label) {
                auto [begin, end] = weights.row(label);
                for (std::size_t p = begin; p < end; ++p)
                    sum.add(X, weights.column(p), weights.values[p]);
                sum.take(keep, pieces[first / grain]);
            }
        });
    });

    SparseVectors result;
    result.starts.reserve(weights.size() + 1);
    result.starts.push_back(0);
    std::vector<std::size_t> offsets(1, 0);
    for (const SparseVectors& piece : pieces) {
        for (std::int64_t end : piece.starts)
            result.starts.push_back(static_cast<std::int64_t>(offsets.back()) + end);
        offsets.push_back(offsets.back() + piece.columns.size());
    }
    result.columns.resize(offsets.back());
    result.values.resize(offsets.back());
    parallel_for(pieces.size(), 16, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
            SparseVectors piece = std::move(pieces[i]);  // its memory is free after the copy
            std::copy(piece.columns.begin(), piece.columns.end(),
                      result.columns.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
            std::copy(piece.values.begin(), piece.values.end(),
                      result.values.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
        }
    });
    return result;
}

}  // namespace megalabel
