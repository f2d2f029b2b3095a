// Rankings against the truth: which of the ranked labels are right, and the sums that
// instance-wise metrics and reliability are made of. Sums are taken over fixed blocks of rows that
// are added in order, so they do not depend on the number of threads. Thread-safe: no state is
// kept.
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

inline constexpr std::size_t metric_block = 4096;  // rows; part of the result, as sums are rounded

// Calls body(block, row, labels of the row) for all rows, the rows of a block in order.
template <class Body>
void for_each_row(const Truth& truth, Body&& body) {
    const std::size_t n = truth.rows();
    parallel_for((n + metric_block - 1) / metric_block, 1,
                 [&](std::size_t first, std::size_t last) {
                     RowLabels labels(truth);
                     for (std::size_t block = first; block < last; ++block) {
                         const std::size_t end = std::min(n, (block + 1) * metric_block);
                         for (std::size_t row = block * metric_block; row < end; ++row) {
                             labels.load(row);
                             body(block, row, labels);
                         }
                     }
                 });
}

// The sums of all blocks, in order, from `size` sums of each.
inline std::vector<double> add_blocks(std::span<const double> partial, std::size_t size) {
    std::vector<double> total(size);
    for (std::size_t i = 0; i < partial.size(); i += size)
        for (std::size_t j = 0; j < size; ++j) total[j] += partial[i + j];
    return total;
}

// Whether each of the first k ranked labels of each row is right: 1 or 0, (rows, k).
inline std::vector<std::uint8_t> ranking_hits(const RankedView& ranked, const Truth& truth,
                                              std::size_t k) {
    truth.check(ranked.rows);
    if (k > ranked.width) throw std::invalid_argument("k is larger than the ranking's width");
    std::vector<std::uint8_t> hits(ranked.rows * k);
    for_each_row(truth, [&](std::size_t, std::size_t row, const RowLabels& labels) {
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
    for_each_row(dropped, [&](std::size_t, std::size_t row, const RowLabels& labels) {
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

// The (confidence, hit) pairs of the first k ranked labels, by rank and by bins of equal width on
// [0, 1]: how many there are, their confidences and their hits, (k, bins, 3). A bin holds its lower
// end, the last one 1 too.
inline std::vector<double> reliability_sums(const RankedView& ranked, std::span<const float> scores,
                                            const Truth& truth, std::size_t k, std::size_t bins) {
    truth.check(ranked.rows);
    if (scores.size() != ranked.ids.size())
        throw std::invalid_argument("ids and scores differ in size");
    if (k > ranked.width) throw std::invalid_argument("k is larger than the ranking's width");
    if (bins == 0) throw std::invalid_argument("there must be a bin");
    // the three sums of a cell side by side: they are one line of memory
    const std::size_t size = 3 * k * bins;
    const auto scale = static_cast<double>(bins);
    std::vector<double> partial((ranked.rows + metric_block - 1) / metric_block * size);
    for_each_row(truth, [&](std::size_t block, std::size_t row, const RowLabels& labels) {
        const std::int32_t* ids = ranked.ids.data() + row * ranked.width;
        const float* confidences = scores.data() + row * ranked.width;
        double* cells = partial.data() + block * size;
        for (std::size_t j = 0; j < k; ++j, cells += 3 * bins) {
            if (ids[j] < 0 || ids[j] >= ranked.labels) continue;
            const double confidence = confidences[j];
            if (!(confidence >= 0 && confidence <= 1))
                throw std::invalid_argument("a score is not a probability");
            const auto bin = static_cast<std::size_t>(confidence * scale);
            double* sums = cells + 3 * std::min(bin, bins - 1);
            sums[0] += 1;
            sums[1] += confidence;
            if (labels.holds(ids[j])) sums[2] += 1;
        }
    });
    return add_blocks(partial, size);
}

// What ranking_sums gives for each cutoff, summed over rows.
enum class Sum : std::size_t { hits, recall, ndcg, weighted_hits, weighted_best };
inline constexpr std::size_t sum_kinds = 5;

// The sums at each of the rising cutoffs, (sum_kinds, cutoffs). `weights` has a value for every
// label of ranking and truth, or is empty, and then the weighted sums are 0.
inline std::vector<double> ranking_sums(const RankedView& ranked, const Truth& truth,
                                        std::span<const std::int64_t> cutoffs,
                                        std::span<const double> weights) {
    truth.check(ranked.rows);
    if (cutoffs.empty() || cutoffs.front() < 1 ||
        std::adjacent_find(cutoffs.begin(), cutoffs.end(), std::greater_equal<>()) != cutoffs.end())
        throw std::invalid_argument("cutoffs must be positive and rising");
    const bool weighted = !weights.empty();
    if (weighted && static_cast<std::int64_t>(weights.size()) < ranked.labels)
        throw std::invalid_argument("there are fewer weights than labels");

    // A cutoff beyond the ranking's width finds no more hits, but the ideal goes on.
    const std::size_t width = std::min<std::size_t>(ranked.width, cutoffs.back());
    std::size_t most = 0;
    for (std::size_t row = 0; row < ranked.rows; ++row)
        most = std::max<std::size_t>(most, truth.indptr[row + 1] - truth.indptr[row]);
    const std::size_t depth = std::max(width, std::min<std::size_t>(most, cutoffs.back()));
    std::vector<double> discount(depth), ideal(depth + 1);
    for (std::size_t j = 0; j < depth; ++j) {
        discount[j] = 1 / std::log2(static_cast<double>(j + 2));
        ideal[j + 1] = ideal[j] + discount[j];
    }

    const std::size_t size = sum_kinds * cutoffs.size();
    std::vector<double> partial((ranked.rows + metric_block - 1) / metric_block * size);
    for_each_row(truth, [&](std::size_t block, std::size_t row, const RowLabels& labels) {
        const std::size_t count = labels.labels().size();
        if (count == 0) return;
        double* sums = &partial[block * size];
        const auto add = [&](Sum kind, std::size_t cutoff, double value) {
            sums[static_cast<std::size_t>(kind) * cutoffs.size() + cutoff] += value;
        };
        const std::int32_t* ids = ranked.ids.data() + row * ranked.width;
        double found = 0, gain = 0, weight = 0;
        std::size_t j = 0;
        for (std::size_t c = 0; c < cutoffs.size(); ++c) {
            const std::size_t k = cutoffs[c];
            for (; j < std::min(k, width); ++j) {
                if (ids[j] < 0 || ids[j] >= ranked.labels || !labels.holds(ids[j])) continue;
                found += 1;
                gain += discount[j];
                if (weighted) weight += weights[ids[j]];
            }
            add(Sum::hits, c, found);
            add(Sum::recall, c, found / static_cast<double>(count));
            add(Sum::ndcg, c, gain / ideal[std::min(k, count)]);
            add(Sum::weighted_hits, c, weight);
        }
        if (!weighted) return;
        thread_local std::vector<double> best;
        best.clear();
        for (auto label : labels.labels()) {
            if (label < 0 || static_cast<std::size_t>(label) >= weights.size())
                throw std::invalid_argument("the truth holds a label without a weight");
            best.push_back(weights[label]);
        }
        std::sort(best.begin(), best.end(), std::greater<>());
        double attainable = 0;
        j = 0;
        for (std::size_t c = 0; c < cutoffs.size(); ++c) {
            for (; j < std::min<std::size_t>(cutoffs[c], count); ++j) attainable += best[j];
            add(Sum::weighted_best, c, attainable);
        }
    });
    return add_blocks(partial, size);
}

}  // namespace megalabel
