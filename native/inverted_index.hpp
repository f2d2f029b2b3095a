// Exact nearest neighbours by dot product, and the labels they vote for.
//
// The index is plain arrays: for each term its postings (documents, rising, and their weights) and
// its largest weight, and beside them the documents' own rows. A search adds up postings term by
// term, terms with the largest possible contribution first (MaxScore; Turtle and Flood 1995), and
// stops taking in documents once those not yet seen cannot reach the k-th best. What is still in
// the running is scored again from its own row, in double precision and in the order of the row's
// columns: answers depend neither on where a search stopped nor on threads or batches.
//
// Every number read from an array is checked before it is used as a position: a damaged model gives
// std::invalid_argument. All functions may be called from several threads at once.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"

namespace megalabel {

// A sparse matrix by rows, as Python holds it.
struct SparseRows {
    std::span<const std::int64_t> starts;  // one more than there are rows
    std::span<const std::int32_t> columns;
    std::span<const float> values;
    std::size_t width;

    std::size_t size() const { return starts.size() - 1; }

    void check() const {
        if (starts.empty()) throw std::invalid_argument("row starts are empty");
        if (columns.size() != values.size())
            throw std::invalid_argument("columns and values differ in length");
    }

    // Where row i begins and ends, once both are known to lie inside the arrays.
    std::pair<std::size_t, std::size_t> row(std::size_t i) const {
        std::int64_t begin = starts[i], end = starts[i + 1];
        if (begin < 0 || end < begin || static_cast<std::size_t>(end) > columns.size())
            throw std::invalid_argument("row " + std::to_string(i) + " lies outside the arrays");
        return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end)};
    }

    std::size_t column(std::size_t position) const {
        auto column = static_cast<std::size_t>(static_cast<std::uint32_t>(columns[position]));
        if (column >= width) [[unlikely]]
            throw std::invalid_argument("column " + std::to_string(columns[position]) +
                                        " is outside the width of " + std::to_string(width));
        return column;
    }
};

// Postings: a sparse matrix with a row a term whose columns are documents.
struct Postings {
    std::vector<std::int64_t> starts;
    std::vector<std::int32_t> documents;
    std::vector<float> weights;
    std::vector<float> largest;  // of each term; infinity where a weight is negative: no bound
    double norm = 0;             // the largest Euclidean length of a document
};

// Ranked results for n rows, k each; unused places hold `none` and -infinity.
struct Ranked {
    std::vector<std::int32_t> ids;
    std::vector<float> scores;

    Ranked(std::size_t n, std::size_t k, std::size_t none)
        : ids(n * k, static_cast<std::int32_t>(none)),
          scores(n * k, -std::numeric_limits<float>::infinity()) {}
};

// The k best of what it is offered, ties to the lower id. Scores that are not positive (or not
// numbers) are refused. Selection is put off until several times k wait, which makes an offer cheap.
class Best {
  public:
    struct Entry {
        float score;
        std::int32_t id;
        bool operator<(const Entry& other) const {
            return score > other.score || (score == other.score && id < other.id);
        }
    };

    void reset(std::size_t k) {
        k_ = k;
        bar_ = 0;
        entries_.clear();
    }

    void offer(float score, std::int32_t id) {
        if (!(score > 0) || score < bar_) return;
        entries_.push_back({score, id});
        if (entries_.size() >= 4 * k_ + 32) select();
    }

    // The score to reach: that of the k-th best, or 0 while there are fewer.
    float bar() {
        select();
        return bar_;
    }
    float settled_bar() const { return bar_; }

    const std::vector<Entry>& sorted() {
        select();
        std::sort(entries_.begin(), entries_.end());
        return entries_;
    }
    const std::vector<Entry>& unsorted() {
        select();
        return entries_;
    }

    void write(Ranked& out, std::size_t row) {
        std::size_t place = row * k_;
        for (const Entry& entry : sorted()) {
            out.ids[place] = entry.id;
            out.scores[place++] = entry.score;
        }
    }

  private:
    void select() {
        if (entries_.size() > k_) {
            auto last = entries_.begin() + static_cast<std::ptrdiff_t>(k_);
            std::nth_element(entries_.begin(), last - 1, entries_.end());
            entries_.erase(last, entries_.end());
            bar_ = entries_.back().score;
        } else if (entries_.size() == k_ && bar_ == 0) {
            bar_ = std::max_element(entries_.begin(), entries_.end())->score;
        }
    }

    std::size_t k_ = 1;
    float bar_ = 0;
    std::vector<Entry> entries_;
};

// Lends scratch memory to the pieces of a loop, so that there is one for each thread that works. A
// piece that throws does not give its scratch back: it may be half used.
template <class Scratch>
class ScratchPool {
  public:
    template <class Body>
    void with(Body&& body) {
        std::unique_ptr<Scratch> scratch;
        {
            std::lock_guard lock(mutex_);
            if (!free_.empty()) {
                scratch = std::move(free_.back());
                free_.pop_back();
            }
        }
        if (!scratch) scratch = std::make_unique<Scratch>();
        body(*scratch);
        std::lock_guard lock(mutex_);
        free_.push_back(std::move(scratch));
    }

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Scratch>> free_;
};

// Turns rows into postings; entries that are zero are left out. A stable counting sort, cut into
// stretches of rows, so the result is the same for any number of threads.
inline Postings build_postings(const SparseRows& rows) {
    rows.check();
    const std::size_t n = rows.size(), width = rows.width;
    // Each stretch counts every term: few enough stretches that counts stay small beside entries.
    const std::size_t stretches =
        std::clamp<std::size_t>(rows.columns.size() / (width + 1), 1, 4 * loop_threads(n, 1));
    const std::size_t stretch = (n + stretches - 1) / stretches;
    std::vector<std::vector<std::int64_t>> counts(stretches);
    std::vector<double> norms(stretches, 0.0);
    parallel_for(stretches, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t s = begin; s < end; ++s) {
            counts[s].assign(width, 0);
            for (std::size_t i = s * stretch; i < std::min(n, (s + 1) * stretch); ++i) {
                auto [from, to] = rows.row(i);
                double square = 0;
                for (std::size_t p = from; p < to; ++p) {
                    double value = rows.values[p];
                    if (value != 0) ++counts[s][rows.column(p)];
                    square += value * value;
                }
                norms[s] = std::max(norms[s], square);
            }
        }
    });
    Postings postings;
    postings.norm = std::sqrt(*std::max_element(norms.begin(), norms.end()));
    postings.starts.resize(width + 1);
    std::int64_t total = 0;
    for (std::size_t t = 0; t < width; ++t) {
        postings.starts[t] = total;
        for (auto& count : counts) {
            std::int64_t place = total;
            total += count[t];
            count[t] = place;
        }
    }
    postings.starts[width] = total;
    postings.documents.resize(static_cast<std::size_t>(total));
    postings.weights.resize(static_cast<std::size_t>(total));
    parallel_for(stretches, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t s = begin; s < end; ++s) {
            for (std::size_t i = s * stretch; i < std::min(n, (s + 1) * stretch); ++i) {
                auto [from, to] = rows.row(i);
                for (std::size_t p = from; p < to; ++p) {
                    if (rows.values[p] == 0) continue;
                    auto place = static_cast<std::size_t>(counts[s][rows.column(p)]++);
                    postings.documents[place] = static_cast<std::int32_t>(i);
                    postings.weights[place] = rows.values[p];
                }
            }
        }
    });
    postings.largest.assign(width, 0.0f);
    parallel_for(width, 1024, [&](std::size_t begin, std::size_t end) {
        for (std::size_t t = begin; t < end; ++t) {
            for (std::int64_t p = postings.starts[t]; p < postings.starts[t + 1]; ++p) {
                float weight = postings.weights[static_cast<std::size_t>(p)];
                postings.largest[t] = weight < 0 ? std::numeric_limits<float>::infinity()
                                                 : std::max(postings.largest[t], weight);
            }
        }
    });
    return postings;
}

// What one thread needs for a search: 8 bytes a document and 4 a term, zero between queries.
struct SearchScratch {
    struct Term {
        std::size_t begin, end;
        float weight;
        double bound;  // the most the term can add to a document
    };

    std::vector<float> query;     // the query's weight of every term
    std::vector<float> sums;      // of the documents seen so far; 0: not seen
    std::vector<std::int32_t> seen;
    std::size_t seen_count = 0;
    std::vector<Term> terms;
    std::vector<float> rest;      // the most that the terms from here on can add
    std::vector<double> exact_sums;  // for queries or terms with negative weights
    Best best, probe;
};

class Search {
  public:
    Search(const SparseRows& postings, std::span<const float> largest, const SparseRows& documents,
           double norm, const SparseRows& queries, std::size_t k, bool exclude_self, bool prune)
        : postings_(postings),
          largest_(largest),
          documents_(documents),
          norm_(norm),
          queries_(queries),
          k_(k),
          exclude_self_(exclude_self),
          prune_(prune) {
        postings.check();
        documents.check();
        queries.check();
        if (k == 0) throw std::invalid_argument("k must be at least 1");
        if (postings.size() != queries.width || largest.size() != queries.width ||
            documents.width != queries.width || postings.width != documents.size())
            throw std::invalid_argument("the arrays of the index differ in their sizes");
    }

    Ranked run() const {
        Ranked out(queries_.size(), k_, documents_.size());
        ScratchPool<SearchScratch> pool;
        parallel_for(queries_.size(), 16, [&](std::size_t begin, std::size_t end) {
            pool.with([&](SearchScratch& scratch) {
                scratch.query.resize(queries_.width);
                scratch.sums.resize(documents_.size());
                for (std::size_t i = begin; i < end; ++i) answer(i, scratch, out);
            });
        });
        return out;
    }

  private:
    void answer(std::size_t i, SearchScratch& scratch, Ranked& out) const {
        const std::int64_t self = exclude_self_ ? static_cast<std::int64_t>(i) : -1;
        scratch.best.reset(k_);
        auto [from, to] = queries_.row(i);
        if (prepare(from, to, scratch) && prune_) {
            for (std::size_t p = from; p < to; ++p)
                scratch.query[queries_.column(p)] = queries_.values[p];
            search(self, scratch);
            for (std::size_t p = from; p < to; ++p) scratch.query[queries_.column(p)] = 0;
        } else {
            exhaust(self, scratch);
        }
        scratch.best.write(out, i);
    }

    // Collects the query's terms in the order of their columns; false if a weight is negative.
    bool prepare(std::size_t from, std::size_t to, SearchScratch& scratch) const {
        scratch.terms.clear();
        bool bounded = true;
        for (std::size_t p = from; p < to; ++p) {
            std::size_t term = queries_.column(p);
            auto [begin, end] = postings_.row(term);
            float weight = queries_.values[p];
            if (begin == end || weight == 0) continue;
            double bound = static_cast<double>(weight) * largest_[term];
            bounded = bounded && weight > 0 && bound < std::numeric_limits<double>::infinity();
            scratch.terms.push_back({begin, end, weight, bound});
        }
        return bounded;
    }

    // Adds every posting, in double and in the order of columns: the sums that `score` would give.
    void exhaust(std::int64_t self, SearchScratch& scratch) const {
        scratch.exact_sums.assign(documents_.size(), 0.0);
        for (const auto& term : scratch.terms) {
            for (std::size_t p = term.begin; p < term.end; ++p)
                scratch.exact_sums[postings_.column(p)] +=
                    static_cast<double>(term.weight) * postings_.values[p];
        }
        for (std::size_t d = 0; d < documents_.size(); ++d) {
            if (static_cast<std::int64_t>(d) != self)
                scratch.best.offer(static_cast<float>(scratch.exact_sums[d]),
                                   static_cast<std::int32_t>(d));
        }
    }

    // A document's similarity, from its own row.
    float score(std::size_t document, const SearchScratch& scratch) const {
        auto [from, to] = documents_.row(document);
        double sum = 0;
        for (std::size_t p = from; p < to; ++p)
            sum += static_cast<double>(scratch.query[documents_.column(p)]) * documents_.values[p];
        return static_cast<float>(sum);
    }

    void search(std::int64_t self, SearchScratch& scratch) const {
        order_terms(scratch);
        const auto& terms = scratch.terms;
        // What rounding may take from a sum of the query's terms.
        const float slack = 1 + static_cast<float>(terms.size() + 8) * FLT_EPSILON;
        float bar = 0;
        std::size_t next = 0;
        while (next < terms.size()) {
            const std::size_t length = terms[next].end - terms[next].begin;
            if (next > 0 && scratch.seen_count >= k_ && length > scratch.seen_count / 2 + 8 * k_)
                bar = std::max(bar, probe(self, scratch));
            if (scratch.rest[next] * slack < bar) break;
            admit(terms[next++], scratch);
        }
        bar = std::max(bar, probe(self, scratch));
        // No document that is still unseen can be among the best. Those seen are finished from
        // their own rows, unless they are so many that adding up another term first is cheaper.
        for (;; ++next) {
            drop(slack, bar, scratch.rest[next], scratch);
            if (next == terms.size() ||
                terms[next].end - terms[next].begin > kRowCost * scratch.seen_count)
                break;
            update(terms[next], scratch);
        }
        const float rest = scratch.rest[next];
        for (std::size_t s = 0; s < scratch.seen_count; ++s) {
            auto document = static_cast<std::size_t>(scratch.seen[s]);
            float most = (scratch.sums[document] + rest) * slack;
            scratch.sums[document] = 0;
            if (most < scratch.best.settled_bar() || static_cast<std::int64_t>(document) == self)
                continue;
            scratch.best.offer(score(document, scratch), scratch.seen[s]);
        }
        scratch.seen_count = 0;
    }

    // By falling bound, and for every place the most that the terms from there on can add: the sum
    // of their bounds or, by Cauchy and Schwarz, their length times that of the longest document.
    void order_terms(SearchScratch& scratch) const {
        auto& terms = scratch.terms;
        std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) {
            return a.bound > b.bound || (a.bound == b.bound && a.begin < b.begin);
        });
        scratch.rest.assign(terms.size() + 1, 0.0f);
        double sum = 0, square = 0;
        for (std::size_t j = terms.size(); j-- > 0;) {
            sum += terms[j].bound;
            square += static_cast<double>(terms[j].weight) * terms[j].weight;
            scratch.rest[j] = static_cast<float>(std::min(sum, std::sqrt(square) * norm_));
        }
    }

    // Adds a term to all its documents. The smallest normal number is added along so that a document
    // once seen has a sum above zero.
    void admit(const SearchScratch::Term& term, SearchScratch& scratch) const {
        const std::size_t length = term.end - term.begin;
        if (scratch.seen.size() < scratch.seen_count + length)
            scratch.seen.resize(scratch.seen_count + length);
        float* sums = scratch.sums.data();
        std::int32_t* seen = scratch.seen.data();
        std::size_t count = scratch.seen_count;
        for (std::size_t p = term.begin; p < term.end; ++p) {
            std::size_t document = postings_.column(p);
            float old = sums[document];
            seen[count] = static_cast<std::int32_t>(document);
            count += old == 0;
            sums[document] = old + (term.weight * postings_.values[p] + FLT_MIN);
        }
        scratch.seen_count = count;
    }

    // Adds a term to those of its documents that are in the running.
    void update(const SearchScratch::Term& term, SearchScratch& scratch) const {
        float* sums = scratch.sums.data();
        for (std::size_t p = term.begin; p < term.end; ++p) {
            std::size_t document = postings_.column(p);
            float old = sums[document];
            sums[document] = old == 0 ? 0 : old + (term.weight * postings_.values[p] + FLT_MIN);
        }
    }

    // A score that k documents reach: that of the k-th best among those with the largest sums.
    float probe(std::int64_t self, SearchScratch& scratch) const {
        scratch.probe.reset(k_);
        for (std::size_t s = 0; s < scratch.seen_count; ++s) {
            std::int32_t document = scratch.seen[s];
            if (document != self)
                scratch.probe.offer(scratch.sums[static_cast<std::size_t>(document)], document);
        }
        const auto& leaders = scratch.probe.unsorted();
        if (leaders.size() < k_) return 0;
        float lowest = std::numeric_limits<float>::infinity();
        for (const auto& leader : leaders)
            lowest = std::min(lowest, score(static_cast<std::size_t>(leader.id), scratch));
        return lowest;
    }

    // Takes documents that cannot reach the bar out of the running.
    void drop(float slack, float bar, float rest, SearchScratch& scratch) const {
        std::size_t kept = 0;
        for (std::size_t s = 0; s < scratch.seen_count; ++s) {
            std::int32_t document = scratch.seen[s];
            float& sum = scratch.sums[static_cast<std::size_t>(document)];
            bool keep = (sum + rest) * slack >= bar;
            scratch.seen[kept] = document;
            kept += keep;
            sum = keep ? sum : 0;
        }
        scratch.seen_count = kept;
    }

    // What finishing a document from its row costs, in postings.
    static constexpr std::size_t kRowCost = 40;

    const SparseRows& postings_;
    std::span<const float> largest_;
    const SparseRows& documents_;
    double norm_;
    const SparseRows& queries_;
    std::size_t k_;
    bool exclude_self_, prune_;
};

}  // namespace megalabel
