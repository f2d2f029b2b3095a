// Boosted trees, grown: binary logistic loss, leaf by leaf, by histograms of gradients.
//
// Sums of gradients are exact (boosting_sums.hpp), so that trees do not depend on threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "boosting.hpp"
#include "boosting_bins.hpp"
#include "boosting_splits.hpp"
#include "boosting_sums.hpp"
#include "clustering.hpp"
#include "lanes.hpp"
#include "memory.hpp"
#include "parallel.hpp"

namespace megalabel::boosting {

struct Examples {
    Rows rows;
    std::span<const std::uint8_t> targets;
    std::span<const float> weights;            // empty: all 1
    std::span<const std::uint8_t> validation;  // rows that are held out; empty: none

    void check() const {
        const std::size_t n = rows.count;
        if (n == 0 || rows.width == 0 || n > std::numeric_limits<std::int32_t>::max() ||
            rows.values.size() != n * rows.width)
            throw std::invalid_argument("boosted trees need rows, at most 2^31, and features");
        if (targets.size() != n || (!weights.empty() && weights.size() != n) ||
            (!validation.empty() && validation.size() != n))
            throw std::invalid_argument("there must be a target and a weight for each row");
        for (const float weight : weights)
            if (!(weight >= 0) || std::isinf(weight))
                throw std::invalid_argument("weights must be finite and not negative");
    }
    double weight(std::size_t row) const { return weights.empty() ? 1 : weights[row]; }
    bool held_out(std::size_t row) const { return !validation.empty() && validation[row] != 0; }
};

// As TreeArrays, and how much each feature has gained.
struct Trained {
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> feature;
    std::vector<float> threshold;
    std::vector<std::int32_t> left, right;
    std::vector<std::uint8_t> missing_left;
    std::vector<float> value;
    double base = 0;
    std::vector<double> gains;
};

class Training {
  public:
    Training(const Examples& examples, const Options& options)
        : examples_(examples),
          options_(options),
          listed_(list(examples)),
          bins_(examples.rows, listed_.training, options.bins, options.seed),
          scale_(scale(examples)),
          sums_(bins_),
          splits_(bins_, options, scale_) {}

    Trained run() {
        start();
        double best = std::numeric_limits<double>::infinity();
        std::size_t kept = 0;
        for (std::size_t t = 0; t < options_.trees; ++t) {
            find_slopes();
            const bool all = choose_rows_and_features(t);
            if (!grow()) {
                if (all) break;  // nor will the next tree
                continue;
            }
            add_to_margins();
            keep_tree();
            const std::size_t trees = grown_.starts.size() - 1;
            if (const double loss = validation_loss(); loss < best || listed_.held_out.empty()) {
                best = loss;
                kept = trees;
            } else if (trees - kept >= options_.patience) {
                break;
            }
        }
        cut(kept);
        return std::move(grown_);
    }

  private:
    struct Lists {
        std::vector<std::int32_t> training, held_out;
    };
    struct Node {
        std::int32_t feature = -1, left = 0, right = 0;
        std::size_t bin = 0;
        bool missing_left = true;
        float value = 0;
        double gain = 0;
    };
    struct Leaf {
        std::size_t node, begin, end;  // its rows are rows_[begin:end]
        std::size_t depth, histogram;
        Sums sums;
        Split split;
    };

    static Lists list(const Examples& examples) {
        Lists lists;
        for (std::size_t row = 0; row < examples.rows.count; ++row)
            (examples.held_out(row) ? lists.held_out : lists.training)
                .push_back(static_cast<std::int32_t>(row));
        if (lists.training.empty()) throw std::invalid_argument("all rows are held out");
        return lists;
    }

    // A power of two by which gradients, at most as large as a weight, have 30 bits.
    static double scale(const Examples& examples) {
        float most = examples.weights.empty() ? 1.f : 0.f;
        for (const float weight : examples.weights) most = std::max(most, weight);
        if (!(most > 0)) throw std::invalid_argument("some weight must be above 0");
        int exponent = 0;
        std::frexp(most, &exponent);
        return std::ldexp(1.0, 30 - std::max(exponent, -60));  // which is a float, too
    }

    // Lets Python handle signals: loops that are each short do not.
    static void look_for_signals() {
        parallel_for(1, 1, [](std::size_t, std::size_t) { end_if_cancelled(); });
    }

    void start() {
        double positive = 0, total = 0;
        for (const std::int32_t number : listed_.training) {
            const auto row = static_cast<std::size_t>(number);
            total += examples_.weight(row);
            if (examples_.targets[row] != 0) positive += examples_.weight(row);
        }
        if (!(total > 0)) throw std::invalid_argument("some weight must be above 0");
        const double share = std::clamp(positive / total, 1e-6, 1 - 1e-6);
        grown_.base = static_cast<float>(std::log(share / (1 - share)));
        grown_.gains.assign(bins_.width(), 0);
        const std::size_t padded =
            (examples_.rows.count + newton::lanes - 1) / newton::lanes * newton::lanes;
        margins_.assign(padded, static_cast<float>(grown_.base));
        slopes_.resize(padded);
        histograms_.resize(options_.leaves);
    }

    // The gradients and curvatures of all rows at their margins.
    void find_slopes() {
        parallel_for(margins_.size() / newton::lanes, row_piece,
                     [&](std::size_t begin, std::size_t end) {
                         slopes_of(begin * newton::lanes, end * newton::lanes);
                     });
    }
    void slopes_of(std::size_t begin, std::size_t end) {
        constexpr std::size_t lanes = newton::lanes;
        for (std::size_t first = begin; first < end; first += lanes) {
            float targets[lanes] = {}, weights[lanes] = {};
            for (std::size_t k = 0; k < std::min(lanes, examples_.rows.count - first); ++k) {
                targets[k] = examples_.targets[first + k] != 0;
                weights[k] = examples_.weights.empty() ? 1.f : examples_.weights[first + k];
            }
            find_lanes_slopes(&margins_[first], targets, weights, static_cast<float>(scale_),
                              &slopes_[first]);
        }
    }

    // Says what the next tree sees; true if that is everything.
    bool choose_rows_and_features(std::size_t tree) {
        const std::size_t width = bins_.width();
        features_.resize(width);
        std::iota(features_.begin(), features_.end(), std::size_t{0});
        const auto wanted = static_cast<std::size_t>(
            std::ceil(std::min(1.0, options_.feature_share) * static_cast<double>(width)));
        if (wanted < width) {
            clustering::Random random(options_.seed, 1, tree);
            for (std::size_t f = 0; f < wanted; ++f)
                std::swap(features_[f], features_[f + random.below(width - f)]);
            features_.resize(wanted);
            std::sort(features_.begin(), features_.end());
        }
        others_ = listed_.held_out;
        if (options_.row_share >= 1) {
            rows_ = listed_.training;
            return wanted == width;
        }
        rows_.clear();
        constexpr std::size_t whole = std::size_t{1} << 32;
        const auto most = static_cast<std::size_t>(options_.row_share * static_cast<double>(whole));
        for (const std::int32_t row : listed_.training) {
            clustering::Random random(options_.seed, 2 + tree, static_cast<std::uint64_t>(row));
            (random.below(whole) < most ? rows_ : others_).push_back(row);
        }
        return false;
    }

    // Grows a tree of some splits, the one of most gain first; false if there is none.
    bool grow() {
        nodes_.assign(1, {});
        leaves_.clear();
        Leaf root{0, 0, rows_.size(), 0, 0, {}, {}};
        sum(root);
        const std::size_t first = features_[0];
        for (std::size_t b = 0; b <= bins_.missing(first); ++b)
            root.sums += histograms_[0][bins_.start(first) + b];
        std::vector<Split> found(features_.size());
        for (std::size_t j = 0; j < features_.size(); ++j)
            found[j] = splits_.best(histograms_[0], root.sums, features_[j]);
        root.split = best_of(found);
        leaves_.push_back(root);
        while (leaves_.size() < options_.leaves) {
            look_for_signals();
            const auto best = std::max_element(
                leaves_.begin(), leaves_.end(),
                [](const Leaf& a, const Leaf& b) { return a.split.gain < b.split.gain; });
            if (!(best->split.gain > 0)) break;
            split(static_cast<std::size_t>(best - leaves_.begin()));
        }
        if (nodes_.size() == 1) return false;
        for (const Leaf& leaf : leaves_) {
            const double step = splits_.step(leaf.sums);
            nodes_[leaf.node].value = static_cast<float>(options_.rate * step);
        }
        return true;
    }

    // Splits a leaf: the left part takes its place, the right part comes last.
    void split(std::size_t number) {
        Leaf& leaf = leaves_[number];
        const Split split = leaf.split;
        const std::size_t middle = partition(leaf, split), left = nodes_.size();
        Node& node = nodes_[leaf.node];
        node.feature = static_cast<std::int32_t>(split.feature);
        node.bin = split.bin;
        node.missing_left = split.missing_left;
        node.gain = split.gain;
        node.left = static_cast<std::int32_t>(left);
        node.right = static_cast<std::int32_t>(left + 1);
        nodes_.resize(left + 2);
        Leaf right{
            left + 1, middle, leaf.end, leaf.depth + 1, leaves_.size(), leaf.sums - split.left, {}};
        leaf = {left, leaf.begin, middle, leaf.depth + 1, leaf.histogram, split.left, {}};
        leaves_.push_back(right);
        if (leaves_.size() < options_.leaves) find_splits(leaves_[number], leaves_.back());
    }

    bool may_split(const Leaf& leaf) const {
        return rows_of(leaf.sums) >= 2 * options_.min_rows &&
               (options_.depth == 0 || leaf.depth < options_.depth);
    }

    // The best splits of two leaves, of which one has the histogram of both.
    void find_splits(Leaf& left, Leaf& right) {
        if (!may_split(left) && !may_split(right)) return;
        Leaf& small = left.end - left.begin <= right.end - right.begin ? left : right;
        Leaf& large = &small == &left ? right : left;
        // histogram numbers: the one of both goes on as that of the larger leaf
        if (large.histogram > small.histogram) std::swap(large.histogram, small.histogram);
        Histogram &of_small = histograms_[small.histogram],
                  &of_large = histograms_[large.histogram];
        sum(small);
        std::vector<Split> of_features[2];
        for (auto& found : of_features) found.resize(features_.size());
        parallel_for(features_.size(), 8, [&](std::size_t begin, std::size_t end) {
            for (std::size_t j = begin; j < end; ++j) {
                const std::size_t f = features_[j], start = bins_.start(f);
                for (std::size_t b = start; b <= start + bins_.missing(f); ++b)
                    of_large[b] -= of_small[b];
                if (may_split(small)) of_features[0][j] = splits_.best(of_small, small.sums, f);
                if (may_split(large)) of_features[1][j] = splits_.best(of_large, large.sums, f);
            }
        });
        small.split = best_of(of_features[0]);
        large.split = best_of(of_features[1]);
    }

    void sum(const Leaf& leaf) {
        sums_.of(std::span(std::as_const(rows_)).subspan(leaf.begin, leaf.end - leaf.begin),
                 slopes_, features_, histograms_[leaf.histogram]);
    }

    // Orders a leaf's rows by side, each side's as they were; returns where the right ones begin.
    std::size_t partition(const Leaf& leaf, const Split& split) {
        const std::size_t count = leaf.end - leaf.begin, piece = 4 * row_piece;
        std::vector<std::size_t> lefts((count + piece - 1) / piece + 1);
        moved_.resize(rows_.size());
        std::array<std::uint8_t, most_bins + 1> goes_left;
        for (std::size_t bin = 0; bin < goes_left.size(); ++bin) goes_left[bin] = bin <= split.bin;
        goes_left[bins_.missing(split.feature)] = split.missing_left;
        // Each piece by itself, the right ones from the end in reverse; then all to their places.
        // Which side a row goes to cannot be foretold, so it is written to both.
        parallel_for(count, piece, [&](std::size_t begin, std::size_t end) {
            const std::int32_t* rows = rows_.data() + leaf.begin;
            std::int32_t* moved = moved_.data() + leaf.begin;
            std::size_t left = begin, right = end;
            for (std::size_t i = begin; i < end; ++i) {
                const std::int32_t row = rows[i];
                const std::size_t goes = goes_left[bins_.row(row)[split.feature]];
                moved[left] = moved[right - 1] = row;
                left += goes;
                right -= 1 - goes;
            }
            lefts[begin / piece + 1] = left - begin;
        });
        std::partial_sum(lefts.begin(), lefts.end(), lefts.begin());
        const std::size_t middle = leaf.begin + lefts.back();
        parallel_for(count, piece, [&](std::size_t begin, std::size_t end) {
            const std::size_t before = lefts[begin / piece];
            const std::size_t own = lefts[begin / piece + 1] - before;
            const auto from = moved_.begin() + static_cast<std::ptrdiff_t>(leaf.begin + begin);
            const auto cut = from + static_cast<std::ptrdiff_t>(own);
            const auto to = from + static_cast<std::ptrdiff_t>(end - begin);
            std::copy(from, cut, rows_.begin() + static_cast<std::ptrdiff_t>(leaf.begin + before));
            std::reverse_copy(cut, to,
                              rows_.begin() + static_cast<std::ptrdiff_t>(middle + begin - before));
        });
        return middle;
    }

    void add_to_margins() {
        parallel_for(leaves_.size(), 1, [&](std::size_t number, std::size_t) {
            const Leaf& leaf = leaves_[number];
            const float value = nodes_[leaf.node].value;
            for (std::size_t i = leaf.begin; i < leaf.end; ++i)
                margins_[static_cast<std::size_t>(rows_[i])] += value;
        });
        parallel_for(others_.size(), row_piece, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                const std::uint8_t* codes = bins_.row(others_[i]);
                const Node* node = nodes_.data();
                while (node->feature >= 0) {
                    const auto feature = static_cast<std::size_t>(node->feature);
                    const bool left = codes[feature] == bins_.missing(feature)
                                          ? node->missing_left
                                          : codes[feature] <= node->bin;
                    node = &nodes_[static_cast<std::size_t>(left ? node->left : node->right)];
                }
                margins_[static_cast<std::size_t>(others_[i])] += node->value;
            }
        });
    }

    // The sum of what held-out rows cost. Pieces are added in their order.
    double validation_loss() const {
        const auto& rows = listed_.held_out;
        std::vector<double> losses((rows.size() + row_piece - 1) / row_piece);
        parallel_for(rows.size(), row_piece, [&](std::size_t begin, std::size_t end) {
            double sum = 0;
            for (std::size_t i = begin; i < end; ++i) {
                const auto row = static_cast<std::size_t>(rows[i]);
                const double margin = examples_.targets[row] != 0 ? margins_[row] : -margins_[row];
                sum += examples_.weight(row) *
                       (std::log1p(std::exp(-std::abs(margin))) + std::max(-margin, 0.0));
            }
            losses[begin / row_piece] = sum;
        });
        return std::accumulate(losses.begin(), losses.end(), 0.0);
    }

    void keep_tree() {
        for (const Node& node : nodes_) {
            const bool leaf = node.feature < 0;
            grown_.feature.push_back(node.feature);
            grown_.threshold.push_back(
                leaf ? 0.f : bins_.edge(static_cast<std::size_t>(node.feature), node.bin));
            grown_.left.push_back(node.left);
            grown_.right.push_back(node.right);
            grown_.missing_left.push_back(node.missing_left);
            grown_.value.push_back(node.value);
            gains_.push_back(node.gain);
        }
        grown_.starts.push_back(static_cast<std::int64_t>(grown_.feature.size()));
    }

    // Keeps the first trees only, and adds up what their splits have gained.
    void cut(std::size_t trees) {
        grown_.starts.resize(trees + 1);
        const auto nodes = static_cast<std::size_t>(grown_.starts.back());
        grown_.feature.resize(nodes);
        grown_.threshold.resize(nodes);
        grown_.left.resize(nodes);
        grown_.right.resize(nodes);
        grown_.missing_left.resize(nodes);
        grown_.value.resize(nodes);
        for (std::size_t i = 0; i < nodes; ++i)
            if (grown_.feature[i] >= 0)
                grown_.gains[static_cast<std::size_t>(grown_.feature[i])] += gains_[i];
    }

    const Examples& examples_;
    const Options& options_;
    const Lists listed_;
    const Bins bins_;
    const double scale_;

    Trained grown_;
    std::vector<double> gains_;          // of the nodes kept
    newton::Buffer margins_;             // of all rows
    Paged<Slope> slopes_;                // likewise
    std::vector<std::size_t> features_;  // that the tree sees
    std::vector<std::int32_t> rows_;     // likewise, leaf by leaf
    std::vector<std::int32_t> others_;   // those that it does not see
    std::vector<std::int32_t> moved_;
    std::vector<Node> nodes_;
    std::vector<Leaf> leaves_;
    std::vector<Histogram> histograms_;
    RowSums sums_;
    const Splits splits_;
};

inline Trained train(const Examples& examples, const Options& options) {
    examples.check();
    options.check();
    return Training(examples, options).run();
}

}  // namespace megalabel::boosting
