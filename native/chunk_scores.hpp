// The scores of a parent's children, from chunked weights.
//
// Scores are summed in the order of features, every product rounded before it is added (never
// fused, whatever the processor can do), and adding a zero changes nothing: every way to find and
// to add the rows gives the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "chunks.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// --- queries

// Rows to be scored, sparse or dense, each with the same bias at the end.
struct Queries {
    SparseRows sparse;
    std::span<const float> dense;  // n rows of the width, where there are no sparse ones
    std::size_t n;
    float bias;

    bool is_dense() const { return sparse.starts.empty(); }
    std::size_t width() const { return sparse.width; }

    // After this, all rows and columns of sparse queries are known to lie inside.
    void check() const {
        if (is_dense()) {
            if (dense.size() != n * width())
                throw std::invalid_argument("the queries are not n rows of the width");
            return;
        }
        sparse.check();
        if (sparse.size() != n) throw std::invalid_argument("the queries are not n rows");
        parallel_for(n, 4096, [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; ++i) {
                auto [from, to] = sparse.row(i);
                std::uint32_t largest = 0;
                for (std::size_t p = from; p < to; ++p)
                    largest = std::max(largest, static_cast<std::uint32_t>(sparse.columns[p]));
                if (from < to && largest >= width())
                    throw std::invalid_argument("a query has a column outside the width of " +
                                                std::to_string(width()));
            }
        });
    }

    // The columns and values of a sparse query.
    std::pair<std::span<const std::int32_t>, std::span<const float>> row(std::size_t i) const {
        const auto begin = static_cast<std::size_t>(sparse.starts[i]);
        const auto size = static_cast<std::size_t>(sparse.starts[i + 1]) - begin;
        return {sparse.columns.subspan(begin, size), sparse.values.subspan(begin, size)};
    }
    std::size_t nonzeros(std::size_t i) const {
        return is_dense() ? width()
                          : static_cast<std::size_t>(sparse.starts[i + 1] - sparse.starts[i]);
    }
};

// --- sums; in this section products are rounded before they are added

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

// Whether any of `abreast` weights is zero, so that its gap counts more; asked of words that hold
// several of them.
inline constexpr std::size_t abreast = 4;
inline bool any_zero(const std::int8_t* weights) {
    std::uint32_t all;
    std::memcpy(&all, weights, sizeof all);
    return ((all - 0x01010101u) & ~all & 0x80808080u) != 0;
}
template <class Weight>
bool any_zero(const Weight* weights) {
    // Without its sign, a weight carries into the sign's place when all other bits are added,
    // unless it is zero.
    constexpr int bits = 8 * sizeof(Weight);
    constexpr std::uint64_t ones = ~std::uint64_t{0} / ((std::uint64_t{1} << bits) - 1);
    constexpr std::uint64_t signs = ones << (bits - 1), others = signs - ones;
    std::uint64_t words[abreast * sizeof(Weight) / 8], carried = signs;
    std::memcpy(words, weights, sizeof words);
    for (const std::uint64_t word : words) carried &= (word & others) + others;
    return carried != signs;
}

// Asks for memory at a place that may lie outside the array. Fetching from anywhere is harmless,
// but a pointer to there may not even be made: so it stays a number.
template <class T>
void prefetch(const T* first, std::size_t place) {
    const auto address = reinterpret_cast<std::uintptr_t>(first) + place * sizeof(T);
    __builtin_prefetch(reinterpret_cast<const void*>(address));
}

// Adds the entries of some rows, each times its value, to the sums of children. False if a row lies
// outside the entries or an entry belongs to none of the children. `many`: gaps may be wide; most
// of them are not, and entries side by side then cost no more than without any that are.
template <bool many, class Weight>
bool add_rows(const ChunkedWeights& level, std::size_t first_row, std::span<const Weight> weights,
              const std::uint32_t* rows, const float* values, std::size_t count, float* sums,
              std::size_t sums_count) {
    const auto gaps = level.entry_gaps;
    // Rows are short and far apart: those of some hits are fetched before the first is added.
    constexpr std::size_t together = 64;
    std::size_t begins[together], ends[together];
    for (std::size_t first = 0; first < count; first += together) {
        const std::size_t n = std::min(together, count - first);
        for (std::size_t h = 0; h < n; ++h) {
            begins[h] = level.row_start(first_row + rows[first + h]);
            ends[h] = level.row_start(first_row + rows[first + h] + 1);
            prefetch(gaps.data(), begins[h]);
            prefetch(weights.data(), begins[h]);
        }
        for (std::size_t h = 0; h < n; ++h) {
            if (begins[h] > ends[h] || ends[h] > gaps.size()) [[unlikely]]
                return false;
            const float value = values[first + h];
            std::size_t child = 0;
            for (std::size_t e = begins[h]; e < ends[h];) {
                if constexpr (many) {
                    if (ends[h] - e >= abreast && !any_zero(weights.data() + e)) {
                        // Children rise: the last one tells whether all of them lie inside.
                        std::size_t children[abreast], last = child;
                        for (std::size_t i = 0; i < abreast; ++i) children[i] = last += gaps[e + i];
                        if (last >= sums_count) [[unlikely]]
                            return false;
                        for (std::size_t i = 0; i < abreast; ++i) {
                            const float product = value * widen(weights[e + i]);
                            sums[children[i]] += product;
                        }
                        child = last;
                        e += abreast;
                        continue;
                    }
                }
                child += many ? step(gaps[e], weights[e]) : gaps[e];
                if (child >= sums_count) [[unlikely]]
                    return false;
                const float product = value * widen(weights[e]);
                sums[child] += product;
                ++e;
            }
        }
    }
    return true;
}

// Several numbers at once, and the same lying anywhere in an array; spelt out where they are used,
// as `auto` and templates forget that.
typedef float Floats16 __attribute__((vector_size(64)));
typedef float Floats8 __attribute__((vector_size(32)));
typedef Floats16 Floats16Anywhere __attribute__((aligned(4), may_alias));
typedef Floats8 Floats8Anywhere __attribute__((aligned(4), may_alias));

// The same for rows written out: table[row][child], `stride` children, a multiple of 8.
MEGALABEL_CLONES inline void add_table_rows(const float* table, std::size_t stride,
                                            const std::uint32_t* rows, const float* values,
                                            std::size_t count, float* sums) {
    std::size_t c = 0;
    for (; c + 64 <= stride; c += 64) {
        Floats16Anywhere* out = reinterpret_cast<Floats16Anywhere*>(sums + c);
        Floats16 sum0 = out[0], sum1 = out[1], sum2 = out[2], sum3 = out[3];
        for (std::size_t h = 0; h < count; ++h) {
            const Floats16Anywhere* row =
                reinterpret_cast<const Floats16Anywhere*>(table + rows[h] * stride + c);
            sum0 += values[h] * row[0];
            sum1 += values[h] * row[1];
            sum2 += values[h] * row[2];
            sum3 += values[h] * row[3];
        }
        out[0] = sum0, out[1] = sum1, out[2] = sum2, out[3] = sum3;
    }
    for (; c + 16 <= stride; c += 16) {
        Floats16Anywhere* out = reinterpret_cast<Floats16Anywhere*>(sums + c);
        Floats16 sum = *out;
        for (std::size_t h = 0; h < count; ++h)
            sum += values[h] *
                   *reinterpret_cast<const Floats16Anywhere*>(table + rows[h] * stride + c);
        *out = sum;
    }
    if (c < stride) {
        Floats8Anywhere* out = reinterpret_cast<Floats8Anywhere*>(sums + c);
        Floats8 sum = *out;
        for (std::size_t h = 0; h < count; ++h)
            sum +=
                values[h] * *reinterpret_cast<const Floats8Anywhere*>(table + rows[h] * stride + c);
        *out = sum;
    }
}

// Scores from the sums of whole weights, and what the bias adds to them.
inline void scale_sums(const float* sums, const float* scales, const float* biases, float bias,
                       std::size_t count, float* out) {
    for (std::size_t c = 0; c < count; ++c) {
        const float scaled = sums[c] * scales[c], added = bias * biases[c];
        out[c] = scaled + added;
    }
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

// --- scoring

// What one thread needs to score. Between calls all of `query` is zero and all of `row_of` is -1.
struct ScoreScratch {
    // Rows of a chunk that a query has, with the query's values.
    struct Hits {
        std::vector<std::uint32_t> rows;
        std::vector<float> values;
        std::size_t count = 0;

        void start(std::size_t most) {
            if (rows.size() < most) rows.resize(most), values.resize(most);
            count = 0;
        }
        // Keeps the pair if it is wanted; without a branch, as half of them may not be.
        void add(std::size_t row, float value, bool wanted) {
            rows[count] = static_cast<std::uint32_t>(row);
            values[count] = value;
            count += wanted;
        }
    };

    Hits hits;
    std::vector<float> query;          // the one query being answered, by feature
    std::vector<std::int32_t> row_of;  // the chunk's row of each feature
    std::vector<float> table;          // a chunk written out, a row a feature
    std::vector<float> sums;

    // Kept for the next call: a single query must not pay for memory as long as the features.
    static ScoreScratch& mine() {
        thread_local ScoreScratch scratch;
        return scratch;
    }
};

// Writes a sparse query out by feature, for as long as this lives.
class SpreadQuery {
  public:
    SpreadQuery(const Queries& queries, std::size_t i, ScoreScratch& scratch)
        : scratch_(scratch), columns_(queries.row(i).first) {
        if (scratch.query.size() <= queries.width()) scratch.query.resize(queries.width() + 1);
        auto values = queries.row(i).second;
        for (std::size_t p = 0; p < columns_.size(); ++p)
            scratch.query[static_cast<std::size_t>(columns_[p])] = values[p];
    }
    ~SpreadQuery() {
        for (auto column : columns_) scratch_.query[static_cast<std::size_t>(column)] = 0;
    }
    SpreadQuery(const SpreadQuery&) = delete;
    SpreadQuery& operator=(const SpreadQuery&) = delete;

  private:
    ScoreScratch& scratch_;
    std::span<const std::int32_t> columns_;
};

// 0 where there are none.
MEGALABEL_CLONES inline std::uint16_t largest_feature(const std::uint16_t* features,
                                                      std::size_t n) {
    std::uint16_t largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, features[i]);
    return largest;
}

// Scores the children of one parent for one query after the other.
class ParentScorer {
  public:
    ParentScorer(const ChunkedWeights& weights, std::size_t parent, const Queries& queries,
                 ScoreScratch& scratch)
        : weights_(weights), chunk_(weights.chunk(parent)), queries_(queries), scratch_(scratch) {
        features_ = weights.row_features.data() + chunk_.first_row;
        // The bias has the highest number, so its row can only be the last of the last section.
        feature_rows_ = chunk_.rows;
        const auto [begin, end, base] = section(weights.sections() - 1);
        if (begin < end && base + features_[end - 1] == weights.width) {
            --feature_rows_;
            has_bias_ = queries.bias != 0;
        }
        stride_ = (chunk_.children + 7) & ~std::size_t{7};
    }
    ~ParentScorer() {
        if (mapped_)
            for_features([&](std::size_t, std::size_t feature) { scratch_.row_of[feature] = -1; });
    }
    ParentScorer(const ParentScorer&) = delete;
    ParentScorer& operator=(const ParentScorer&) = delete;

    const Chunk& chunk() const { return chunk_; }

    // Gets ready for several queries with so many features in all, where that costs less than it
    // saves.
    void prepare(std::size_t queries, std::size_t nonzeros) {
        if (!queries_.is_dense() && 2 * chunk_.rows < nonzeros * search_steps()) map();
        write_out(std::min(nonzeros, queries * chunk_.rows));
    }

    // The scores of query i; `spread` says that the scratch holds it by feature.
    void score(std::size_t i, bool spread, float* out) {
        if (queries_.is_dense())
            scan(queries_.dense.data() + i * queries_.width());
        else if (mapped_)
            look_up(i);
        else if (spread && chunk_.rows < queries_.nonzeros(i) * search_steps())
            scan(scratch_.query.data());
        else
            search(i);
        if (has_bias_) scratch_.hits.add(feature_rows_, queries_.bias, true);
        scratch_.sums.assign(stride_, 0.0f);
        if (written_out_)
            add_table_rows(scratch_.table.data(), stride_, scratch_.hits.rows.data(),
                           scratch_.hits.values.data(), scratch_.hits.count, scratch_.sums.data());
        else
            add_entries();
        if (weights_.scales.empty()) {
            std::copy_n(scratch_.sums.data(), chunk_.children, out);
        } else {
            scale_sums(scratch_.sums.data(), weights_.scales.data() + chunk_.first_child,
                       weights_.biases.data() + chunk_.first_child, queries_.bias, chunk_.children,
                       out);
        }
    }

  private:
    // About what it costs to search for a feature, in loads from a list read in order.
    std::size_t search_steps() const {
        return static_cast<std::size_t>(std::bit_width(chunk_.rows));
    }

    struct Section {
        std::size_t begin, end;  // rows of the chunk
        std::size_t base;        // what is added to their features
    };
    Section section(std::size_t number) const {
        const auto* starts = chunk_.section_starts.data() + number;
        return {
            static_cast<std::size_t>(starts[0] - chunk_.section_starts[0]),
            std::min(feature_rows_, static_cast<std::size_t>(starts[1] - chunk_.section_starts[0])),
            number * section_features};
    }

    // Calls visit(row, feature) for all rows but that of the bias.
    template <class Visit>
    void for_features(Visit&& visit) const {
        for (std::size_t s = 0; s < weights_.sections(); ++s) {
            const auto [begin, end, base] = section(s);
            for (std::size_t r = begin; r < end; ++r) visit(r, base + features_[r]);
        }
    }

    // Before a feature is used as a position. Only the last section can lie outside in part.
    void check_features() const {
        const auto [begin, end, base] = section(weights_.sections() - 1);
        if (begin < end && base + largest_feature(features_ + begin, end - begin) >= weights_.width)
            throw std::invalid_argument("a weight belongs to a feature outside the width of " +
                                        std::to_string(weights_.width));
    }

    void map() {
        check_features();
        auto& row_of = scratch_.row_of;
        if (row_of.size() <= weights_.width) row_of.resize(weights_.width + 1, -1);
        mapped_ = true;
        for_features([&](std::size_t row, std::size_t feature) {
            row_of[feature] = static_cast<std::int32_t>(row);
        });
    }

    // Writes the chunk out as a table: all children of a row are then added at once. Figures are
    // about processor cycles.
    void write_out(std::size_t hits) {
        const std::size_t cells = chunk_.rows * stride_;
        if (chunk_.rows == 0 || cells > most_cells) return;
        const std::size_t begin = weights_.row(chunk_.first_row).first;
        const std::size_t end = weights_.row(chunk_.first_row + chunk_.rows - 1).second;
        if (end < begin) throw_entry();
        const std::size_t entries = end - begin;
        const std::size_t by_entry = hits * (12 + 2 * entries / chunk_.rows);
        const std::size_t by_table = hits * (2 + stride_ / 16) + 3 * entries + cells / 8;
        if (by_entry < by_table) return;
        scratch_.table.assign(cells, 0.0f);
        std::visit(
            [&](auto weights) {
                std::size_t from, to = begin;
                for (std::size_t r = 0; r < chunk_.rows; ++r) {
                    from = std::exchange(to, weights_.row_start(chunk_.first_row + r + 1));
                    if (to < from || to > end) throw_entry();
                    float* row = scratch_.table.data() + r * stride_;
                    std::size_t child = 0;
                    for (std::size_t e = from; e < to; ++e) {
                        child += step(weights_.entry_gaps[e], weights[e]);
                        if (child >= chunk_.children) throw_entry();
                        row[child] = widen(weights[e]);
                    }
                }
            },
            weights_.entry_weights);
        written_out_ = true;
    }

    // Three ways to find the rows that a query has: all of the chunk's rows looked up in the query,
    // all of the query's features looked up in the map, or searched for.
    void scan(const float* query) {
        check_features();
        auto& hits = scratch_.hits;
        hits.start(chunk_.rows + 1);
        for_features([&](std::size_t row, std::size_t feature) {
            hits.add(row, query[feature], query[feature] != 0);
        });
    }

    void look_up(std::size_t i) {
        auto& hits = scratch_.hits;
        auto [columns, values] = queries_.row(i);
        hits.start(columns.size() + 2);
        const std::int32_t* row_of = scratch_.row_of.data();
        for (std::size_t p = 0; p < columns.size(); ++p) {
            const std::int32_t row = row_of[columns[p]];
            hits.add(static_cast<std::size_t>(row), values[p], row >= 0);
        }
    }

    void search(std::size_t i) {
        auto& hits = scratch_.hits;
        auto [columns, values] = queries_.row(i);
        hits.start(columns.size() + 2);
        for (std::size_t s = 0, p = 0; s < weights_.sections(); ++s) {
            const auto [at, end, base] = section(s);
            const auto next = std::partition_point(
                columns.begin() + static_cast<std::ptrdiff_t>(p), columns.end(),
                [limit = base + section_features](std::int32_t column) {
                    return static_cast<std::size_t>(column) < limit;
                });
            const auto last = static_cast<std::size_t>(next - columns.begin());
            const std::size_t n = at < end ? last - p : 0;
            // All of them step by step and without branches, so that the processor need not wait
            // for one search's loads before it starts those of another. A place is that of the
            // last row whose feature is not above the wanted one.
            std::uint32_t* places = hits.rows.data() + hits.count;
            std::fill_n(places, n, static_cast<std::uint32_t>(at));
            const auto wanted = [&, p = p](std::size_t j) {
                return static_cast<std::size_t>(columns[p + j]) - base;
            };
            // Where the searches will meet most lines of memory, in order is the fastest way.
            constexpr std::size_t line = 64 / sizeof(std::uint16_t);
            for (std::size_t r = at; r < end && end - at < 4 * n * line; r += line)
                __builtin_prefetch(features_ + r);
            for (std::size_t length = end - at; n > 0 && length > 1; length -= length / 2) {
                const auto half = static_cast<std::uint32_t>(length / 2);
                for (std::size_t j = 0; j < n; ++j)
                    places[j] += (features_[places[j] + half] <= wanted(j)) * half;
            }
            for (std::size_t j = 0; j < n; ++j) {  // no place is written before it is read
                __builtin_prefetch(weights_.row_starts.data() + chunk_.first_row + places[j]);
                hits.add(places[j], values[p + j], features_[places[j]] == wanted(j));
            }
            p = last;
        }
    }

    void add_entries() {
        const auto& hits = scratch_.hits;
        const bool inside = std::visit(
            [&](auto weights) {
                const auto add = [&](auto many) {
                    return add_rows<many()>(weights_, chunk_.first_row, weights, hits.rows.data(),
                                            hits.values.data(), hits.count, scratch_.sums.data(),
                                            chunk_.children);
                };
                return chunk_.children > 256 ? add(std::true_type{}) : add(std::false_type{});
            },
            weights_.entry_weights);
        if (!inside) throw_entry();
    }

    static constexpr std::size_t most_cells = std::size_t{1} << 19;  // 2 MiB: a cache's worth

    const ChunkedWeights& weights_;
    const Chunk chunk_;
    const Queries& queries_;
    ScoreScratch& scratch_;
    const std::uint16_t* features_;
    std::size_t feature_rows_;  // all but that of the bias
    std::size_t stride_;
    bool has_bias_ = false, mapped_ = false, written_out_ = false;
};

// Pairs of a query and a parent to be scored.
struct Pair {
    std::uint32_t query, parent;
    std::size_t place;  // where the scores of the parent's children go
};

// Scores pairs, those of one parent together.
inline void score_pairs(const ChunkedWeights& weights, const Queries& queries,
                        std::span<const Pair> pairs, float* out) {
    // A counting sort by parent.
    std::vector<std::uint32_t> ends(weights.parents() + 1, 0);
    for (const Pair& pair : pairs) ++ends[pair.parent + 1];
    for (std::size_t p = 0; p < weights.parents(); ++p) ends[p + 1] += ends[p];
    std::vector<std::uint32_t> order(pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i)
        order[ends[pairs[i].parent]++] = static_cast<std::uint32_t>(i);

    // Pieces: some pairs of one parent; enough of them to be worth preparing for, but not so many
    // that one thread works while others wait.
    constexpr std::size_t most_pairs = 512, most_scores = std::size_t{1} << 18;
    std::vector<std::uint32_t> pieces;
    for (std::size_t begin = 0; begin < order.size();) {
        const std::size_t parent = pairs[order[begin]].parent;
        const std::size_t children = weights.chunk(parent).children;
        const std::size_t most =
            std::clamp<std::size_t>(most_scores / (children + 1), 1, most_pairs);
        pieces.push_back(static_cast<std::uint32_t>(begin));
        begin = std::min<std::size_t>(ends[parent], begin + most);
    }
    pieces.push_back(static_cast<std::uint32_t>(order.size()));
    parallel_for(pieces.size() - 1, 1, [&](std::size_t piece, std::size_t) {
        const std::size_t begin = pieces[piece], end = pieces[piece + 1];
        ParentScorer scorer(weights, pairs[order[begin]].parent, queries, ScoreScratch::mine());
        std::size_t nonzeros = 0;
        for (std::size_t i = begin; i < end; ++i)
            nonzeros += queries.nonzeros(pairs[order[i]].query);
        if (end - begin > 1) scorer.prepare(end - begin, nonzeros);
        for (std::size_t i = begin; i < end; ++i) {
            const Pair& pair = pairs[order[i]];
            scorer.score(pair.query, false, out + pair.place);
        }
    });
}

// The same for pairs as Python has them; the scores follow each other.
inline std::vector<float> score_pairs(const ChunkedWeights& weights, const Queries& queries,
                                      std::span<const std::int64_t> rows,
                                      std::span<const std::int64_t> parents) {
    weights.check();
    queries.check();
    if (weights.width != queries.width())
        throw std::invalid_argument("weights and queries differ in their number of features");
    if (rows.size() != parents.size() || rows.size() > 0xffffffff)
        throw std::invalid_argument("pairs must be a row and a parent each");
    std::vector<Pair> pairs;
    pairs.reserve(rows.size());
    std::size_t place = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (static_cast<std::size_t>(rows[i]) >= queries.n ||
            static_cast<std::size_t>(parents[i]) >= weights.parents())
            throw std::invalid_argument("pair " + std::to_string(i) + " is outside the matrices");
        pairs.push_back(
            {static_cast<std::uint32_t>(rows[i]), static_cast<std::uint32_t>(parents[i]), place});
        place += weights.chunk(static_cast<std::size_t>(parents[i])).children;
    }
    std::vector<float> scores(place);
    score_pairs(weights, queries, pairs, scores.data());
    return scores;
}

}  // namespace megalabel
