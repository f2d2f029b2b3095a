// The weights of one level of a tree, stored by parent, in few bytes.
//
// A parent's chunk is a small sparse matrix: its rows are the features that any of its children
// uses, rising, the bias last; the entries of a row name a child (by its place among its siblings)
// and a weight. A query is intersected with the rows once for all siblings.
//
// Features are kept in 16 bits: those of a chunk fall into sections of 65,536 by number, and it is
// known where the rows of each section begin. Where the entries of a row begin is kept in 16 bits
// past the start of its block, some rows that follow each other; a child in 8 bits, as its gap: the
// distance from the one before it in the row. Of an entry of weight zero, which is there only for
// that, the gap counts 256 fold: one or, past 65,535, some of them come before what is farther.
//
// Whole numbers of 8 bits are shares of the largest weight of their node. A bias is often many
// times that of any feature, and would leave the others few bits: it is kept beside them, as it is.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
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
inline float widen(std::int8_t weight) {
    // Looking it up is quicker than converting a single number.
    static constexpr auto numbers = [] {
        std::array<float, 256> all{};
        for (int i = 0; i < 256; ++i)
            all[static_cast<std::size_t>(i)] = static_cast<float>(i < 128 ? i : i - 256);
        return all;
    }();
    return numbers[static_cast<std::uint8_t>(weight)];
}
inline float widen(Half weight) {
    // The exponent's bias differs by 112; a product with 2^112 also puts subnormals right.
    const std::uint32_t sign = weight.bits & 0x8000, magnitude = weight.bits & 0x7fff;
    return std::bit_cast<float>(sign << 16 | magnitude << 13) * 0x1p112f;
}

inline bool is_zero(float weight) { return weight == 0; }
inline bool is_zero(std::int8_t weight) { return weight == 0; }
inline bool is_zero(Half weight) { return (weight.bits & 0x7fff) == 0; }

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_entry() {
    throw std::invalid_argument("a weight lies outside the arrays or belongs to no child");
}

// How far an entry is from the one before it. Without a branch: where children are many, none could
// be foretold.
template <class Weight>
std::size_t step(std::uint8_t gap, Weight weight) {
    return std::size_t{gap} << (is_zero(weight) ? 8 : 0);
}

inline constexpr std::size_t section_features = std::size_t{1} << 16;

struct Chunk {
    std::size_t first_child, children;
    std::size_t first_row, rows;
    std::span<const std::int64_t> section_starts;  // the rows of each section, and the end
};

struct ChunkedWeights {
    std::span<const std::int64_t> child_starts;    // one more than there are parents
    std::span<const std::int64_t> section_starts;  // of every parent in turn, and the end
    std::span<const std::uint16_t> row_features;   // within the section
    std::span<const std::uint16_t> row_starts;     // past the block's; one more than there are rows
    std::span<const std::int64_t> block_starts;
    std::size_t block_bits;  // a block is 2^block_bits rows
    std::span<const std::uint8_t> entry_gaps;
    std::variant<std::span<const float>, std::span<const Half>, std::span<const std::int8_t>>
        entry_weights;
    std::span<const float> scales, biases;  // of each node, for whole numbers; otherwise empty
    std::size_t width;                      // the number of features; the bias has this number

    std::size_t parents() const { return child_starts.size() - 1; }
    std::size_t nodes() const { return static_cast<std::size_t>(child_starts.back()); }
    std::size_t sections() const { return width / section_features + 1; }
    std::size_t entries() const { return entry_gaps.size(); }

    // What holds for the arrays as a whole; `chunk` and `row` check what they read.
    void check() const {
        if (child_starts.empty() || section_starts.size() != parents() * sections() + 1)
            throw std::invalid_argument("child starts and section starts do not fit each other");
        if (row_starts.size() != row_features.size() + 1)
            throw std::invalid_argument("row starts and row features differ in length");
        if (block_bits > 16 || block_starts.size() != (row_features.size() >> block_bits) + 1)
            throw std::invalid_argument("block starts do not fit the rows");
        if (entries() != std::visit([](auto w) { return w.size(); }, entry_weights))
            throw std::invalid_argument("the children and weights of entries differ in length");
        if (child_starts.back() < 0 || child_starts.back() > 0x7fffffff)
            throw std::invalid_argument("the number of nodes is outside 31 bits");
        const bool whole = std::holds_alternative<std::span<const std::int8_t>>(entry_weights);
        if (scales.size() != (whole ? nodes() : 0) || biases.size() != scales.size())
            throw std::invalid_argument(
                "whole weights need a scale and a bias for every node, others none");
    }

    Chunk chunk(std::size_t parent) const {
        const std::int64_t child = child_starts[parent], child_end = child_starts[parent + 1];
        const auto rows = section_starts.subspan(parent * sections(), sections() + 1);
        if (child < 0 || child_end < child || child_end > child_starts.back() || rows.front() < 0 ||
            static_cast<std::size_t>(rows.back()) > row_features.size() ||
            !std::is_sorted(rows.begin(), rows.end()))
            throw std::invalid_argument("chunk " + std::to_string(parent) +
                                        " lies outside the arrays");
        return {static_cast<std::size_t>(child), static_cast<std::size_t>(child_end - child),
                static_cast<std::size_t>(rows.front()),
                static_cast<std::size_t>(rows.back() - rows.front()), rows};
    }

    // Where the entries of a row begin. Not checked: `row` does that.
    std::size_t row_start(std::size_t row) const {
        return static_cast<std::size_t>(block_starts[row >> block_bits]) + row_starts[row];
    }

    // Where the entries of a row begin and end.
    std::pair<std::size_t, std::size_t> row(std::size_t row) const {
        const std::size_t begin = row_start(row), end = row_start(row + 1);
        if (begin > end || end > entries()) [[unlikely]]
            throw_entry();
        return {begin, end};
    }
};

// --- building

inline void narrow(float value, float, float& out) { out = value; }
inline void narrow(float value, float scale, std::int8_t& out) {
    const float whole = scale > 0 ? std::nearbyint(value / scale) : 0;
    out = static_cast<std::int8_t>(std::clamp(whole, -127.0f, 127.0f));
}
inline void narrow(float value, float, Half& out) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) {  // 65,536 and more, and what is not a number
        out.bits = sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
    } else if (magnitude < 0x38800000) {
        // Below the smallest normal number: adding 1/2 leaves the last bits it has as a half.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        out.bits = static_cast<std::uint16_t>(
            sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f)));
    } else {  // to the nearest, ties to even
        magnitude += 0xfff + (magnitude >> 13 & 1);
        out.bits = static_cast<std::uint16_t>(sign | (magnitude - 0x38000000) >> 13);
    }
}

template <class Weight>
struct BuiltChunks {
    std::vector<std::int64_t> section_starts;
    std::vector<std::uint16_t> row_features;
    std::vector<std::uint16_t> row_starts;
    std::vector<std::int64_t> block_starts;
    std::size_t block_bits = 6;
    std::vector<std::uint8_t> gaps;
    std::vector<Weight> weights;
    std::vector<float> scales, biases;

    // Keeps where rows begin in 16 bits: in the largest blocks for which that is enough.
    void set_row_starts(const std::vector<std::int64_t>& starts) {
        auto base = [&](std::size_t row) { return starts[row >> block_bits << block_bits]; };
        for (std::size_t row = 0; row < starts.size(); ++row)
            while (starts[row] - base(row) > 0xffff) --block_bits;
        row_starts.resize(starts.size());
        for (std::size_t row = 0; row < starts.size(); ++row) {
            row_starts[row] = static_cast<std::uint16_t>(starts[row] - base(row));
            if (row == row >> block_bits << block_bits) block_starts.push_back(starts[row]);
        }
    }
};

// Makes chunks of what a source has: `entries(parent)`, about how many, and `visit(parent, first
// feature, past the last, f)`, which calls f(child's place, feature, weight) for those of some
// features, each feature's by rising children. What is visited at a time is a stripe: neighbouring
// features of one parent with about `Source::stripe` entries, so that a parent with very many
// children is many pieces.
template <class Weight, class Source>
void fill_chunks(std::span<const std::int64_t> child_starts, std::size_t columns_count,
                 const Source& source, BuiltChunks<Weight>& built) {
    struct Stripe {
        std::size_t parent, section;
        std::size_t begin, end;  // features
        std::size_t rows = 0, entries = 0;
    };
    std::vector<Stripe> stripes;
    const std::size_t parents = child_starts.size() - 1;
    const std::size_t sections = (columns_count - 1) / section_features + 1;
    for (std::size_t p = 0; p < parents; ++p) {
        const std::size_t entries = source.entries(p);
        for (std::size_t section = 0; section < sections; ++section) {
            const std::size_t first = section * section_features;
            const std::size_t size = std::min(section_features, columns_count - first);
            const std::size_t cuts = std::min(size, entries / sections / Source::stripe + 1);
            for (std::size_t s = 0; s < cuts; ++s)
                stripes.push_back(
                    {p, section, first + size * s / cuts, first + size * (s + 1) / cuts});
        }
    }
    auto for_entries = [&](const Stripe& stripe, auto&& visit) {
        source.visit(stripe.parent, stripe.begin, stripe.end, visit);
    };
    struct Scratch {
        std::vector<std::size_t> counts;  // of every feature; all zero between stripes
        std::vector<std::uint32_t> last;  // child of a feature
        std::vector<std::uint32_t> features;
    };
    // Counts the entries of every feature that occurs, with those that bridge wide gaps.
    auto count = [&](const Stripe& stripe, Scratch& scratch) {
        scratch.counts.resize(columns_count);
        scratch.last.resize(columns_count);
        scratch.features.clear();
        for_entries(stripe, [&](std::size_t child, std::size_t feature, Weight) {
            if (scratch.counts[feature] == 0) {
                scratch.features.push_back(static_cast<std::uint32_t>(feature));
                scratch.last[feature] = 0;
            }
            const std::size_t far = (child - scratch.last[feature]) >> 8;
            scratch.counts[feature] += 1 + (far + 0xfe) / 0xff;
            scratch.last[feature] = static_cast<std::uint32_t>(child);
        });
    };
    ScratchPool<Scratch> pool;
    parallel_for(stripes.size(), 1, [&](std::size_t s, std::size_t) {
        pool.with([&](Scratch& scratch) {
            count(stripes[s], scratch);
            stripes[s].rows = scratch.features.size();
            for (auto feature : scratch.features)
                stripes[s].entries += std::exchange(scratch.counts[feature], 0);
        });
    });

    built.section_starts.assign(parents * sections + 1, 0);
    std::size_t rows = 0, entries = 0;
    for (Stripe& stripe : stripes) {  // from here on: where a stripe's rows and entries begin
        rows += std::exchange(stripe.rows, rows);
        entries += std::exchange(stripe.entries, entries);
        built.section_starts[stripe.parent * sections + stripe.section + 1] =
            static_cast<std::int64_t>(rows);
    }
    built.row_features.resize(rows);
    built.gaps.resize(entries);
    built.weights.resize(entries);
    std::vector<std::int64_t> row_starts(rows + 1, static_cast<std::int64_t>(entries));
    parallel_for(stripes.size(), 1, [&](std::size_t s, std::size_t) {
        pool.with([&](Scratch& scratch) {
            const Stripe& stripe = stripes[s];
            count(stripe, scratch);
            std::sort(scratch.features.begin(), scratch.features.end());
            std::size_t row = stripe.rows, entry = stripe.entries;
            for (auto feature : scratch.features) {
                built.row_features[row] = static_cast<std::uint16_t>(feature % section_features);
                row_starts[row++] = static_cast<std::int64_t>(entry);
                // From counts to places; the last child is found anew.
                entry += std::exchange(scratch.counts[feature], entry);
                scratch.last[feature] = 0;
            }
            for_entries(stripe, [&](std::size_t child, std::size_t feature, Weight weight) {
                std::size_t& place = scratch.counts[feature];
                const std::size_t gap = child - scratch.last[feature];
                for (std::size_t far = gap >> 8, part; far > 0; far -= part) {
                    part = std::min<std::size_t>(far, 0xff);
                    built.gaps[place++] = static_cast<std::uint8_t>(part);  // the weight is zero
                }
                built.gaps[place] = static_cast<std::uint8_t>(gap);
                built.weights[place++] = weight;
                scratch.last[feature] = static_cast<std::uint32_t>(child);
            });
            for (auto feature : scratch.features) scratch.counts[feature] = 0;
        });
    });
    built.set_row_starts(row_starts);
}

// The weights of all nodes, a row a node with rising columns; what comes to zero as a Weight is
// left out.
template <class Weight>
struct WeightsByNode {
    static constexpr std::size_t stripe = std::size_t{1} << 21;
    std::span<const std::int64_t> starts;
    std::span<const std::int32_t> columns;
    std::span<const float> values;
    std::size_t columns_count;
    std::span<const std::int64_t> child_starts;
    std::span<const float> scales;  // of each node, for whole numbers; otherwise empty

    std::size_t entries(std::size_t parent) const {
        return static_cast<std::size_t>(starts[child_starts[parent + 1]] -
                                        starts[child_starts[parent]]);
    }

    template <class Visit>
    void visit(std::size_t parent, std::size_t first_feature, std::size_t end_feature,
               Visit&& f) const {
        const auto first = static_cast<std::size_t>(child_starts[parent]);
        const auto last = static_cast<std::size_t>(child_starts[parent + 1]);
        const auto lowest = static_cast<std::int32_t>(first_feature);
        const auto bias = static_cast<std::int32_t>(columns_count - 1);
        for (std::size_t node = first; node < last; ++node) {
            auto begin = columns.begin() + starts[node], end = columns.begin() + starts[node + 1];
            if (lowest > 0) begin = std::lower_bound(begin, end, lowest);
            for (; begin != end && static_cast<std::size_t>(*begin) < end_feature; ++begin) {
                if (*begin < lowest)
                    throw std::invalid_argument("columns must be sorted and not negative");
                if (!scales.empty() && *begin == bias) continue;
                Weight weight;
                narrow(values[static_cast<std::size_t>(begin - columns.begin())],
                       scales.empty() ? 1 : scales[node], weight);
                if (!is_zero(weight)) f(node - first, static_cast<std::size_t>(*begin), weight);
            }
            if (begin != end && end_feature == columns_count)
                throw std::invalid_argument("a column is outside the width");
        }
    }
};

// Chunks from the weights of all nodes.
template <class Weight>
BuiltChunks<Weight> build_chunks(std::span<const std::int64_t> starts,
                                 std::span<const std::int32_t> columns,
                                 std::span<const float> values, std::size_t columns_count,
                                 std::span<const std::int64_t> child_starts) {
    if (columns.size() != values.size())
        throw std::invalid_argument("columns and values differ in length");
    if (columns_count == 0 || columns_count > 0x7fffffff)
        throw std::invalid_argument("the number of columns is outside 31 bits");
    if (starts.empty() || child_starts.empty() || child_starts.front() != 0 ||
        static_cast<std::size_t>(child_starts.back()) != starts.size() - 1 ||
        !std::is_sorted(child_starts.begin(), child_starts.end()))
        throw std::invalid_argument("child starts must rise from 0 to the number of nodes");
    if (starts.front() != 0 || static_cast<std::size_t>(starts.back()) != columns.size() ||
        !std::is_sorted(starts.begin(), starts.end()))
        throw std::invalid_argument("row starts must rise from 0 to the number of entries");

    BuiltChunks<Weight> built;
    const auto bias = static_cast<std::int32_t>(columns_count - 1);
    if (std::is_same_v<Weight, std::int8_t>) {
        built.scales.assign(starts.size() - 1, 0);
        built.biases.assign(starts.size() - 1, 0);
        for (std::size_t node = 0; node + 1 < starts.size(); ++node) {
            for (auto e = static_cast<std::size_t>(starts[node]);
                 e < static_cast<std::size_t>(starts[node + 1]); ++e) {
                if (!std::isfinite(values[e]))
                    throw std::invalid_argument("a weight of node " + std::to_string(node) +
                                                " is not a finite number");
                if (columns[e] == bias)
                    built.biases[node] = values[e];
                else
                    built.scales[node] = std::max(built.scales[node], std::abs(values[e]));
            }
            built.scales[node] /= 127;
        }
    }
    fill_chunks(
        child_starts, columns_count,
        WeightsByNode<Weight>{starts, columns, values, columns_count, child_starts, built.scales},
        built);
    return built;
}

// --- joining

// Parts with one parent each, whose children are to be those of a single parent: the place of each
// child of each part among all of them.
template <class Weight>
struct Parts {
    static constexpr std::size_t stripe = std::size_t{1} << 17;  // sorted at a time
    std::span<const ChunkedWeights> parts;
    std::span<const std::span<const std::int32_t>> places;

    std::size_t entries(std::size_t) const {
        std::size_t all = 0;
        for (const auto& part : parts) all += part.entries();
        return all;
    }

    template <class Visit>
    void visit(std::size_t parent, std::size_t first_feature, std::size_t end_feature,
               Visit&& f) const {
        std::size_t total = 0;
        for_rows(first_feature, end_feature,
                 [&](std::size_t, std::size_t, std::size_t begin, std::size_t end) {
                     total += end - begin;
                 });
        if (total > stripe && end_feature - first_feature > 1) {  // of features in common use
            const std::size_t middle = first_feature + (end_feature - first_feature) / 2;
            visit(parent, first_feature, middle, f);
            visit(parent, middle, end_feature, f);
            return;
        }
        struct Entry {
            std::uint32_t feature, place;
            Weight weight;
        };
        std::vector<Entry> found;
        found.reserve(total);
        for_rows(
            first_feature, end_feature,
            [&](std::size_t p, std::size_t feature, std::size_t begin, std::size_t end) {
                const auto weights = std::get<std::span<const Weight>>(parts[p].entry_weights);
                std::size_t child = 0;
                for (std::size_t e = begin; e < end; ++e) {
                    child += step(parts[p].entry_gaps[e], weights[e]);
                    if (child >= places[p].size()) throw_entry();
                    if (is_zero(weights[e])) continue;  // bridges a gap
                    found.push_back({static_cast<std::uint32_t>(feature),
                                     static_cast<std::uint32_t>(places[p][child]), weights[e]});
                }
            });
        std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) {
            return std::pair{a.feature, a.place} < std::pair{b.feature, b.place};
        });
        for (const Entry& entry : found) f(entry.place, entry.feature, entry.weight);
    }

    // Calls f(part, feature, first entry, past the last) for the rows of some features of a
    // section.
    template <class Row>
    void for_rows(std::size_t first_feature, std::size_t end_feature, Row&& f) const {
        const std::size_t section = first_feature / section_features;
        const std::size_t base = section * section_features;
        for (std::size_t p = 0; p < parts.size(); ++p) {
            const Chunk chunk = parts[p].chunk(0);
            const auto features = parts[p].row_features.begin();
            const auto last = features + chunk.section_starts[section + 1];
            auto row = std::lower_bound(features + chunk.section_starts[section], last,
                                        first_feature - base);
            for (; row != last && base + *row < end_feature; ++row) {
                const auto [begin, end] = parts[p].row(static_cast<std::size_t>(row - features));
                f(p, base + *row, begin, end);
            }
        }
    }
};

// One chunk from several; weights stay as they are.
template <class Weight>
BuiltChunks<Weight> join_chunks(std::span<const ChunkedWeights> parts,
                                std::span<const std::span<const std::int32_t>> places) {
    if (parts.empty() || parts.size() != places.size())
        throw std::invalid_argument("there must be parts, and places for each of them");
    std::size_t nodes = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
        parts[p].check();
        nodes += parts[p].nodes();
        if (parts[p].parents() != 1 || parts[p].width != parts[0].width ||
            parts[p].nodes() != places[p].size() ||
            !std::holds_alternative<std::span<const Weight>>(parts[p].entry_weights))
            throw std::invalid_argument(
                "parts must have one parent each, the same features and "
                "precision, and a place for every child");
    }
    BuiltChunks<Weight> built;
    if (std::is_same_v<Weight, std::int8_t>) {
        built.scales.assign(nodes, 0);
        built.biases.assign(nodes, 0);
    }
    std::vector<bool> taken(nodes, false);
    for (std::size_t p = 0; p < parts.size(); ++p) {
        for (std::size_t child = 0; child < places[p].size(); ++child) {
            const auto place = static_cast<std::size_t>(places[p][child]);
            if (place >= nodes || taken[place])
                throw std::invalid_argument("every child must have a place of its own");
            taken[place] = true;
            if (built.scales.empty()) continue;
            built.scales[place] = parts[p].scales[child];
            built.biases[place] = parts[p].biases[child];
        }
    }
    const std::int64_t child_starts[2] = {0, static_cast<std::int64_t>(nodes)};
    fill_chunks(child_starts, parts[0].width + 1, Parts<Weight>{parts, places}, built);
    return built;
}

}  // namespace megalabel
