// What every metric of a ranking is made of: sums of the rows' own values, counts of the labels,
// and the reliability of probabilities. All three can be taken batch by batch and added: the counts
// are integers, and the rows' values are added in the order of rows, so that neither the number of
// threads nor the size of the batches changes a bit. Thread-safe: no state is kept.
#pragma once

#include <bit>
#include <memory>
#include <mutex>

#include "metrics.hpp"

namespace megalabel {

inline void check_cutoffs(std::span<const std::int64_t> cutoffs) {
    if (cutoffs.empty() || cutoffs.front() < 1 ||
        std::adjacent_find(cutoffs.begin(), cutoffs.end(), std::greater_equal<>()) != cutoffs.end())
        throw std::invalid_argument("cutoffs must be positive and rising");
}

// ---------------------------------------------------------------- the rows' own values

// Rows are put into groups of which samples are drawn. While there are few rows each has a group
// of its own; later ones are spread at random, but always in the same way.
inline constexpr std::size_t sample_groups = 4096;

inline std::size_t sample_group(std::uint64_t row) {
    if (row < sample_groups) return row;
    row += 0x9e3779b97f4a7c15;  // splitmix64
    row = (row ^ (row >> 30)) * 0xbf58476d1ce4e5b9;
    row = (row ^ (row >> 27)) * 0x94d049bb133111eb;
    return (row ^ (row >> 31)) % sample_groups;
}

// The sums of all rows so far by group, (sample_groups, size): those `before`, of the rows up to
// `first_row`, and what fill(row, its labels, values) says of each row of this batch.
template <class Fill>
std::vector<double> add_by_group(std::span<const double> before, std::uint64_t first_row,
                                 const Truth& truth, std::size_t size, Fill&& fill) {
    if (before.size() != sample_groups * size)
        throw std::invalid_argument("the sums before do not fit the number of values");
    std::vector<double> sums(before.begin(), before.end());
    constexpr std::size_t chunk = 8192, grain = 256, group_grain = 512;
    std::vector<double> rows(std::min(chunk, truth.rows()) * size);
    std::vector<std::size_t> group(std::min(chunk, truth.rows()));
    for (std::size_t begin = 0; begin < truth.rows(); begin += chunk) {
        const std::size_t count = std::min(chunk, truth.rows() - begin);
        parallel_for(count, grain, [&](std::size_t first, std::size_t last) {
            RowLabels labels(truth);
            for (std::size_t i = first; i < last; ++i) {
                labels.load(begin + i);
                group[i] = sample_group(first_row + begin + i);
                fill(begin + i, labels, std::span<double>(&rows[i * size], size));
            }
        });
        // a group is one thread's, which adds its rows in their order
        parallel_for(sample_groups, group_grain, [&](std::size_t first, std::size_t last) {
            for (std::size_t i = 0; i < count; ++i) {
                if (group[i] < first || group[i] >= last) continue;
                double* total = &sums[group[i] * size];
                const double* row = &rows[i * size];
                for (std::size_t c = 0; c < size; ++c) total[c] += row[c];
            }
        });
    }
    return sums;
}

// What is summed at each cutoff; before these come the number of rows and of positives.
enum class RowTotal : std::size_t {
    hits,
    recall,
    f1,
    ndcg,
    reciprocal_rank,
    any_hit,
    predicted,
    squared_error,
    log_loss,
    gained,
    gained_recall,
    gained_ndcg,
    attainable,
    attainable_recall,
    attainable_ndcg
};
inline constexpr std::size_t row_sum_kinds = 15;
inline constexpr std::size_t row_sums_before = 2;

// One row's values from its ranked labels. Probabilities of 0 and 1 would make a wrong answer
// infinitely bad in log-loss: they are moved inwards by the resolution of float32.
class RowValues {
  public:
    RowValues(const RankedView& ranked, std::span<const float> scores, const Truth& truth,
              std::span<const std::int64_t> cutoffs, std::span<const double> weights)
        : ranked_(ranked), scores_(scores), cutoffs_(cutoffs), weights_(weights) {
        truth.check(ranked.rows);
        check_cutoffs(cutoffs);
        if (!scores.empty() && scores.size() != ranked.ids.size())
            throw std::invalid_argument("ids and scores differ in size");
        if (!weights.empty() && static_cast<std::int64_t>(weights.size()) < ranked.labels)
            throw std::invalid_argument("there are fewer weights than labels");
        // A cutoff beyond the ranking's width finds no more hits, but the ideal goes on.
        width_ = std::min<std::size_t>(ranked.width, cutoffs.back());
        std::size_t most = 0;
        for (std::size_t row = 0; row < ranked.rows; ++row)
            most = std::max<std::size_t>(most, truth.indptr[row + 1] - truth.indptr[row]);
        const std::size_t depth = std::max(width_, std::min<std::size_t>(most, cutoffs.back()));
        discount_.resize(depth);
        ideal_.resize(depth + 1);
        for (std::size_t j = 0; j < depth; ++j) {
            discount_[j] = 1 / std::log2(static_cast<double>(j + 2));
            ideal_[j + 1] = ideal_[j] + discount_[j];
        }
    }

    std::size_t size() const { return row_sums_before + row_sum_kinds * cutoffs_.size(); }

    void fill(std::size_t row, const RowLabels& labels, std::span<double> values) const {
        std::fill(values.begin(), values.end(), 0.0);
        const auto count = static_cast<double>(labels.labels().size());
        values[0] = 1;
        values[1] = count;
        const std::int32_t* ids = ranked_.ids.data() + row * ranked_.width;
        const float* scores = scores_.empty() ? nullptr : scores_.data() + row * ranked_.width;
        double hits = 0, gain = 0, first = 0, made = 0, squares = 0, weight = 0, dcg = 0;
        double likelihood = 1, log_likelihood = 0;  // a product, as logarithms are slow
        std::size_t j = 0;
        for (std::size_t c = 0; c < cutoffs_.size(); ++c) {
            const auto k = static_cast<std::size_t>(cutoffs_[c]);
            for (; j < std::min(k, width_); ++j) {
                if (ids[j] < 0 || ids[j] >= ranked_.labels) continue;
                const bool hit = labels.holds(ids[j]);
                made += 1;
                if (scores != nullptr) {
                    const double p = checked(scores[j]);
                    squares += (p - hit) * (p - hit);
                    likelihood *= std::clamp(hit ? p : 1 - p, margin, 1 - margin);
                    if (likelihood < 0x1p-900) {
                        log_likelihood += std::log(likelihood);
                        likelihood = 1;
                    }
                }
                if (!hit) continue;
                if (hits == 0) first = 1 / static_cast<double>(j + 1);
                hits += 1;
                gain += discount_[j];
                if (weights_.empty()) continue;
                weight += weights_[ids[j]];
                dcg += weights_[ids[j]] * discount_[j];
            }
            put(values, RowTotal::predicted, c, made);
            put(values, RowTotal::squared_error, c, squares);
            put(values, RowTotal::log_loss, c, -log_likelihood - std::log(likelihood));
            if (count == 0) continue;
            const double ideal = ideal_[std::min(k, labels.labels().size())];
            put(values, RowTotal::hits, c, hits);
            put(values, RowTotal::recall, c, hits / count);
            put(values, RowTotal::f1, c, 2 * hits / (static_cast<double>(k) + count));
            put(values, RowTotal::ndcg, c, gain / ideal);
            put(values, RowTotal::reciprocal_rank, c, first);
            put(values, RowTotal::any_hit, c, hits > 0);
            put(values, RowTotal::gained, c, weight);
            put(values, RowTotal::gained_recall, c, weight / count);
            put(values, RowTotal::gained_ndcg, c, dcg / ideal);
        }
        if (!weights_.empty() && count > 0) fill_attainable(labels, values);
    }

  private:
    static constexpr double margin = 0x1p-23;

    static double checked(float score) {
        if (!(score >= 0 && score <= 1))
            throw std::invalid_argument("a score is not a probability");
        return score;
    }

    void put(std::span<double> values, RowTotal kind, std::size_t cutoff, double value) const {
        values[row_sums_before + static_cast<std::size_t>(kind) * cutoffs_.size() + cutoff] = value;
    }

    // The most that could have been gained: the heaviest labels first.
    void fill_attainable(const RowLabels& labels, std::span<double> values) const {
        thread_local std::vector<double> best;
        best.clear();
        for (auto label : labels.labels()) {
            if (label < 0 || static_cast<std::size_t>(label) >= weights_.size())
                throw std::invalid_argument("the truth holds a label without a weight");
            best.push_back(weights_[label]);
        }
        std::sort(best.begin(), best.end(), std::greater<>());
        double weight = 0, dcg = 0;
        std::size_t j = 0;
        for (std::size_t c = 0; c < cutoffs_.size(); ++c) {
            const auto end = std::min(static_cast<std::size_t>(cutoffs_[c]), best.size());
            for (; j < end; ++j) {
                weight += best[j];
                dcg += best[j] * discount_[j];
            }
            put(values, RowTotal::attainable, c, weight);
            put(values, RowTotal::attainable_recall, c, weight / static_cast<double>(best.size()));
            put(values, RowTotal::attainable_ndcg, c, dcg / ideal_[end]);
        }
    }

    const RankedView& ranked_;
    std::span<const float> scores_;
    std::span<const std::int64_t> cutoffs_;
    std::span<const double> weights_;
    std::size_t width_;
    std::vector<double> discount_, ideal_;
};

// The rows' values by group, (sample_groups, 2 + row_sum_kinds * cutoffs). `scores` are
// probabilities or empty; `weights` has a value for every label of ranking and truth, or is empty.
inline std::vector<double> add_row_sums(std::span<const double> before, std::uint64_t first_row,
                                        const RankedView& ranked, std::span<const float> scores,
                                        const Truth& truth, std::span<const std::int64_t> cutoffs,
                                        std::span<const double> weights) {
    const RowValues values(ranked, scores, truth, cutoffs, weights);
    return add_by_group(before, first_row, truth, values.size(),
                        [&](std::size_t row, const RowLabels& labels, std::span<double> into) {
                            values.fill(row, labels, into);
                        });
}

// ---------------------------------------------------------------- the labels' counts

// The cutoff that first takes in each rank.
inline std::vector<std::size_t> cutoff_of_rank(std::span<const std::int64_t> cutoffs,
                                               std::size_t width) {
    std::vector<std::size_t> found(std::min<std::size_t>(width, cutoffs.back()));
    for (std::size_t j = 0, c = 0; j < found.size(); ++j) {
        while (static_cast<std::size_t>(cutoffs[c]) <= j) ++c;
        found[j] = c;
    }
    return found;
}

// How often each of `width` labels was predicted and hit between one cutoff and the next, and how
// many rows carry it: (2 * cutoffs + 1, width), predictions first, then hits, then positives.
inline std::vector<std::int64_t> label_counts(const RankedView& ranked, const Truth& truth,
                                              std::span<const std::int64_t> cutoffs,
                                              std::size_t width) {
    truth.check(ranked.rows);
    check_cutoffs(cutoffs);
    if (ranked.labels < 0 || static_cast<std::size_t>(ranked.labels) > width)
        throw std::invalid_argument("the truth has fewer labels than the ranking");
    if (ranked.rows >= std::size_t{1} << 32)
        throw std::invalid_argument("there are too many rows for one batch");
    const auto bucket = cutoff_of_rank(cutoffs, ranked.width);
    // Each part of the rows has a table of its own, of predictions in the lower and hits in the
    // upper half, so that a label is one access to memory; positives are the last line.
    constexpr std::size_t most_bytes = std::size_t{256} << 20, grain = 1024;
    constexpr std::uint64_t half = 32;
    const std::size_t size = (cutoffs.size() + 1) * width;
    const std::size_t parts =
        std::clamp<std::size_t>(most_bytes / (8 * std::max<std::size_t>(size, 1)), 1,
                                static_cast<std::size_t>(loop_threads(ranked.rows, grain)));
    std::vector<std::vector<std::uint64_t>> tables(parts);
    parallel_for(parts, 1, [&](std::size_t part, std::size_t) {
        auto& table = tables[part];
        table.resize(size);
        RowLabels labels(truth);
        const std::size_t end = ranked.rows * (part + 1) / parts;
        for (std::size_t row = ranked.rows * part / parts; row < end; ++row) {
            if (row % grain == 0) end_if_cancelled();
            labels.load(row);
            const std::int32_t* ids = ranked.ids.data() + row * ranked.width;
            for (std::size_t j = 0; j < bucket.size(); ++j) {
                if (ids[j] < 0 || ids[j] >= ranked.labels) continue;
                table[bucket[j] * width + static_cast<std::size_t>(ids[j])] +=
                    1 + (static_cast<std::uint64_t>(labels.holds(ids[j])) << half);
            }
            for (auto label : labels.labels()) {
                if (label < 0 || static_cast<std::size_t>(label) >= width)
                    throw std::invalid_argument("the truth holds a label beyond its width");
                ++table[cutoffs.size() * width + static_cast<std::size_t>(label)];
            }
        }
    });
    std::vector<std::int64_t> counts((2 * cutoffs.size() + 1) * width);
    parallel_for(size, 1 << 16, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
            std::uint64_t sum = 0;
            for (const auto& table : tables) sum += table[i];
            const bool positives = i >= cutoffs.size() * width;
            const std::uint64_t low = sum & ((std::uint64_t{1} << half) - 1);
            counts[positives ? i + cutoffs.size() * width : i] = static_cast<std::int64_t>(low);
            if (!positives)
                counts[i + cutoffs.size() * width] = static_cast<std::int64_t>(sum >> half);
        }
    });
    return counts;
}

// ---------------------------------------------------------------- reliability

// Confidences in [0, 1] fall into fine cells, 1024 an octave down to 2^-24, where the last one
// takes the rest. Within a cell all have the same exponent, so that the sum of their significands
// is a sum of integers. A cell is split where a bin of equal width ends: its number is that of the
// fine cell plus that of the bin, which names both, as both rise with the confidence.
inline constexpr std::size_t octave_cells = 1024;
inline constexpr std::size_t fine_cells = 24 * octave_cells + 2;
inline constexpr float smallest_confidence = 0x1p-24f;

struct FineCell {
    std::size_t number;
    std::int64_t significand;
};

inline FineCell fine_cell(float confidence) {
    if (confidence < smallest_confidence)
        return {0, std::llrint(std::ldexp(static_cast<double>(confidence), 48))};
    const auto bits = std::bit_cast<std::uint32_t>(confidence);
    constexpr auto first = std::bit_cast<std::uint32_t>(smallest_confidence) >> 13;
    return {(bits >> 13) - first + 1, (bits & 0x7fffff) | 0x800000};
}

// The cell of a confidence, where there are so many bins of equal width.
inline std::size_t cell_number(float confidence, std::size_t bins) {
    if (!(confidence >= 0 && confidence <= 1))
        throw std::invalid_argument("a score is not a probability");
    const auto bin =
        static_cast<std::size_t>(static_cast<double>(confidence) * static_cast<double>(bins));
    return fine_cell(confidence).number + std::min(bin, bins - 1);
}

// The (confidence, hit) pairs between one cutoff and the next by cell: how many there are, their
// summed significands and their hits, (cutoffs, fine_cells + bins - 1, 3). A bin holds its lower
// end, the last one 1 too.
inline std::vector<std::int64_t> reliability_cells(const RankedView& ranked,
                                                   std::span<const float> scores,
                                                   const Truth& truth,
                                                   std::span<const std::int64_t> cutoffs,
                                                   std::size_t bins) {
    truth.check(ranked.rows);
    check_cutoffs(cutoffs);
    if (scores.size() != ranked.ids.size())
        throw std::invalid_argument("ids and scores differ in size");
    if (bins == 0) throw std::invalid_argument("there must be a bin");
    const auto bucket = cutoff_of_rank(cutoffs, ranked.width);
    const std::size_t cells = fine_cells + bins - 1, size = cutoffs.size() * cells * 3;
    // as many tables as threads, handed from piece to piece
    std::mutex mutex;
    std::vector<std::unique_ptr<std::vector<std::int64_t>>> tables;
    const auto take = [&] {
        std::lock_guard lock(mutex);
        if (tables.empty()) return std::make_unique<std::vector<std::int64_t>>(size);
        auto table = std::move(tables.back());
        tables.pop_back();
        return table;
    };
    constexpr std::size_t grain = 1024;
    parallel_for(ranked.rows, grain, [&](std::size_t first, std::size_t last) {
        auto table = take();
        RowLabels labels(truth);
        for (std::size_t row = first; row < last; ++row) {
            labels.load(row);
            for (std::size_t j = 0; j < bucket.size(); ++j) {
                const auto id = ranked.ids[row * ranked.width + j];
                if (id < 0 || id >= ranked.labels) continue;
                const float confidence = scores[row * ranked.width + j];
                const std::size_t cell = cell_number(confidence, bins);
                std::int64_t* counts = table->data() + (bucket[j] * cells + cell) * 3;
                counts[0] += 1;
                counts[1] += fine_cell(confidence).significand;
                counts[2] += labels.holds(id);
            }
        }
        std::lock_guard lock(mutex);
        tables.push_back(std::move(table));
    });
    if (tables.empty()) return std::vector<std::int64_t>(size);
    for (std::size_t t = 1; t < tables.size(); ++t)
        for (std::size_t i = 0; i < size; ++i) (*tables[0])[i] += (*tables[t])[i];
    return std::move(*tables[0]);
}

// Confidences are summed in units of this, as integers: so many that two billion of them fit.
inline constexpr double confidence_unit = 0x1p-32;

// The (confidence, hit) pairs between one cutoff and the next by group of labels: how many there
// are, their summed confidences in units and their hits, (cutoffs, groups, 3).
inline std::vector<std::int64_t> grouped_reliability(const RankedView& ranked,
                                                     std::span<const float> scores,
                                                     const Truth& truth,
                                                     std::span<const std::int64_t> cutoffs,
                                                     std::span<const std::int32_t> group_of,
                                                     std::size_t groups) {
    truth.check(ranked.rows);
    check_cutoffs(cutoffs);
    if (scores.size() != ranked.ids.size())
        throw std::invalid_argument("ids and scores differ in size");
    if (static_cast<std::int64_t>(group_of.size()) < ranked.labels)
        throw std::invalid_argument("there are fewer labels with groups than ranked ones");
    const auto most = static_cast<std::int64_t>(groups);
    if (std::ranges::any_of(group_of, [&](auto g) { return g < 0 || g >= most; }))
        throw std::invalid_argument("a label is of a group that is not there");
    const auto bucket = cutoff_of_rank(cutoffs, ranked.width);
    std::vector<std::int64_t> total(cutoffs.size() * groups * 3);
    std::mutex mutex;
    constexpr std::size_t grain = 1024;
    parallel_for(ranked.rows, grain, [&](std::size_t first, std::size_t last) {
        std::vector<std::int64_t> table(total.size());
        RowLabels labels(truth);
        for (std::size_t row = first; row < last; ++row) {
            labels.load(row);
            for (std::size_t j = 0; j < bucket.size(); ++j) {
                const auto id = ranked.ids[row * ranked.width + j];
                if (id < 0 || id >= ranked.labels) continue;
                const float confidence = scores[row * ranked.width + j];
                if (!(confidence >= 0 && confidence <= 1))
                    throw std::invalid_argument("a score is not a probability");
                const auto group = static_cast<std::size_t>(group_of[id]);
                std::int64_t* counts = table.data() + (bucket[j] * groups + group) * 3;
                counts[0] += 1;
                counts[1] += std::llrint(static_cast<double>(confidence) / confidence_unit);
                counts[2] += labels.holds(id);
            }
        }
        std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < table.size(); ++i) total[i] += table[i];
    });
    return total;
}

}  // namespace megalabel
