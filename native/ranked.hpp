// Sparse rows as Python holds them, and the k best of what is found in them.
//
// Every number read from an array is checked before it is used as a position: a damaged model gives
// std::invalid_argument, never a read outside the arrays.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
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

MEGALABEL_CLONES inline bool all_finite(const float* values, std::size_t n) {
    bool finite = true;
    for (std::size_t i = 0; i < n; ++i)
        finite &= std::abs(values[i]) <= std::numeric_limits<float>::max();
    return finite;
}

// Whether no value is infinite or not a number.
inline bool all_finite(std::span<const float> values) {
    std::atomic<bool> finite{true};
    parallel_for(values.size(), 1 << 20, [&](std::size_t begin, std::size_t end) {
        if (!all_finite(values.data() + begin, end - begin)) finite = false;
    });
    return finite;
}

// Ranked results for n rows, k each; unused places hold `none` and -infinity.
struct Ranked {
    std::vector<std::int32_t> ids;
    std::vector<float> scores;

    Ranked(std::size_t n, std::size_t k, std::size_t none)
        : ids(n * k, static_cast<std::int32_t>(none)),
          scores(n * k, -std::numeric_limits<float>::infinity()) {}
};

// The k best of what it is offered, ties to the lower id. Scores that are not above a floor (or not
// numbers) are refused. Selection is put off until several times k wait, which makes an offer
// cheap.
class Best {
  public:
    struct Entry {
        float score;
        std::int32_t id;
        bool operator<(const Entry& other) const {
            return score > other.score || (score == other.score && id < other.id);
        }
    };

    void reset(std::size_t k, float floor = 0) {
        k_ = k;
        bar_ = floor_ = floor;
        entries_.clear();
    }

    void offer(float score, std::int32_t id) {
        if (!(score > floor_) || score < bar_) return;
        entries_.push_back({score, id});
        if (entries_.size() >= 4 * k_ + 32) select();
    }

    // What is below is refused: at most the score to reach.
    float refused_below() const { return bar_; }

    // The score to reach: that of the k-th best, or the floor while there are fewer.
    float bar() {
        select();
        return bar_;
    }

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
        } else if (entries_.size() == k_ && bar_ == floor_) {
            bar_ = std::max_element(entries_.begin(), entries_.end())->score;
        }
    }

    std::size_t k_ = 1;
    float bar_ = 0, floor_ = 0;
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

}  // namespace megalabel
