// Labels as vectors: for each label the weighted sum of the rows that carry it, of unit length. And
// products of sparse matrices, of which small values are left out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

// A sparse matrix whose rows are made one by one, by make(scratch, row, columns, values), which
// appends the cells of a row. Memory holds no more than the result, twice while it is joined, and a
// scratch a thread.
template <class Scratch, class Make>
SparseVectors made_by_rows(std::size_t rows, Make&& make) {
    constexpr std::size_t together = 256;  // rows that are kept side by side
    struct Lines {
        std::vector<std::int32_t> columns;
        std::vector<float> values;
    };
    std::vector<Lines> pieces((rows + together - 1) / together);
    SparseVectors result;
    result.starts.resize(rows + 1);
    ScratchPool<Scratch> pool;
    parallel_for(pieces.size(), 1, [&](std::size_t first, std::size_t last) {
        pool.with([&](Scratch& scratch) {
            for (std::size_t piece = first; piece < last; ++piece) {
                Lines lines;
                const std::size_t end = std::min(rows, (piece + 1) * together);
                for (std::size_t row = piece * together; row < end; ++row) {
                    const std::size_t before = lines.columns.size();
                    make(scratch, row, lines.columns, lines.values);
                    result.starts[row + 1] =
                        static_cast<std::int64_t>(lines.columns.size() - before);
                }
                pieces[piece] = {{lines.columns.begin(), lines.columns.end()},
                                 {lines.values.begin(), lines.values.end()}};
            }
        });
    });
    std::partial_sum(result.starts.begin(), result.starts.end(), result.starts.begin());
    result.columns.reserve(static_cast<std::size_t>(result.starts.back()));
    result.values.reserve(result.columns.capacity());
    for (auto& piece : pieces) {
        result.columns.insert(result.columns.end(), piece.columns.begin(), piece.columns.end());
        result.values.insert(result.values.end(), piece.values.begin(), piece.values.end());
        piece = {};
    }
    return result;
}

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

    // Selects the `keep` heaviest entries, to be scaled to unit length: how many are not zero then.
    std::size_t select(std::size_t keep) {
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
        scale_ = squares > 0 ? 1 / std::sqrt(squares) : 0;
        std::size_t count = 0;
        for (std::int32_t c : kept_) count += value(c) != 0;
        return count;
    }

    // Writes what was selected.
    void write(std::int32_t* columns, float* values) const {
        for (std::int32_t c : kept_) {
            if (value(c) == 0) continue;
            *columns++ = c;
            *values++ = value(c);
        }
    }

    // Adds to a line of the result, by column, what is not zero and at least `least` in size. What
    // was summed is forgotten.
    void take(float least, std::vector<std::int32_t>& columns, std::vector<float>& values) {
        kept_.clear();
        for (std::int32_t c : touched_) {
            const auto sum = static_cast<float>(sums_[static_cast<std::size_t>(c)]);
            if (sum != 0 && std::abs(sum) >= least) kept_.push_back(c);
        }
        std::sort(kept_.begin(), kept_.end());
        for (std::int32_t c : kept_) {
            columns.push_back(c);
            values.push_back(static_cast<float>(sums_[static_cast<std::size_t>(c)]));
        }
        clear();
    }

    void clear() {
        for (std::int32_t c : touched_) {
            sums_[static_cast<std::size_t>(c)] = 0;
            seen_[static_cast<std::size_t>(c)] = 0;
        }
        touched_.clear();
    }

  private:
    static double square(double x) { return x * x; }
    float value(std::int32_t column) const {
        return static_cast<float>(scale_ * sums_[static_cast<std::size_t>(column)]);
    }

    void order_touched() {
        if (touched_.size() < seen_.size() / 16) {
            std::sort(touched_.begin(), touched_.end());
            return;
        }
        touched_.clear();  // so many that looking at all columns is quicker than sorting
        for (std::size_t c = 0; c < seen_.size(); ++c)
            if (seen_[c]) touched_.push_back(static_cast<std::int32_t>(c));
    }

    double scale_ = 0;
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
    if (weights.width != X.size())
        throw std::invalid_argument("weights are of another number of rows");
    ScratchPool<RowSum> scratch;
    const auto for_sums = [&](auto&& use) {  // use(label, sum)
        parallel_for(weights.size(), 16, [&](std::size_t first, std::size_t last) {
            scratch.with([&](RowSum& sum) {
                for (std::size_t label = first; label < last; ++label) {
                    auto [begin, end] = weights.row(label);
                    for (std::size_t p = begin; p < end; ++p)
                        sum.add(X, weights.column(p), weights.values[p]);
                    use(label, sum);
                    sum.clear();
                }
            });
        });
    };
    // Summed twice, which is quick, rather than kept twice: vectors may be larger than X.
    SparseVectors result;
    result.starts.resize(weights.size() + 1);
    for_sums([&](std::size_t label, RowSum& sum) {
        result.starts[label + 1] = static_cast<std::int64_t>(sum.select(keep));
    });
    std::partial_sum(result.starts.begin(), result.starts.end(), result.starts.begin());
    result.columns.resize(static_cast<std::size_t>(result.starts.back()));
    result.values.resize(result.columns.size());
    for_sums([&](std::size_t label, RowSum& sum) {
        sum.select(keep);
        const auto start = static_cast<std::size_t>(result.starts[label]);
        sum.write(result.columns.data() + start, result.values.data() + start);
    });
    return result;
}

// The product of `weights` and X, without values that are smaller than `least`.
inline SparseVectors thin_product(const SparseRows& weights, const SparseRows& X, float least) {
    weights.check();
    X.check();
    if (weights.width != X.size())
        throw std::invalid_argument("weights are of another number of rows");
    return made_by_rows<RowSum>(
        weights.size(), [&](RowSum& sum, std::size_t row, auto& columns, auto& values) {
            const auto [begin, end] = weights.row(row);
            for (std::size_t p = begin; p < end; ++p)
                sum.add(X, weights.column(p), weights.values[p]);
            sum.take(least, columns, values);
        });
}

}  // namespace megalabel
