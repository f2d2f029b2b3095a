// Rankings against the truth: which of the ranked labels are right. Thread-safe: no state is kept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// A CSR matrix of labels with sorted columns; an entry counts if `positive` is not 0.
struct Truth {
    std::span<const std::int64_t> indptr;
    std::span<const std::int32_t> indices;
    std::span<const std::uint8_t> positive;

    std::size_t rows() const { return indptr.size() - 1; }

    void check(std::size_t expected_rows) const {
        if (indptr.size() != expected_rows + 1)
            throw std::invalid_argument("the truth and the ranking differ in rows");
        if (positive.size() != indices.size())
            throw std::invalid_argument("the truth's indices and values differ in size");
        if (indptr.front() < 0 || !std::is_sorted(indptr.begin(), indptr.end()) ||
            indptr.back() > static_cast<std::int64_t>(indices.size()))
            throw std::invalid_argument("the truth's row pointers are not valid");
    }
};

// The best labels of each row; numbers outside [0, labels) are padding.
struct RankedView {
    std::span<const std::int32_t> ids;
    std::size_t rows, width;
    std::int64_t labels;
};

// The positive labels of one row at a time.
class RowLabels {
  public:
    explicit RowLabels(const Truth& truth) : truth_(truth) {}

    void load(std::size_t row) {
        labels_.clear();
        filter_ = 0;
        for (auto e = truth_.indptr[row]; e < truth_.indptr[row + 1]; ++e) {
            if (!truth_.positive[e]) continue;
            labels_.push_back(truth_.indices[e]);
            filter_ |= bit(truth_.indices[e]);
        }
        if (std::adjacent_find(labels_.begin(), labels_.end(), std::greater_equal<>()) !=
            labels_.end())
            throw std::invalid_argument("the truth's columns must rise along each row");
    }

    // The filter answers for nearly all labels of a row with few positives.
    bool holds(std::int32_t label) const {
        return (filter_ & bit(label)) && std::binary_search(labels_.begin(), labels_.end(), label);
    }

    std::span<const std::int32_t> labels() const { return labels_; }

  private:
    static std::uint64_t bit(std::int32_t label) {
        return std::uint64_t{1} << (static_cast<std::uint32_t>(label) & 63);
    }

    const Truth& truth_;
    std::vector<std::int32_t> labels_;
    std::uint64_t filter_ = 0;
};

// Calls body(row, labels of the row) for all rows, in any order.
template <class Body>
void for_each_row(const Truth& truth, Body&& body) {
    constexpr std::size_t grain = 1024;
    parallel_for(truth.rows(), grain, [&](std::size_t first, std::size_t last) {
        RowLabels labels(truth);
        for (std::size_t row = first; row < last; ++row) {
            labels.load(row);
            body(row, labels);
        }
    });
}

// Whether each of the first k ranked labels of each row is right: 1 or 0, (rows, k).
inline std::vector<std::uint8_t> ranking_hits(const RankedView& ranked, const Truth& truth,
                                              std::size_t k) {
    truth.check(ranked.rows);
    if (k > ranked.width) throw std::invalid_argument("k is larger than the ranking's width");
    std::vector<std::uint8_t> hits(ranked.rows * k);
    for_each_row(truth, [&](std::size_t row, const RowLabels& labels) {
        for (std::size_t j = 0; j < k; ++j) {
            const auto id = ranked.ids[row * ranked.width + j];
            hits[row * k + j] = id >= 0 && id < ranked.labels && labels.holds(id);
        }
    });
    return hits;
}

// The ranking without the labels that `dropped` holds; those behind them move up.
inline Ranked drop_labels(const RankedView& ranked, std::span<const float> scores,
                          const Truth& dropped) {
    dropped.check(ranked.rows);
    if (scores.size() != ranked.ids.size())
        throw std::invalid_argument("ids and scores differ in size");
    Ranked out(ranked.rows, ranked.width, static_cast<std::size_t>(ranked.labels));
    for_each_row(dropped, [&](std::size_t row, const RowLabels& labels) {
        std::size_t place = row * ranked.width;
        const std::size_t begin = place, end = begin + ranked.width;
        for (std::size_t j = begin; j < end; ++j) {
            if (labels.holds(ranked.ids[j])) continue;
            out.ids[place] = ranked.ids[j];
            out.scores[place++] = scores[j];
        }
    });
    return out;
}

}  // namespace megalabel
