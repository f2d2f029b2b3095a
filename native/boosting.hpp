// Boosted trees, applied to rows: the sum of the leaves that a row falls into, one of each tree.
//
// A row is not led down a tree. The leaves of a tree, from left to right, are bits of a word. Every
// node at which a row goes right takes the bits of the leaves on its left away; the lowest bit that
// is left is the row's leaf (Lucchese et al. 2015, QuickScorer). So all nodes of a tree are looked
// at, in any order and without a branch, for sixteen rows at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lanes.hpp"
#include "parallel.hpp"

namespace megalabel::boosting {

inline constexpr std::size_t most_leaves = 256;  // of a tree: words grow with its square
inline constexpr std::size_t word_bits = 32;

// Trees as they are kept. The nodes of a tree follow each other, its root first and every child
// after its parent.
struct TreeArrays {
    std::span<const std::int64_t> starts;        // of the nodes of each tree, and their end
    std::span<const std::int32_t> feature;       // that a node looks at; -1: it is a leaf
    std::span<const float> threshold;            // a value of at most that goes left
    std::span<const std::int32_t> left, right;   // children, counted from the root of their tree
    std::span<const std::uint8_t> missing_left;  // where a value goes that is not a number
    std::span<const float> value;                // of leaves
    float base;                                  // what is added to the sum over trees
    std::size_t features;
};

// Rows of values; NaN stands for a missing one.
struct Rows {
    std::span<const float> values;
    std::size_t count, width;
};

// Trees as they are applied.
class Forest {
  public:
    Forest() = default;

    // Refuses trees that are none: arrays of a stranger's folder may hold anything.
    explicit Forest(const TreeArrays& trees) : base_(trees.base), features_(trees.features) {
        const std::size_t nodes = trees.feature.size();
        if (trees.starts.empty() || trees.starts.front() != 0 ||
            trees.starts.back() != static_cast<std::int64_t>(nodes) ||
            trees.threshold.size() != nodes || trees.left.size() != nodes ||
            trees.right.size() != nodes || trees.missing_left.size() != nodes ||
            trees.value.size() != nodes)
            throw std::invalid_argument("the arrays of boosted trees must be of the same nodes");
        if (!std::isfinite(base_))
            throw std::invalid_argument("the base of boosted trees must be a number");
        for (std::size_t t = 0; t + 1 < trees.starts.size(); ++t) {
            const auto begin = trees.starts[t], end = trees.starts[t + 1];
            if (begin < 0 || end <= begin || end > static_cast<std::int64_t>(nodes))
                throw std::invalid_argument("the starts of boosted trees must rise");
            add(trees, t, static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
        }
    }

    std::size_t features() const { return features_; }
    std::size_t words() const { return words_.size(); }

    // Margins of newton::lanes rows, which lie side by side: columns[feature * lanes + row].
    void score_lanes(const float* columns, float* margins) const {
        std::fill_n(margins, newton::lanes, base_);
        add_leaves(words_.data(), words_.size(), nodes_.data(), values_.data(), columns, margins);
    }

  private:
    struct Node {
        std::uint32_t feature;
        float threshold;
        std::uint32_t kept;  // the leaves of the word that are left where a row goes right
    };
    // Up to 32 leaves of a tree, and the nodes with leaves of the word on their left: first those
    // at which missing values go left.
    struct Word {
        std::uint32_t begin, middle, end;
        std::uint32_t opens;  // whether it has the first leaves of a tree
    };

    typedef std::uint32_t Bits __attribute__((vector_size(sizeof(newton::Integers))));

    MEGALABEL_CLONES static void add_leaves(const Word* words, std::size_t count, const Node* nodes,
                                            const float* values, const float* columns,
                                            float* margins) {
        using newton::Integers, newton::Vector;
        const Vector* column = newton::vectors(columns);
        Vector sum = *newton::vectors(margins);
        Integers open = {};
        for (std::size_t w = 0; w < count; ++w, values += word_bits) {
            const Word& word = words[w];
            Integers leaves = Integers{} - 1;
            for (std::uint32_t i = word.begin; i < word.middle; ++i) {
                const Node& node = nodes[i];
                leaves &=
                    ~(column[node.feature] > node.threshold) | static_cast<std::int32_t>(node.kept);
            }
            for (std::uint32_t i = word.middle; i < word.end; ++i) {
                const Node& node = nodes[i];
                leaves &=
                    (column[node.feature] <= node.threshold) | static_cast<std::int32_t>(node.kept);
            }
            if (word.opens != 0) open = Integers{} - 1;
            const Integers here = open & (leaves != 0);
            open &= ~here;
            // The lowest bit, found without a sign that could overflow. The exponent that it has as
            // a float is its place.
            Bits bits;
            std::memcpy(&bits, &leaves, sizeof bits);
            bits &= -bits;
            Integers bit;
            std::memcpy(&bit, &bits, sizeof bit);
            const Vector lowest = __builtin_convertvector(bit, Vector);
            Integers place;
            std::memcpy(&place, &lowest, sizeof place);
            place = (((place >> 23) & 255) - 127) & here;
            Vector of_leaf;
            for (std::size_t k = 0; k < newton::lanes; ++k) of_leaf[k] = values[place[k]];
            sum += here != 0 ? of_leaf : Vector{};
        }
        *newton::vectors(margins) = sum;
    }

    void add(const TreeArrays& trees, std::size_t tree, std::size_t begin, std::size_t size) {
        const auto refuse = [&](const char* why) {
            throw std::invalid_argument("tree " + std::to_string(tree) + " of boosted trees " +
                                        why);
        };
        // Leaves under each node, from the last node to the root.
        std::vector<std::uint32_t> leaves(size, 1), first(size, 0);
        std::vector<std::uint8_t> parents(size, 0);
        for (std::size_t i = size; i-- > 0;) {
            const std::size_t node = begin + i;
            if (trees.feature[node] == -1) {
                if (!std::isfinite(trees.value[node])) refuse("has a leaf without a number");
                continue;
            }
            if (trees.feature[node] < 0 ||
                static_cast<std::size_t>(trees.feature[node]) >= features_)
                refuse("looks at a feature that is not there");
            if (std::isnan(trees.threshold[node])) refuse("has a threshold that is not a number");
            leaves[i] = 0;
            for (const std::int32_t child : {trees.left[node], trees.right[node]}) {
                if (child < 0 || static_cast<std::size_t>(child) <= i ||
                    static_cast<std::size_t>(child) >= size)
                    refuse("has a child that does not come after its parent");
                if (parents[static_cast<std::size_t>(child)]++ != 0)
                    refuse("has a node with two parents");
                leaves[i] += leaves[static_cast<std::size_t>(child)];
            }
            if (leaves[i] > most_leaves) refuse("has more leaves than are allowed");
        }
        for (std::size_t i = 1; i < size; ++i)
            if (parents[i] != 1) refuse("has a node without a parent");

        // The first leaf under each node, from the root to the last.
        const std::size_t place = values_.size();
        values_.resize(place + (leaves[0] - 1) / word_bits * word_bits + word_bits, 0.f);
        std::vector<std::size_t> splits[2];  // by where missing values go: right, left
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t node = begin + i;
            if (trees.feature[node] == -1) {
                values_[place + first[i]] = trees.value[node];
                continue;
            }
            const auto left = static_cast<std::size_t>(trees.left[node]);
            first[left] = first[i];
            first[static_cast<std::size_t>(trees.right[node])] = first[i] + leaves[left];
            splits[trees.missing_left[node] != 0].push_back(i);
        }
        for (std::uint32_t bit = 0; bit < leaves[0]; bit += word_bits) {
            Word word{};
            word.opens = bit == 0;
            word.begin = static_cast<std::uint32_t>(nodes_.size());
            for (const bool missing_left : {true, false}) {
                for (const std::size_t i : splits[missing_left]) {
                    const std::size_t node = begin + i;
                    const auto left = static_cast<std::size_t>(trees.left[node]);
                    const std::uint32_t kept = ~bits_of(first[left], leaves[left], bit);
                    if (kept != ~std::uint32_t{0})
                        nodes_.push_back({static_cast<std::uint32_t>(trees.feature[node]),
                                          trees.threshold[node], kept});
                }
                (missing_left ? word.middle : word.end) = static_cast<std::uint32_t>(nodes_.size());
            }
            words_.push_back(word);
        }
    }

    // Of a run of leaves those that are in the word which begins at a leaf, as bits.
    static std::uint32_t bits_of(std::uint32_t begin, std::uint32_t count, std::uint32_t word) {
        const auto inside = [&](std::uint32_t leaf) {  // leaves of the word before that one
            return std::clamp<std::uint32_t>(leaf, word, word + word_bits) - word;
        };
        const auto below = [](std::uint32_t bits) {
            return static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
        };
        return below(inside(begin + count)) & ~below(inside(begin));
    }

    float base_ = 0;
    std::size_t features_ = 0;
    std::vector<Word> words_;
    std::vector<Node> nodes_;
    std::vector<float> values_;  // word_bits of each word
};

// The margin of each row. A row's does not depend on the rows beside it.
inline void margins_of(const Forest& trees, const Rows& rows, std::span<float> out) {
    constexpr std::size_t lanes = newton::lanes;
    if (rows.width != trees.features())
        throw std::invalid_argument("rows have " + std::to_string(rows.width) +
                                    " features, boosted trees " + std::to_string(trees.features()));
    if (rows.values.size() != rows.count * rows.width || out.size() != rows.count)
        throw std::invalid_argument("there must be a margin for each row");
    const std::size_t width = rows.width, blocks = (rows.count + lanes - 1) / lanes;
    constexpr std::size_t work = 1 << 13;  // words that one piece looks at, some tenths of a ms
    const std::size_t grain = std::clamp<std::size_t>(work / (trees.words() + 1), 1, 256);
    parallel_for(blocks, grain, [&](std::size_t begin, std::size_t end) {
        thread_local newton::Buffer columns;
        columns.resize(width * lanes);
        float margins[lanes];
        for (std::size_t block = begin; block < end; ++block) {
            const std::size_t first = block * lanes, count = std::min(lanes, rows.count - first);
            for (std::size_t row = 0; row < lanes; ++row) {  // missing rows repeat the last
                const float* from = rows.values.data() + (first + std::min(row, count - 1)) * width;
                for (std::size_t f = 0; f < width; ++f) columns[f * lanes + row] = from[f];
            }
            trees.score_lanes(columns.data(), margins);
            std::copy_n(margins, count, out.data() + first);
        }
    });
}

}  // namespace megalabel::boosting
