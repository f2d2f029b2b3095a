// The weights of one level of a tree, stored by parent.
//
// A parent's chunk is a small sparse matrix: its rows are the features that any of its children
// uses, rising, the bias last; the entries of a row name a child (by its place among its siblings)
// and a weight. A query is intersected with the rows once for all siblings.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// A number of 16 bits as IEEE 754 has it; by hand, because not every processor can.
struct Half {
    std::uint16_t bits;
};

inline float widen(float weight) { return weight; }
inline float widen(std::int8_t weight) { return weight; }
inline float widen(Half weight) {
    // The exponent's bias differs by 112; a product with 2^112 also puts subnormals right.
    const std::uint32_t sign = weight.bits & 0x8000, magnitude = weight.bits & 0x7fff;
    return std::bit_cast<float>(sign << 16 | magnitude << 13) * 0x1p112f;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_entry() {
    throw std::invalid_argument("a weight lies outside the arrays or belongs to no child");
}

struct Chunk {
    std::size_t first_child, children;
    std::size_t first_row, rows;
};

struct ChunkedWeights {
    std::span<const std::int64_t> child_starts;  // one more than there are parents
    std::span<const std::int64_t> chunk_starts;  // likewise: the rows of each chunk
    std::span<const std::int32_t> row_features;
    std::span<const std::int64_t> row_starts;  // one more than there are rows
    std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>> entry_children;
    std::variant<std::span<const float>, std::span<const Half>, std::span<const std::int8_t>>
        entry_weights;
    std::span<const float> scales;  // of each node, for whole numbers; otherwise empty
    std::size_t width;              // the number of features; the bias has this number

    std::size_t parents() const { return child_starts.size() - 1; }
    std::size_t nodes() const { return static_cast<std::size_t>(child_starts.back()); }
    std::size_t entries() const {
        return std::visit([](auto children) { return children.size(); }, entry_children);
    }

    // What holds for the arrays as a whole; `chunk` and `row` check what they read.
    void check() const {
        if (child_starts.empty() || child_starts.size() != chunk_starts.size())
            throw std::invalid_argument("child starts and chunk starts differ in length");
        if (row_starts.size() != row_features.size() + 1)
            throw std::invalid_argument("row starts and row features differ in length");
        if (entries() != std::visit([](auto w) { return w.size(); }, entry_weights))
            throw std::invalid_argument("the children and weights of entries differ in length");
        if (child_starts.back() < 0 || child_starts.back() > 0x7fffffff)
            throw std::invalid_argument("the number of nodes is outside 31 bits");
        const bool whole = std::holds_alternative<std::span<const std::int8_t>>(entry_weights);
        if (scales.size() != (whole ? nodes() : 0))
            throw std::invalid_argument("whole weights need a scale for every node, others none");
    }

    Chunk chunk(std::size_t parent) const {
        const std::int64_t child = child_starts[parent], child_end = child_starts[parent + 1];
        const std::int64_t row = chunk_starts[parent], row_end = chunk_starts[parent + 1];
        if (child < 0 || child_end < child || child_end > child_starts.back() || row < 0 ||
            row_end < row || static_cast<std::size_t>(row_end) > row_features.size())
            throw std::invalid_argument("chunk " + std::to_string(parent) +
                                        " lies outside the arrays");
        return {static_cast<std::size_t>(child), static_cast<std::size_t>(child_end - child),
                static_cast<std::size_t>(row), static_cast<std::size_t>(row_end - row)};
    }

    // Where the entries of a row begin and end.
    std::pair<std::size_t, std::size_t> row(std::size_t row) const {
        const auto begin = static_cast<std::size_t>(row_starts[row]);
        const auto end = static_cast<std::size_t>(row_starts[row + 1]);
        if (begin > end || end > entries()) [[unlikely]]
            throw_entry();
        return {begin, end};
    }
};

// --- building

template <class Weight>
struct BuiltChunks {
    std::vector<std::int64_t> chunk_starts;
    std::vector<std::int32_t> row_features;
    std::vector<std::int64_t> row_starts;
    std::vector<std::uint16_t> narrow_children;  // of entries, where no parent has over 65,536
    std::vector<std::uint32_t> wide_children;    // otherwise
    std::vector<Weight> weights;
};

// Chunks from the weights of all nodes, a row a node with rising columns; zeros are left out. The
// work is cut into stripes: some neighbouring features of one parent, so that a parent with very
// many children is many pieces.
template <class Weight>
BuiltChunks<Weight> build_chunks(std::span<const std::int64_t> starts,
                                 std::span<const std::int32_t> columns,
                                 std::span<const Weight> values, std::size_t columns_count,
                                 std::span<const std::int64_t> child_starts) {
    constexpr std::size_t stripe_entries = std::size_t{1} << 21;
    if (columns.size() != values.size())
        throw std::invalid_argument("columns and values differ in length");
    if (starts.empty() || child_starts.empty() || child_starts.front() != 0 ||
        static_cast<std::size_t>(child_starts.back()) != starts.size() - 1 ||
        !std::is_sorted(child_starts.begin(), child_starts.end()))
        throw std::invalid_argument("child starts must rise from 0 to the number of nodes");
    if (starts.front() != 0 || static_cast<std::size_t>(starts.back()) != columns.size() ||
        !std::is_sorted(starts.begin(), starts.end()))
        throw std::invalid_argument("row starts must rise from 0 to the number of entries");

    struct Stripe {
        std::size_t parent;
        std::int32_t begin, end;  // features
        std::size_t rows = 0, entries = 0;
    };
    std::vector<Stripe> stripes;
    const std::size_t parents = child_starts.size() - 1;
    std::int64_t most_children = 0;
    for (std::size_t p = 0; p < parents; ++p) {
        const std::int64_t from = child_starts[p], to = child_starts[p + 1];
        most_children = std::max(most_children, to - from);
        const auto entries = static_cast<std::size_t>(starts[static_cast<std::size_t>(to)] -
                                                      starts[static_cast<std::size_t>(from)]);
        const std::size_t cuts = std::min(columns_count, entries / stripe_entries + 1);
        for (std::size_t s = 0; s < cuts; ++s)
            stripes.push_back({p, static_cast<std::int32_t>(columns_count * s / cuts),
                               static_cast<std::int32_t>(columns_count * (s + 1) / cuts)});
    }

    // Calls visit(child's place, feature, position) for the entries of a stripe, node by node.
    auto for_entries = [&](const Stripe& stripe, auto&& visit) {
        const auto first = static_cast<std::size_t>(child_starts[stripe.parent]);
        const auto last = static_cast<std::size_t>(child_starts[stripe.parent + 1]);
        for (std::size_t node = first; node < last; ++node) {
            auto begin = columns.begin() + starts[node], end = columns.begin() + starts[node + 1];
            if (stripe.begin > 0) begin = std::lower_bound(begin, end, stripe.begin);
            for (; begin != end && *begin < stripe.end; ++begin) {
                if (*begin < stripe.begin)
                    throw std::invalid_argument("columns must be sorted and not negative");
                const auto position = static_cast<std::size_t>(begin - columns.begin());
                if (widen(values[position]) != 0) visit(node - first, *begin, position);
            }
            if (begin != end && stripe.end == static_cast<std::int32_t>(columns_count))
                throw std::invalid_argument("a column is outside the width");
        }
    };
    struct Scratch {
        std::vector<std::uint32_t> counts;  // of every feature; all zero between stripes
        std::vector<std::int32_t> features;
    };
    auto count = [&](const Stripe& stripe, Scratch& scratch) {
        scratch.counts.resize(columns_count);
        scratch.features.clear();
        for_entries(stripe, [&](std::size_t, std::int32_t feature, std::size_t) {
            if (scratch.counts[static_cast<std::size_t>(feature)]++ == 0)
                scratch.features.push_back(feature);
        });
    };
    ScratchPool<Scratch> pool;
    parallel_for(stripes.size(), 1, [&](std::size_t s, std::size_t) {
        pool.with([&](Scratch& scratch) {
            count(stripes[s], scratch);
            stripes[s].rows = scratch.features.size();
            for (auto feature : scratch.features)
                stripes[s].entries +=
                    std::exchange(scratch.counts[static_cast<std::size_t>(feature)], 0);
        });
    });

    BuiltChunks<Weight> built;
    built.chunk_starts.assign(parents + 1, 0);
    std::size_t rows = 0, entries = 0;
    for (Stripe& stripe : stripes) {  // from here on: where a stripe's rows and entries begin
        rows += std::exchange(stripe.rows, rows);
        entries += std::exchange(stripe.entries, entries);
        built.chunk_starts[stripe.parent + 1] = static_cast<std::int64_t>(rows);
    }
    for (std::size_t p = 0; p < parents; ++p)
        built.chunk_starts[p + 1] = std::max(built.chunk_starts[p], built.chunk_starts[p + 1]);
    built.row_features.resize(rows);
    built.row_starts.resize(rows + 1);
    built.row_starts[rows] = static_cast<std::int64_t>(entries);
    built.weights.resize(entries);
    auto fill = [&](auto& children) {
        children.resize(entries);
        parallel_for(stripes.size(), 1, [&](std::size_t s, std::size_t) {
            pool.with([&](Scratch& scratch) {
                const Stripe& stripe = stripes[s];
                count(stripe, scratch);
                std::sort(scratch.features.begin(), scratch.features.end());
                std::size_t row = stripe.rows, entry = stripe.entries;
                for (auto feature : scratch.features) {
                    built.row_features[row] = feature;
                    built.row_starts[row++] = static_cast<std::int64_t>(entry);
                    // From counts to places relative to the stripe's first entry.
                    auto& place = scratch.counts[static_cast<std::size_t>(feature)];
                    entry +=
                        std::exchange(place, static_cast<std::uint32_t>(entry - stripe.entries));
                }
                for_entries(stripe, [&](std::size_t child, std::int32_t feature,
                                        std::size_t position) {
                    const std::size_t place =
                        stripe.entries + scratch.counts[static_cast<std::size_t>(feature)]++;
                    children[place] =
                        static_cast<typename std::decay_t<decltype(children)>::value_type>(child);
                    built.weights[place] = values[position];
                });
                for (auto feature : scratch.features)
                    scratch.counts[static_cast<std::size_t>(feature)] = 0;
            });
        });
    };
    if (most_children <= 65536)
        fill(built.narrow_children);
    else
        fill(built.wide_children);
    return built;
}

}  // namespace megalabel
