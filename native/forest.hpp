// The best labels of several trees, by the mean of their scores (beam.hpp searches each).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "beam.hpp"
#include "chunk_scores.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// The mean over trees of what each found for a query, of labels that a tree did not meet too: they
// count 0 there, or the lowest score that it met where that is below 0. Sum is float, or double for
// scores that may be below 0.
template <class Sum>
class MeanOfTrees {
  public:
    static MeanOfTrees& mine() {
        thread_local MeanOfTrees mean;
        return mean;
    }

    void start(std::size_t trees) {
        trees_ = static_cast<Sum>(trees);
        unmet_ = 0;
        found_.clear();
    }

    void add(std::span<const std::int32_t> labels, std::span<const float> scores,
             std::size_t none) {
        Sum lowest = 0;
        for (std::size_t j = 0; j < labels.size(); ++j)
            if (std::isfinite(scores[j])) lowest = std::min(lowest, Sum{scores[j]});
        unmet_ += lowest / trees_;
        for (std::size_t j = 0; j < labels.size(); ++j)
            if (static_cast<std::size_t>(labels[j]) < none)
                found_.push_back({(scores[j] - lowest) / trees_, labels[j]});
    }

    // Writes the k best, ties to the lower number. The scores of a label are added in the order
    // that sorting leaves them in, which depends on nothing but this query's answers.
    void write(std::size_t k, std::int32_t* labels, float* scores) {
        std::sort(found_.begin(), found_.end(),
                  [](const Entry& a, const Entry& b) { return a.label < b.label; });
        std::size_t count = 0;
        for (std::size_t e = 0; e < found_.size(); ++count) {
            Entry sum = found_[e++];
            for (; e < found_.size() && found_[e].label == sum.label; ++e)
                sum.score += found_[e].score;
            sum.score += unmet_;
            if (std::isnan(sum.score)) sum.score = -std::numeric_limits<Sum>::infinity();
            found_[count] = sum;
        }
        const auto best = found_.begin() + static_cast<std::ptrdiff_t>(std::min(k, count));
        std::partial_sort(found_.begin(), best, found_.begin() + static_cast<std::ptrdiff_t>(count),
                          [](const Entry& a, const Entry& b) {
                              return a.score > b.score || (a.score == b.score && a.label < b.label);
                          });
        for (auto entry = found_.begin(); entry != best; ++entry) {
            *labels++ = entry->label;
            *scores++ = static_cast<float>(entry->score);
        }
    }

  private:
    struct Entry {
        Sum score;
        std::int32_t label;
    };

    Sum trees_ = 1, unmet_ = 0;
    std::vector<Entry> found_;
};

// Answers all queries by the searches of one tree or of several; each of several finds `wide`
// labels, of whose mean scores the k best are the answer. All trees have the same labels and
// scores.
template <class Search>
class ForestSearch {
  public:
    ForestSearch(std::span<const Search> searches, const Tree& like, const Queries& queries,
                 std::size_t k, std::size_t wide)
        : searches_(searches), like_(like), queries_(queries), k_(k), wide_(wide) {
        queries.check();
    }

    Ranked run() const {
        Ranked out(queries_.n, k_, like_.label_count);
        if (queries_.n <= few) {  // one at a time
            parallel_for(queries_.n, 1, [&](std::size_t i, std::size_t) {
                std::optional<SpreadQuery> spread;
                if (!queries_.is_dense()) spread.emplace(queries_, i, ScoreScratch::mine());
                answer(i, i + 1, out, [&](const Search& search, Ranked& found, std::size_t row) {
                    search.answer(i, found, row);
                });
            });
            return out;
        }
        // Tree by tree, so that what is often met of a tree stays in the caches.
        std::size_t block = queries_.n;
        for (const Search& search : searches_) block = std::min(block, search.at_once());
        for (std::size_t begin = 0, end; begin < queries_.n; begin = end) {
            end = std::min(queries_.n, begin + block);
            answer(begin, end, out, [&](const Search& search, Ranked& found, std::size_t row) {
                search.answer_block(begin, end, found, row);
            });
        }
        return out;
    }

  private:
    // Answers some queries, which ask(search, found, row) does by one search, from a row of `found`
    // on.
    template <class Ask>
    void answer(std::size_t begin, std::size_t end, Ranked& out, Ask&& ask) const {
        if (searches_.size() == 1) return ask(searches_.front(), out, begin);
        const std::size_t rows = end - begin;
        Ranked found(searches_.size() * rows, wide_, like_.label_count);
        for (std::size_t s = 0; s < searches_.size(); ++s) ask(searches_[s], found, s * rows);
        parallel_for(rows, 256, [&](std::size_t low, std::size_t high) {
            for (std::size_t row = low; row < high; ++row) {
                if (like_.post == Post::noop)
                    write_mean<double>(found, rows, row, out, begin + row);
                else
                    write_mean<float>(found, rows, row, out, begin + row);
            }
        });
    }

    template <class Sum>
    void write_mean(const Ranked& found, std::size_t rows, std::size_t row, Ranked& out,
                    std::size_t out_row) const {
        auto& mean = MeanOfTrees<Sum>::mine();
        mean.start(searches_.size());
        for (std::size_t s = 0; s < searches_.size(); ++s) {
            const std::size_t place = (s * rows + row) * wide_;
            mean.add(std::span(found.ids).subspan(place, wide_),
                     std::span(found.scores).subspan(place, wide_), like_.label_count);
        }
        mean.write(k_, out.ids.data() + out_row * k_, out.scores.data() + out_row * k_);
    }

    static constexpr std::size_t few = 48;

    std::span<const Search> searches_;
    const Tree& like_;
    const Queries& queries_;
    std::size_t k_, wide_;
};

}  // namespace megalabel
