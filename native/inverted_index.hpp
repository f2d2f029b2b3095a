// Exact nearest neighbours by dot product.
//
// The index is plain arrays: for each term its postings (documents, rising, and their weights) and
// its largest weight; for each document its own row, and how much of its length is in common terms.
// A search adds up postings term by term, rare terms first, and stops before the common ones as
// soon as documents that have only those cannot reach the k-th best (MaxScore; Turtle and Flood
// 1995). Of the documents seen, those that the common terms could still lift among the best are
// scored from their own rows, in double precision and in the order of the row's columns: answers
// depend neither on where a search stopped nor on threads or batches.
//
// All functions may be called from several threads at once.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// Postings: a sparse matrix with a row a term whose columns are documents.
struct Postings {
    std::vector<std::int64_t> starts;
    std::vector<std::int32_t> documents;
    std::vector<float> weights;
    std::vector<float> largest;  // of each term; infinity where a weight is negative: no bound
    std::vector<std::uint8_t> common;  // see CommonTerms; a row a tier
    double norm = 0;                   // the largest Euclidean length of a document
};

// A document holding a rare term has little of its length left for common ones, so that these add
// little to its similarity. Tier j is the terms that more than 1 in 4^(j+1) documents have, the
// last tier all terms; the index keeps the length of each document's part in each tier, in 255ths
// of the longest document's whole length, rounded up.
struct CommonTerms {
    static constexpr std::size_t tiers = 8;
    static constexpr double scale = 255;

    // The first tier of a term that so many of n documents have.
    static std::size_t tier(std::size_t frequency, std::size_t n) {
        std::size_t j = 0;
        while (j + 1 < tiers && frequency <= (n >> (2 * j + 2))) ++j;
        return j;
    }
};

// Turns rows into postings; entries that are zero are left out. A stable counting sort, cut into
// stretches of rows, so the result is the same for any number of threads.
inline Postings build_postings(const SparseRows& rows) {
    rows.check();
    const std::size_t n = rows.size(), width = rows.width;
    // Each stretch counts every term: few enough stretches that counts stay small beside entries.
    const std::size_t entries = rows.columns.size();
    const std::size_t stretches =
        std::min(std::max<std::size_t>(entries >> 20, 4 * loop_threads(n, 1)),
                 entries / (4 * (width + 1)) + 1);
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
    postings.common.resize(CommonTerms::tiers * n);
    parallel_for(n, 4096, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            double squares[CommonTerms::tiers] = {};
            auto [from, to] = rows.row(i);
            for (std::size_t p = from; p < to; ++p) {
                std::size_t term = rows.column(p);
                auto frequency =
                    static_cast<std::size_t>(postings.starts[term + 1] - postings.starts[term]);
                squares[CommonTerms::tier(frequency, n)] +=
                    static_cast<double>(rows.values[p]) * rows.values[p];
            }
            double square = 0;
            for (std::size_t j = 0; j < CommonTerms::tiers; ++j) {
                square += squares[j];
                double share = postings.norm > 0 ? std::sqrt(square) / postings.norm : 0;
                postings.common[j * n + i] = static_cast<std::uint8_t>(
                    std::min(CommonTerms::scale, std::ceil(share * CommonTerms::scale)));
            }
        }
    });
    return postings;
}

// What one thread needs for a search: 8 to 12 bytes a document and 4 a term. Between queries, all
// of `query` and `sums` is zero.
struct SearchScratch {
    struct Term {
        std::size_t begin, end;
        float weight;
        double bound;        // the most that the term can add to a document
        float rest;          // the most that this term and those after it can add
        double rest_length;  // their Euclidean length in the query
        std::size_t frequency() const { return end - begin; }
    };

    std::vector<Term> terms;
    std::vector<float> query;  // the query's weight of every term
    std::vector<float> sums;   // of the documents seen so far; 0: not seen
    std::vector<std::int32_t> seen;
    std::size_t seen_count = 0;
    std::vector<double> exact_sums;  // for queries or terms with negative weights
    Best best, leaders;
};

class Search {
  public:
    Search(const SparseRows& postings, std::span<const float> largest,
           std::span<const std::uint8_t> common, const SparseRows& documents, double norm,
           const SparseRows& queries, std::size_t k, std::span<const std::int64_t> left_out,
           bool prune)
        : postings_(postings),
          largest_(largest),
          common_(common),
          documents_(documents),
          norm_(norm),
          queries_(queries),
          k_(k),
          left_out_(left_out),
          prune_(prune) {
        postings.check();
        documents.check();
        queries.check();
        if (k == 0) throw std::invalid_argument("k must be at least 1");
        if (postings.size() != queries.width || largest.size() != queries.width ||
            documents.width != queries.width || postings.width != documents.size() ||
            common.size() != CommonTerms::tiers * documents.size())
            throw std::invalid_argument("the arrays of the index differ in their sizes");
        if (!left_out.empty() && left_out.size() != queries.size())
            throw std::invalid_argument("one document a query is to be left out, or none at all");
        row_cost_ = documents.columns.size() / (documents.size() + 1) + 8;
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
        const std::int64_t self = left_out_.empty() ? -1 : left_out_[i];
        scratch.best.reset(k_);
        auto [from, to] = queries_.row(i);
        if (collect_terms(from, to, scratch) && prune_) {
            for (std::size_t p = from; p < to; ++p)
                scratch.query[queries_.column(p)] = queries_.values[p];
            search(self, scratch);
            for (std::size_t p = from; p < to; ++p) scratch.query[queries_.column(p)] = 0;
        } else {
            exhaust(self, scratch);
        }
        scratch.best.write(out, i);
    }

    // The query's terms in the order of their columns; false if a weight is negative.
    bool collect_terms(std::size_t from, std::size_t to, SearchScratch& scratch) const {
        scratch.terms.clear();
        bool bounded = true;
        for (std::size_t p = from; p < to; ++p) {
            std::size_t term = queries_.column(p);
            auto [begin, end] = postings_.row(term);
            float weight = queries_.values[p];
            if (begin == end || weight == 0) continue;
            double bound = static_cast<double>(weight) * largest_[term];
            bounded = bounded && weight > 0 && bound < std::numeric_limits<double>::infinity();
            scratch.terms.push_back({begin, end, weight, bound, 0, 0});
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
        auto& terms = scratch.terms;
        order_terms(terms);
        // What rounding may take from a sum over the query's terms.
        const float slack = 1 + static_cast<float>(terms.size() + 8) * FLT_EPSILON;
        float bar = 0;
        std::size_t added = 0;  // postings since the bar was last looked for
        auto next = terms.begin();
        for (; next != terms.end(); ++next) {
            // Looking for a higher bar costs a pass over the documents seen and k rows.
            if (added + next->frequency() > 2 * (scratch.seen_count + k_ * row_cost_)) {
                bar = std::max(bar, reached_by_k(self, next->rest, scratch));
                added = 0;
            }
            if (next->rest * slack < bar) break;
            admit(*next, scratch);
            added += next->frequency();
        }
        if (next == terms.end()) bar = std::max(bar, reached_by_k(self, 0, scratch));
        finish(self, bar, slack, Rest(*this, terms, next), scratch);
    }

    // What the terms from `next` on can add to a document.
    class Rest {
      public:
        Rest(const Search& search, const std::vector<SearchScratch::Term>& terms,
             std::vector<SearchScratch::Term>::const_iterator next) {
            const std::size_t n = search.documents_.size();
            common_ = search.common_.data();
            if (next == terms.end()) return;
            common_ += CommonTerms::tier(next->frequency(), n) * n;
            most_ = next->rest;
            step_ = static_cast<float>(next->rest_length * search.norm_ / CommonTerms::scale);
        }
        float operator()(std::size_t document) const {
            return std::min(most_, step_ * static_cast<float>(common_[document]));
        }

      private:
        float most_ = 0, step_ = 0;
        const std::uint8_t* common_;
    };

    // Rare terms first; and for every term the most that it and those after it can add: the sum of
    // their bounds or, by Cauchy and Schwarz, their length times that of the longest document.
    void order_terms(std::vector<SearchScratch::Term>& terms) const {
        std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) {
            return a.frequency() != b.frequency() ? a.frequency() < b.frequency()
                                                  : a.begin < b.begin;
        });
        double bound = 0, square = 0;
        for (auto term = terms.rbegin(); term != terms.rend(); ++term) {
            bound += term->bound;
            square += static_cast<double>(term->weight) * term->weight;
            term->rest_length = std::sqrt(square);
            term->rest = static_cast<float>(std::min(bound, term->rest_length * norm_));
        }
    }

    // Adds a term to the sums of its documents. The smallest normal number is added along, so that
    // a document once seen has a sum above zero.
    void admit(const SearchScratch::Term& term, SearchScratch& scratch) const {
        const std::size_t most = scratch.seen_count + term.frequency();
        if (scratch.seen.size() < most) scratch.seen.resize(most);
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

    // A similarity that k documents reach: the lowest of the k with the largest sums so far; or 0
    // where those sums are too low for the bar to come above `rest`, what is still to be added.
    float reached_by_k(std::int64_t self, float rest, SearchScratch& scratch) const {
        if (scratch.seen_count < k_) return 0;
        scratch.leaders.reset(k_);
        for (std::size_t s = 0; s < scratch.seen_count; ++s) {
            std::int32_t document = scratch.seen[s];
            if (document != self)
                scratch.leaders.offer(scratch.sums[static_cast<std::size_t>(document)], document);
        }
        const auto& leaders = scratch.leaders.unsorted();
        if (leaders.size() < k_) return 0;
        if (scratch.leaders.bar() < rest / 2) return 0;
        float lowest = std::numeric_limits<float>::infinity();
        for (const auto& leader : leaders)
            lowest = std::min(lowest, score(static_cast<std::size_t>(leader.id), scratch));
        return lowest;
    }

    // Scores the documents seen that can reach the bar with the most that is still to be added to
    // them, and clears the sums.
    void finish(std::int64_t self, float bar, float slack, Rest rest,
                SearchScratch& scratch) const {
        std::size_t kept = 0;
        for (std::size_t s = 0; s < scratch.seen_count; ++s) {
            std::int32_t document = scratch.seen[s];
            float& sum = scratch.sums[static_cast<std::size_t>(document)];
            scratch.seen[kept] = document;
            kept += (sum + rest(static_cast<std::size_t>(document))) * slack >= bar;
            sum = 0;
        }
        scratch.seen_count = 0;
        for (std::size_t s = 0; s < kept; ++s) {
            std::int32_t document = scratch.seen[s];
            if (document != self)
                scratch.best.offer(score(static_cast<std::size_t>(document), scratch), document);
        }
    }

    const SparseRows& postings_;
    std::span<const float> largest_;
    std::span<const std::uint8_t> common_;
    const SparseRows& documents_;
    double norm_;
    const SparseRows& queries_;
    std::size_t k_;
    std::span<const std::int64_t> left_out_;  // a document for each query; or empty: none
    bool prune_;
    std::size_t row_cost_;
};

// The best of some candidates for each query among dense rows: what a matrix product in single
// precision has picked is scored in double and in one order, so that answers do not depend on how
// the product was cut into blocks.
inline Ranked rescore_dense(std::span<const float> queries, std::span<const float> documents,
                            std::size_t width, const SparseRows& candidates, std::size_t k) {
    candidates.check();
    if (k == 0) throw std::invalid_argument("k must be at least 1");
    if (queries.size() != candidates.size() * width || documents.size() != candidates.width * width)
        throw std::invalid_argument("queries, documents and candidates differ in shape");
    Ranked out(candidates.size(), k, candidates.width);
    ScratchPool<Best> pool;
    parallel_for(candidates.size(), 16, [&](std::size_t begin, std::size_t end) {
        pool.with([&](Best& best) {
            for (std::size_t i = begin; i < end; ++i) {
                best.reset(k);
                const float* query = queries.data() + i * width;
                auto [from, to] = candidates.row(i);
                for (std::size_t p = from; p < to; ++p) {
                    const float* document = documents.data() + candidates.column(p) * width;
                    double sum = 0;
                    for (std::size_t j = 0; j < width; ++j)
                        sum += static_cast<double>(query[j]) * document[j];
                    best.offer(static_cast<float>(sum), candidates.columns[p]);
                }
                best.write(out, i);
            }
        });
    });
    return out;
}

}  // namespace megalabel
