// Online training of a tree of logistic regressions.
//
// Siblings see the same rows, so the weights of a node's children are one block: a row for each
// feature that any of those rows had, rising, the bias last; a column for each child. Column 0 is
// the child to come: it takes every row for a negative, so that a child that joins later starts
// from a copy of it, as if it had been there from the start (Jasinska-Kobus et al. 2021). Blocks do
// not depend on one another, nor do their columns: they are trained side by side, the rows of each
// in order, and the outcome does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "groups.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::online {

// The weights of all nodes' children, and AdaGrad's sums of squared gradients.
struct Blocks {
    std::span<const std::int64_t> feature_starts;  // one more than there are nodes
    std::span<const std::int32_t> features;
    std::span<const std::int32_t> columns;  // of each node: its children and the one to come
    std::span<const float> weights, squares;

    std::size_t size() const { return columns.size(); }

    // Where each block's weights begin, and where the last one's end.
    std::vector<std::size_t> check(std::size_t width) const {
        if (feature_starts.size() != size() + 1 || feature_starts.front() != 0 ||
            feature_starts.back() != static_cast<std::int64_t>(features.size()) ||
            !std::is_sorted(feature_starts.begin(), feature_starts.end()))
            throw std::invalid_argument("feature starts must rise from 0 to the features' number");
        std::vector<std::size_t> begins{0};
        for (std::size_t node = 0; node < size(); ++node) {
            const auto own = of(node);
            if (columns[node] < 0) throw std::invalid_argument("a block has columns below zero");
            for (std::size_t j = 0; j < own.size(); ++j)
                if (own[j] < 0 || static_cast<std::size_t>(own[j]) > width ||
                    (j > 0 && own[j] <= own[j - 1]))
                    throw std::invalid_argument("the features of block " + std::to_string(node) +
                                                " do not rise within the width");
            begins.push_back(begins.back() + own.size() * static_cast<std::size_t>(columns[node]));
        }
        if (begins.back() != weights.size() ||
            (!squares.empty() && squares.size() != weights.size()))
            throw std::invalid_argument("the blocks hold " + std::to_string(begins.back()) +
                                        " weights, not " + std::to_string(weights.size()));
        return begins;
    }

    std::span<const std::int32_t> of(std::size_t node) const {
        const auto begin = static_cast<std::size_t>(feature_starts[node]);
        return features.subspan(begin, static_cast<std::size_t>(feature_starts[node + 1]) - begin);
    }
};

// The rows that each node sees, in order, and the columns that are positive for each of them.
struct Visits {
    std::span<const std::int64_t> starts;  // one more than there are nodes
    std::span<const std::int32_t> rows;
    std::span<const std::int64_t> place_starts;  // one more than there are visits
    std::span<const std::int32_t> places;

    void check(const SparseRows& x, std::span<const std::int32_t> columns) const {
        const auto rises = [](std::span<const std::int64_t> values, std::size_t total) {
            return values.front() == 0 && values.back() == static_cast<std::int64_t>(total) &&
                   std::is_sorted(values.begin(), values.end());
        };
        if (starts.size() != columns.size() + 1 || !rises(starts, rows.size()) ||
            place_starts.size() != rows.size() + 1 || !rises(place_starts, places.size()))
            throw std::invalid_argument("the arrays of the visits differ in their sizes");
        for (auto row : rows)
            if (row < 0 || static_cast<std::size_t>(row) >= x.size())
                throw std::invalid_argument("a visit is of a row outside the matrix");
        for (std::size_t node = 0; node < columns.size(); ++node)
            for (auto p = place_starts[static_cast<std::size_t>(starts[node])];
                 p < place_starts[static_cast<std::size_t>(starts[node + 1])]; ++p)
                if (places[p] < 1 || places[p] >= columns[node])
                    throw std::invalid_argument("a positive column lies outside its block");
    }
};

struct Grown {
    std::vector<std::int64_t> feature_starts{0};
    std::vector<std::int32_t> features;
    std::vector<float> weights, squares;
};

// AdaGrad: w -= rate g / sqrt(epsilon + sum of g^2).
struct Rule {
    float rate, epsilon, bias;
};

// --- one row and some neighbouring columns

template <std::size_t lanes>
MEGALABEL_CLONES void add_margins(const std::int32_t* places, const float* values, std::size_t n,
                                  const float* weights, float* margins) {
    std::array<float, lanes> sums{};
    for (std::size_t j = 0; j < n; ++j) {
        const float* w = weights + static_cast<std::size_t>(places[j]) * lanes;
        for (std::size_t c = 0; c < lanes; ++c) sums[c] += values[j] * w[c];
    }
    std::copy(sums.begin(), sums.end(), margins);
}

template <std::size_t lanes>
MEGALABEL_CLONES void descend(const std::int32_t* places, const float* values, std::size_t n,
                              const float* errors, float rate, float epsilon, float* weights,
                              float* squares) {
    for (std::size_t j = 0; j < n; ++j) {
        float* w = weights + static_cast<std::size_t>(places[j]) * lanes;
        float* s = squares + static_cast<std::size_t>(places[j]) * lanes;
        for (std::size_t c = 0; c < lanes; ++c) {
            const float gradient = errors[c] * values[j];
            s[c] += gradient * gradient;
            w[c] -= rate * gradient / std::sqrt(epsilon + s[c]);
        }
    }
}

// --- all blocks

class Update {
  public:
    Update(const SparseRows& x, const Visits& visits, const Blocks& old,
           std::span<const std::int32_t> columns, Rule rule)
        : x_(x), visits_(visits), old_(old), columns_(columns), rule_(rule) {
        x.check();
        if (x.width >= 0x7fffffff) throw std::invalid_argument("the width is outside 31 bits");
        if (columns.size() != old.size())
            throw std::invalid_argument("there are blocks of other nodes");
        old_begins_ = old.check(x.width);
        if (old.squares.size() != old.weights.size())
            throw std::invalid_argument("every weight needs its sum of squares");
        for (std::size_t node = 0; node < columns.size(); ++node)
            if (columns[node] < std::max(1, old.columns[node]))
                throw std::invalid_argument("a block cannot lose columns");
        visits.check(x, columns);
    }

    Grown run() {
        gather_features();
        std::vector<Stripe> stripes;
        for (std::size_t node = 0; node < columns_.size(); ++node) {
            const auto count = static_cast<std::size_t>(columns_[node]);
            for (std::size_t c = 0; c < count;) {
                const std::size_t left = count - c, lanes = left > 8 ? 16 : left > 4 ? 8 : 4;
                stripes.push_back({node, c, lanes, work(node) * lanes});
                c += lanes;
            }
        }
        // the longest first, so that threads end together
        std::stable_sort(stripes.begin(), stripes.end(),
                         [](const Stripe& a, const Stripe& b) { return a.work > b.work; });
        parallel_for(stripes.size(), 1, [&](std::size_t i, std::size_t) {
            pool_.with([&](Scratch& scratch) {
                const Stripe& stripe = stripes[i];
                if (stripe.lanes == 16) train<16>(stripe, scratch);
                if (stripe.lanes == 8) train<8>(stripe, scratch);
                if (stripe.lanes == 4) train<4>(stripe, scratch);
            });
        });
        return std::move(grown_);
    }

  private:
    struct Stripe {
        std::size_t node, first, lanes, work;
    };
    struct Scratch {
        std::vector<std::int32_t> place;  // of a feature in the block; -1 between nodes
        std::vector<std::int32_t> places;
        std::vector<float> values, weights, squares;
    };

    std::size_t work(std::size_t node) const {
        std::size_t entries = 0;
        for (auto v = visits_.starts[node]; v < visits_.starts[node + 1]; ++v) {
            const auto row = static_cast<std::size_t>(visits_.rows[v]);
            entries += static_cast<std::size_t>(x_.starts[row + 1] - x_.starts[row]) + 1;
        }
        return entries;
    }

    std::span<const std::int32_t> features(std::size_t node) const {
        const auto begin = static_cast<std::size_t>(grown_.feature_starts[node]);
        return std::span(grown_.features)
            .subspan(begin, static_cast<std::size_t>(grown_.feature_starts[node + 1]) - begin);
    }

    // The features of each block: those it had, and those of the new rows.
    void gather_features() {
        std::vector<std::vector<std::int32_t>> found(columns_.size());
        parallel_for(columns_.size(), 1, [&](std::size_t node, std::size_t) {
            pool_.with([&](Scratch& scratch) {
                auto& own = found[node];
                auto& place = scratch.place;
                place.resize(x_.width + 1, -1);
                const auto add = [&](std::size_t feature) {
                    if (place[feature] >= 0) return;
                    place[feature] = 0;
                    own.push_back(static_cast<std::int32_t>(feature));
                };
                for (auto feature : old_.of(node)) add(static_cast<std::size_t>(feature));
                for (auto v = visits_.starts[node]; v < visits_.starts[node + 1]; ++v) {
                    auto [begin, end] = x_.row(static_cast<std::size_t>(visits_.rows[v]));
                    for (std::size_t p = begin; p < end; ++p) add(x_.column(p));
                    add(x_.width);
                }
                std::sort(own.begin(), own.end());
                for (auto feature : own) place[static_cast<std::size_t>(feature)] = -1;
            });
        });
        std::size_t total = 0;
        begins_.assign(1, 0);
        for (std::size_t node = 0; node < columns_.size(); ++node) {
            total += found[node].size();
            grown_.feature_starts.push_back(static_cast<std::int64_t>(total));
            begins_.push_back(begins_.back() +
                              found[node].size() * static_cast<std::size_t>(columns_[node]));
        }
        grown_.features.reserve(total);
        for (const auto& own : found)
            grown_.features.insert(grown_.features.end(), own.begin(), own.end());
        grown_.weights.resize(begins_.back());
        grown_.squares.resize(begins_.back());
    }

    // Takes the columns of a stripe out of the old block, trains them, and puts them in the new.
    template <std::size_t lanes>
    void train(const Stripe& stripe, Scratch& scratch) {
        const std::size_t node = stripe.node;
        const auto own = features(node), before = old_.of(node);
        const auto count = static_cast<std::size_t>(columns_[node]);
        const auto old_count = static_cast<std::size_t>(old_.columns[node]);
        const std::size_t used = std::min(lanes, count - stripe.first);
        auto& [place, places, values, weights, squares] = scratch;
        place.resize(x_.width + 1, -1);
        weights.assign(own.size() * lanes, 0);
        squares.assign(own.size() * lanes, 0);
        for (std::size_t j = 0, i = 0; j < own.size(); ++j) {
            place[static_cast<std::size_t>(own[j])] = static_cast<std::int32_t>(j);
            if (i == before.size() || before[i] != own[j]) continue;
            const std::size_t row = old_begins_[node] + i++ * old_count;
            for (std::size_t c = 0; c < used && old_count > 0; ++c) {
                const std::size_t from =
                    row + (stripe.first + c < old_count ? stripe.first + c : 0);
                weights[j * lanes + c] = old_.weights[from];
                squares[j * lanes + c] = old_.squares[from];
            }
        }
        for (auto v = visits_.starts[node]; v < visits_.starts[node + 1]; ++v) {
            if (v % 64 == 0) end_if_cancelled();
            auto [begin, end] = x_.row(static_cast<std::size_t>(visits_.rows[v]));
            places.clear();
            for (std::size_t p = begin; p < end; ++p) places.push_back(place[x_.column(p)]);
            places.push_back(place[x_.width]);
            values.assign(x_.values.begin() + static_cast<std::ptrdiff_t>(begin),
                          x_.values.begin() + static_cast<std::ptrdiff_t>(end));
            values.push_back(rule_.bias);
            std::array<float, lanes> errors;
            add_margins<lanes>(places.data(), values.data(), places.size(), weights.data(),
                               errors.data());
            for (auto& error : errors) error = 1 / (1 + std::exp(-error));
            for (auto p = visits_.place_starts[v]; p < visits_.place_starts[v + 1]; ++p) {
                const auto column = static_cast<std::size_t>(visits_.places[p]);
                if (column >= stripe.first && column < stripe.first + used)
                    errors[column - stripe.first] -= 1;
            }
            descend<lanes>(places.data(), values.data(), places.size(), errors.data(), rule_.rate,
                           rule_.epsilon, weights.data(), squares.data());
        }
        for (std::size_t j = 0; j < own.size(); ++j) {
            place[static_cast<std::size_t>(own[j])] = -1;
            const std::size_t to = begins_[node] + j * count + stripe.first;
            std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(j * lanes), used,
                        grown_.weights.begin() + static_cast<std::ptrdiff_t>(to));
            std::copy_n(squares.begin() + static_cast<std::ptrdiff_t>(j * lanes), used,
                        grown_.squares.begin() + static_cast<std::ptrdiff_t>(to));
        }
    }

    const SparseRows& x_;
    const Visits& visits_;
    const Blocks& old_;
    std::span<const std::int32_t> columns_;
    Rule rule_;
    std::vector<std::size_t> old_begins_, begins_;
    Grown grown_;
    ScratchPool<Scratch> pool_;
};

// The weights of all children as rows, node by node; those of at most `prune` are left out.
inline WeightRows child_rows(const Blocks& blocks, std::size_t width, float prune) {
    const auto begins = blocks.check(width);
    std::vector<std::size_t> first_child{0};
    for (auto columns : blocks.columns)
        first_child.push_back(first_child.back() + static_cast<std::size_t>(std::max(columns, 1)) -
                              1);
    WeightRows rows;
    rows.starts.assign(first_child.back() + 1, 0);
    // Calls visit(child, feature, weight) for the weights kept of a block, features rising.
    const auto for_kept = [&](std::size_t node, auto&& visit) {
        const auto own = blocks.of(node);
        const auto count = static_cast<std::size_t>(blocks.columns[node]);
        for (std::size_t j = 0; j < own.size(); ++j)
            for (std::size_t c = 1; c < count; ++c) {
                const float weight = blocks.weights[begins[node] + j * count + c];
                if (std::abs(weight) > prune) visit(first_child[node] + c - 1, own[j], weight);
            }
    };
    parallel_for(blocks.size(), 1, [&](std::size_t node, std::size_t) {
        for_kept(node, [&](std::size_t child, std::int32_t, float) { ++rows.starts[child + 1]; });
    });
    std::partial_sum(rows.starts.begin(), rows.starts.end(), rows.starts.begin());
    rows.columns.resize(static_cast<std::size_t>(rows.starts.back()));
    rows.values.resize(rows.columns.size());
    std::vector<std::int64_t> next(rows.starts.begin(), rows.starts.end() - 1);
    parallel_for(blocks.size(), 1, [&](std::size_t node, std::size_t) {
        for_kept(node, [&](std::size_t child, std::int32_t feature, float weight) {
            const auto place = static_cast<std::size_t>(next[child]++);
            rows.columns[place] = feature;
            rows.values[place] = weight;
        });
    });
    return rows;
}

}  // namespace megalabel::online
