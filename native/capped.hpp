// Label sets of the largest sum where labels may be given to so many texts only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "decision.hpp"

namespace megalabel::decision {

// Which candidates rows are given, and what each label costs: at these costs (almost) every row has
// the labels that are worth the most to it beyond their cost.
struct Assignment {
    std::vector<std::uint8_t> bits;
    std::vector<double> costs;  // infinite where the cap is 0
};

// Gives rows the candidates whose weight * probability + offset sum to the most, within the budget
// of each row and the cap of each label, by an auction (Bertsekas 1988): a row bids for its best
// labels as much as they are worth to it beyond what it would have to do with instead, and a label
// keeps the highest bids. The sum misses the best one by at most a ten-thousandth of the range of
// values for each label given, but for rows that are outbid more often than `patience`: those take
// what has room. Thread-safe; the result depends on the arguments alone.
class Auction {
  public:
    Auction(const Shortlist& shortlist, std::span<const float> weights,
            std::span<const float> offsets, std::span<const std::int32_t> caps, Budget budget)
        : shortlist_(shortlist),
          weights_(weights),
          offsets_(offsets),
          caps_(caps),
          budget_(budget),
          stride_(Choices::bytes(shortlist.width)),
          given_(shortlist.labels),
          bids_(shortlist.labels),
          values_(shortlist.width) {
        shortlist.check();
        if (weights.size() != shortlist.labels || offsets.size() != weights.size() ||
            caps.size() != weights.size())
            throw std::invalid_argument("weights, offsets or caps differ from labels in number");
        bits_.resize(shortlist.rows * stride_);
        prices_.resize(shortlist.labels);
    }

    Assignment run() {
        const std::size_t rows = shortlist_.rows;
        if (rows == 0 || shortlist_.width == 0 || shortlist_.labels == 0)
            return {std::move(bits_), std::move(prices_)};
        find_scale();
        // where there is not room for all, prices rise by the smallest raise; few rows can wait
        const auto patience =
            static_cast<std::uint32_t>(std::max(least_patience, most_turns / rows));
        std::vector<std::uint32_t> turns(rows);
        std::deque<std::uint32_t> waiting;
        for (std::size_t row = 0; row < rows; ++row) {
            bid(row, false, waiting);
            if (row % at_once == 0) give_way();
        }
        for (std::size_t done = 0; !waiting.empty(); ++done) {
            const std::uint32_t row = waiting.front();
            waiting.pop_front();
            if (turns[row] < patience) ++turns[row];
            bid(row, turns[row] == patience, waiting);
            if (done % at_once == 0) give_way();
        }
        for (std::size_t id = 0; id < prices_.size(); ++id)
            // a row raises its bid beyond what a label is worth to it, and is to keep the label
            prices_[id] = caps_[id] > 0 ? nothing_ + std::max(0.0, prices_[id] - 2 * raise_)
                                        : std::numeric_limits<double>::infinity();
        return {std::move(bits_), std::move(prices_)};
    }

  private:
    static constexpr std::size_t least_patience = 250, most_turns = 1 << 22;
    static constexpr std::size_t at_once = 1 << 12;
    using Bid = std::pair<double, std::uint32_t>;  // and the row

    static void give_way() {
        parallel_for(1, 1, [](std::size_t, std::size_t) {});  // where signals are looked at
    }

    void score(std::size_t row) {
        score_row(&shortlist_.ids[row * shortlist_.width],
                  &shortlist_.probabilities[row * shortlist_.width], shortlist_.width,
                  weights_.data(), offsets_.data(), static_cast<std::uint32_t>(shortlist_.labels),
                  1, values_.data());
    }

    // The smallest raise of a bid, and what a row may count on that gets nothing more.
    void find_scale() {
        double low = std::numeric_limits<double>::infinity(), high = -low;
        for (std::size_t row = 0; row < shortlist_.rows; ++row) {
            score(row);
            for (std::size_t j = 0; j < shortlist_.width; ++j)
                if (std::isfinite(values_[j])) {
                    low = std::min(low, values_[j]);
                    high = std::max(high, values_[j]);
                }
        }
        // values that are all but equal differ by rounding alone, which no price can go by
        const double range = std::max(high - low, 1e-3 * std::max(std::abs(low), std::abs(high)));
        raise_ = range > 0 && std::isfinite(range) ? 1e-4 * range : 1e-4;
        // without a floor, a label more is worth more than any better one
        nothing_ = std::isfinite(budget_.floor) ? budget_.floor : low - 1e4 * raise_;
    }

    // Fills the free places of a row; whom it outbids waits.
    void bid(std::size_t row, bool humble, std::deque<std::uint32_t>& waiting) {
        const Choices chosen{bits_, stride_};
        score(row);
        std::size_t free = budget_.k;
        chosen.each(row, [&](std::size_t j) {
            values_[j] = -std::numeric_limits<double>::infinity();
            --free;
        });
        for (std::size_t j = 0; j < shortlist_.width; ++j) {
            const std::uint32_t id = shortlist_.id(row, j);
            if (id >= shortlist_.labels) continue;
            const bool full = given_[id] >= caps_[id];
            if (caps_[id] <= 0 || (humble && full))
                values_[j] = -std::numeric_limits<double>::infinity();
            else
                values_[j] -= prices_[id];
        }
        // one more than can be had: what the others are weighed against
        const auto best = selection_.best(values_, {free + 1, nothing_});
        const double instead = best.size() > free ? best[free].first : nothing_;
        for (std::size_t i = 0; i < std::min(free, best.size()); ++i) {
            const auto [value, j] = best[i];
            const std::uint32_t id = shortlist_.id(row, j);
            const double price = prices_[id] + (value - instead) + raise_;
            chosen.flip(row, j);
            if (const auto out = take(id, {price, static_cast<std::uint32_t>(row)});
                out != nobody) {
                for (std::size_t place = 0; place < shortlist_.width; ++place)
                    if (shortlist_.id(out, place) == id && chosen.hold(out, place))
                        chosen.flip(out, place);
                waiting.push_back(out);
            }
        }
    }

    static constexpr std::uint32_t nobody = std::numeric_limits<std::uint32_t>::max();

    // Enters a bid, for which a full label drops its lowest; the row that was dropped.
    std::uint32_t take(std::uint32_t id, Bid bid) {
        auto& bids = bids_[id];
        bids.push_back(bid);
        std::push_heap(bids.begin(), bids.end(), std::greater<>());
        std::uint32_t out = nobody;
        if (given_[id] < caps_[id]) {
            ++given_[id];
        } else {
            std::pop_heap(bids.begin(), bids.end(), std::greater<>());
            out = bids.back().second;
            bids.pop_back();
        }
        if (given_[id] == caps_[id]) prices_[id] = std::max(0.0, bids.front().first);
        return out;
    }

    Shortlist shortlist_;
    std::span<const float> weights_, offsets_;
    std::span<const std::int32_t> caps_;
    Budget budget_;
    std::size_t stride_;
    std::vector<std::uint8_t> bits_;
    std::vector<double> prices_;  // 0 where a label has room
    std::vector<std::int32_t> given_;
    std::vector<std::vector<Bid>> bids_;
    std::vector<double> values_;
    Selection selection_;
    double raise_ = 0, nothing_ = 0;
};

inline Assignment assign(const Shortlist& shortlist, std::span<const float> weights,
                         std::span<const float> offsets, std::span<const std::int32_t> caps,
                         Budget budget) {
    return Auction(shortlist, weights, offsets, caps, budget).run();
}

}  // namespace megalabel::decision
