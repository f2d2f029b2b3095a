// Dense vectors in lists, searched by inner product.
//
// Vectors lie list after list in one or more segments; a segment is what was added at once, or a
// merge of such. A query looks into the lists whose centres have the largest products with it. It
// sees the same vectors and the same products whatever other queries are asked along and however
// many threads there are, and ties go to the lower key: so do the answers.
//
// Queries are taken in blocks. In a block, each list's vectors are read once for all the queries
// that look into it, as tiles of a product (products.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lanes.hpp"
#include "parallel.hpp"
#include "products.hpp"
#include "ranked.hpp"

namespace megalabel::vectors {

using products::cells;
using products::group;
using products::rounded_up;
using products::Rows;

inline constexpr std::size_t unit = products::lanes;  // rows end in zeros up to a multiple of it
inline constexpr std::size_t piece = 128;             // vectors that are multiplied at a time
inline constexpr std::size_t most_queries = 1024;     // of a block
inline constexpr float lowest = -std::numeric_limits<float>::infinity();

template <class T>
struct Segment {
    Rows<T> vectors;
    std::span<const std::int32_t> keys;    // below 0: the vector was removed
    std::span<const std::int64_t> starts;  // of the lists

    std::size_t begin(std::size_t list) const { return static_cast<std::size_t>(starts[list]); }

    // After this no position needs another look.
    void check(std::size_t lists, std::size_t width) const {
        if (vectors.width != width || width % unit != 0)
            throw std::invalid_argument("rows of " + std::to_string(vectors.width) +
                                        " places, where the index has " + std::to_string(width));
        if (keys.size() != vectors.count)
            throw std::invalid_argument("keys and vectors of an index differ in number");
        if (starts.size() != lists + 1 || starts.front() != 0 ||
            starts.back() != static_cast<std::int64_t>(keys.size()) ||
            !std::is_sorted(starts.begin(), starts.end()))
            throw std::invalid_argument("starts of lists do not fit their vectors");
    }
};

// Keys with a mark: what a search may find. No marks: all.
struct Allowed {
    std::span<const std::uint8_t> marks;

    bool operator()(std::int32_t key) const {
        return key >= 0 && (marks.empty() || (static_cast<std::size_t>(key) < marks.size() &&
                                              marks[static_cast<std::size_t>(key)] != 0));
    }
};

// Rows that may be read past their count up to whole tiles: where they lie, or a copy with zeros.
template <class T>
const T* whole_tiles(Rows<T> all, std::size_t first, std::size_t count, Paged<T>& held) {
    const std::size_t whole = rounded_up(count, cells);
    const T* from = all.data + first * all.width;
    if (first + whole <= all.count) return from;
    held.resize(whole * all.width);
    std::copy_n(from, count * all.width, held.data());
    std::fill(held.begin() + static_cast<std::ptrdiff_t>(count * all.width), held.end(), T{});
    return held.data();
}

// The largest of some scores, of which there are a multiple of 16.
MEGALABEL_CLONES inline float largest(const float* scores, std::size_t n) {
    newton::Vector most = newton::Vector{} + lowest;
    for (std::size_t j = 0; j < n / newton::lanes; ++j) {
        const newton::Vector v = newton::vectors(scores)[j];
        most = v > most ? v : most;
    }
    float result = most[0];
    for (std::size_t lane = 1; lane < newton::lanes; ++lane) result = std::max(result, most[lane]);
    return result;
}

// Where scores reach the bar, of which there are a multiple of 16; returns how many do.
MEGALABEL_CLONES inline std::size_t reaching(const float* scores, std::size_t n, float bar,
                                             std::uint32_t* places) {
    std::size_t count = 0;
    for (std::size_t j = 0; j < n; j += newton::lanes) {
        const newton::Integers high = *newton::vectors(scores + j) >= bar;
        std::uint32_t bits = newton::all_bits(high & newton::lane_bits);
        for (; bits != 0; bits &= bits - 1)
            places[count++] =
                static_cast<std::uint32_t>(j) + static_cast<std::uint32_t>(__builtin_ctz(bits));
    }
    return count;
}

// Some rows in single precision, as the left side of products; and those products with centres.
class AllProducts {
  public:
    template <class T>
    void load(Rows<T> rows) {
        count_ = rows.count;
        width_ = rows.width;
        rows_.resize(rounded_up(count_, group) * width_);
        products::widen_all(rows.data, count_ * width_, rows_.data());
        std::fill(rows_.begin() + static_cast<std::ptrdiff_t>(count_ * width_), rows_.end(), 0.f);
    }

    // Calls use(row, first, scores, count) for each row and some centres at a time; the scores go
    // on as -infinity up to a multiple of 16.
    template <class Use>
    void with(Rows<float> centres, Use&& use) {
        scores_.resize(count_ * piece);
        for (std::size_t first = 0; first < centres.count; first += piece) {
            const std::size_t there = std::min(piece, centres.count - first);
            const float* tiles = whole_tiles(centres, first, there, held_);
            products::multiply<float>({rows_.data(), count_, width_, tiles, there, width_, width_,
                                       nullptr, scores_.data(), piece});
            for (std::size_t i = 0; i < count_; ++i) {
                float* row = scores_.data() + i * piece;
                std::fill(row + there, row + rounded_up(there, newton::lanes), lowest);
                use(i, first, row, there);
            }
        }
    }

  private:
    std::size_t count_ = 0, width_ = 0;
    Paged<float> rows_, held_, scores_;
};

// For each vector the centre with the largest product; ties to the lower number.
template <class T>
std::vector<std::int32_t> nearest_centres(Rows<T> vectors, Rows<float> centres) {
    if (vectors.width != centres.width || vectors.width % unit != 0 || centres.count == 0)
        throw std::invalid_argument("vectors and centres differ in width");
    std::vector<std::int32_t> nearest(vectors.count, 0);
    ScratchPool<AllProducts> pool;
    parallel_for(vectors.count, 64, [&](std::size_t begin, std::size_t end) {
        pool.with([&](AllProducts& all) {
            float best[64];
            std::fill(best, best + (end - begin), lowest);
            all.load(vectors.some(begin, end - begin));
            all.with(centres, [&](std::size_t i, std::size_t first, const float* scores,
                                  std::size_t count) {
                const float most = largest(scores, rounded_up(count, newton::lanes));
                if (!(most > best[i])) return;
                best[i] = most;
                nearest[begin + i] = static_cast<std::int32_t>(
                    first +
                    static_cast<std::size_t>(std::find(scores, scores + count, most) - scores));
            });
        });
    });
    return nearest;
}

// How many vectors of each list a search may find.
template <class T>
std::vector<std::int64_t> count_allowed(const std::vector<Segment<T>>& segments, std::size_t lists,
                                        Allowed allowed) {
    for (const auto& segment : segments) segment.check(lists, segment.vectors.width);
    std::vector<std::int64_t> counts(lists, 0);
    parallel_for(lists, 16, [&](std::size_t begin, std::size_t end) {
        for (const auto& segment : segments)
            for (std::size_t list = begin; list < end; ++list)
                for (std::size_t p = segment.begin(list); p < segment.begin(list + 1); ++p)
                    counts[list] += allowed(segment.keys[p]);
    });
    return counts;
}

struct Reach {
    std::size_t probes;      // lists that a query looks into,
    std::size_t candidates;  // and more of them until it has seen as many allowed vectors
};

// The lists that a query looks into, nearest first.
inline void choose_lists(std::span<float> scores, std::span<const std::int64_t> counts, Reach reach,
                         std::vector<std::int32_t>& lists) {
    lists.clear();
    for (std::size_t list = 0; list < counts.size(); ++list) {
        if (counts[list] > 0) lists.push_back(static_cast<std::int32_t>(list));
        if (!std::isfinite(scores[list])) scores[list] = lowest;  // sorting needs an order
    }
    auto nearer = [&](std::int32_t a, std::int32_t b) {
        const float x = scores[static_cast<std::size_t>(a)];
        const float y = scores[static_cast<std::size_t>(b)];
        return x > y || (x == y && a < b);
    };
    auto place = [&](std::size_t n) { return lists.begin() + static_cast<std::ptrdiff_t>(n); };
    std::size_t sorted = 0, used = 0, seen = 0;
    while (used < lists.size() && (used < reach.probes || seen < reach.candidates)) {
        if (used == sorted) {
            sorted = std::min(lists.size(), std::max(reach.probes, 2 * sorted));
            std::partial_sort(place(used), place(sorted), lists.end(), nearer);
        }
        seen += static_cast<std::size_t>(counts[static_cast<std::size_t>(lists[used++])]);
    }
    lists.resize(used);
}

template <class T>
class Search {
  public:
    // counts: of the vectors of each list that are allowed.
    Search(std::vector<Segment<T>> segments, Rows<float> centres, Rows<float> queries,
           Allowed allowed, std::span<const std::int64_t> counts, Reach reach, std::size_t k)
        : segments_(std::move(segments)),
          centres_(centres),
          queries_(queries),
          allowed_(allowed),
          counts_(counts),
          reach_{std::max<std::size_t>(reach.probes, 1), reach.candidates},
          k_(k) {
        if (k == 0) throw std::invalid_argument("k must be at least 1");
        if (counts.empty()) throw std::invalid_argument("an index has at least one list");
        if (centres.count != counts.size() && !(centres.count == 0 && counts.size() == 1))
            throw std::invalid_argument("the centres of an index are not those of its lists");
        if (centres.count > 0 && centres.width != queries.width)
            throw std::invalid_argument("queries and centres differ in width");
        for (const auto& segment : segments_) segment.check(counts.size(), queries.width);
    }

    // Keys (below 0: none) and scores.
    Ranked run() const {
        Ranked out(queries_.count, k_, static_cast<std::size_t>(-1));
        const auto threads = static_cast<std::size_t>(ThreadPool::threads().load());
        const std::size_t blocks = (queries_.count + most_queries - 1) / most_queries;
        std::vector<Plan> plans(blocks);
        ScratchPool<Scratch> pool;
        for (std::size_t block = 0; block < blocks; ++block) plan(block, plans[block], pool);
        // Few blocks are cut into slices, so that all threads have work.
        const std::size_t slices = threads == 1 || blocks == 0 || blocks >= 2 * threads
                                       ? 1
                                       : (2 * threads + blocks - 1) / blocks;
        std::vector<std::vector<Best>> parts(slices > 1 ? blocks * slices : 0);
        parallel_for(blocks * slices, 1, [&](std::size_t job, std::size_t) {
            const std::size_t block = job / slices, slice = job % slices;
            pool.with([&](Scratch& scratch) {
                scan(block, plans[block], slice, slices, scratch);
                if (slices > 1)
                    parts[job] = std::move(scratch.best);
                else
                    for (std::size_t i = 0; i < scratch.best.size(); ++i)
                        scratch.best[i].write(out, block * most_queries + i);
            });
        });
        if (slices > 1)
            parallel_for(queries_.count, planned, [&](std::size_t begin, std::size_t end) {
                for (std::size_t query = begin; query < end; ++query) {
                    const std::size_t first = query / most_queries * slices;
                    const std::size_t place = query % most_queries;
                    Best& best = parts[first][place];
                    for (std::size_t slice = 1; slice < slices; ++slice)
                        for (const auto& entry : parts[first + slice][place].unsorted())
                            best.offer(entry.score, entry.id);
                    best.write(out, query);
                }
            });
        return out;
    }

  private:
    static constexpr std::size_t planned = 16;  // queries whose lists are chosen at a time

    // The lists that a block of queries looks into, and which of them do.
    struct Plan {
        std::vector<std::int32_t> lists;
        std::vector<std::size_t> starts{0};
        std::vector<std::int32_t> queries;  // counted within the block
        std::size_t work = 0;               // vectors times queries
    };

    struct Scratch {
        AllProducts all;
        std::vector<float> nearness;
        std::vector<Best> best;
        Paged<float> rows, widened;
        Paged<T> tail;
        Paged<float> scores;
        std::vector<std::uint32_t> places;
        std::vector<std::int32_t> keys;
    };

    std::size_t queries_of(std::size_t block) const {
        return std::min(most_queries, queries_.count - block * most_queries);
    }

    void plan(std::size_t block, Plan& plan, ScratchPool<Scratch>& pool) const {
        const std::size_t first = block * most_queries, count = queries_of(block);
        std::vector<std::vector<std::int32_t>> chosen(count);
        if (centres_.count == 0)
            for (auto& lists : chosen) lists.assign(counts_[0] > 0 ? 1 : 0, 0);
        else
            parallel_for(count, planned, [&](std::size_t begin, std::size_t end) {
                pool.with([&](Scratch& scratch) {
                    const std::size_t lists = counts_.size();
                    scratch.nearness.resize((end - begin) * lists);
                    scratch.all.load(queries_.some(first + begin, end - begin));
                    scratch.all.with(centres_, [&](std::size_t i, std::size_t at,
                                                   const float* scores, std::size_t n) {
                        std::copy_n(scores, n, scratch.nearness.data() + i * lists + at);
                    });
                    for (std::size_t i = begin; i < end; ++i)
                        choose_lists({scratch.nearness.data() + (i - begin) * lists, lists},
                                     counts_, reach_, chosen[i]);
                });
            });
        if (count == 1) {  // nearest first, which raises the bar soonest
            plan.lists = std::move(chosen[0]);
            plan.queries.assign(plan.lists.size(), 0);
            plan.starts.resize(plan.lists.size() + 1);
            std::iota(plan.starts.begin(), plan.starts.end(), std::size_t{0});
        } else {
            std::vector<std::size_t> next(counts_.size() + 1, 0);
            for (const auto& lists : chosen)
                for (std::int32_t list : lists) ++next[static_cast<std::size_t>(list) + 1];
            for (std::size_t list = 0; list < counts_.size(); ++list) {
                if (next[list + 1] > 0) {
                    plan.lists.push_back(static_cast<std::int32_t>(list));
                    plan.starts.push_back(plan.starts.back() + next[list + 1]);
                }
                next[list + 1] += next[list];
            }
            plan.queries.resize(plan.starts.back());
            for (std::size_t i = 0; i < count; ++i)
                for (std::int32_t list : chosen[i])
                    plan.queries[next[static_cast<std::size_t>(list)]++] =
                        static_cast<std::int32_t>(i);
        }
        for (std::size_t at = 0; at < plan.lists.size(); ++at)
            plan.work += length(static_cast<std::size_t>(plan.lists[at])) *
                         (plan.starts[at + 1] - plan.starts[at]);
    }

    // Vectors of a list, in all segments.
    std::size_t length(std::size_t list) const {
        std::size_t sum = 0;
        for (const auto& segment : segments_) sum += segment.begin(list + 1) - segment.begin(list);
        return sum;
    }

    // Offers each query of a block what one of some slices of its plan holds: those pieces of lists
    // that begin in its share of the work.
    void scan(std::size_t block, const Plan& plan, std::size_t slice, std::size_t slices,
              Scratch& scratch) const {
        scratch.best.resize(queries_of(block));
        for (Best& best : scratch.best) best.reset(k_, lowest);
        const std::size_t from = plan.work * slice / slices, to = plan.work * (slice + 1) / slices;
        std::size_t done = 0;
        for (std::size_t at = 0; at < plan.lists.size() && done < to; ++at) {
            const auto list = static_cast<std::size_t>(plan.lists[at]);
            const auto asking =
                std::span(plan.queries)
                    .subspan(plan.starts[at], plan.starts[at + 1] - plan.starts[at]);
            const std::size_t work = length(list) * asking.size();
            if (done + work <= from) {
                done += work;
                continue;
            }
            load_queries(block, asking, scratch);
            for (const auto& segment : segments_)
                for (std::size_t p = segment.begin(list); p < segment.begin(list + 1); p += piece) {
                    const std::size_t count = std::min(piece, segment.begin(list + 1) - p);
                    if (done >= from && done < to) scan_piece(segment, p, count, asking, scratch);
                    done += count * asking.size();
                }
        }
    }

    void load_queries(std::size_t block, std::span<const std::int32_t> asking,
                      Scratch& scratch) const {
        const std::size_t width = queries_.width;
        scratch.rows.resize(rounded_up(asking.size(), group) * width);
        float* to = scratch.rows.data();
        for (std::int32_t query : asking) {
            const std::size_t row = block * most_queries + static_cast<std::size_t>(query);
            to = std::copy_n(queries_.data + row * width, width, to);
        }
        std::fill(to, scratch.rows.data() + scratch.rows.size(), 0.f);
    }

    void scan_piece(const Segment<T>& segment, std::size_t first, std::size_t count,
                    std::span<const std::int32_t> asking, Scratch& scratch) const {
        end_if_cancelled();
        const std::size_t width = queries_.width, most = asking.size();
        auto& keys = scratch.keys;
        keys.clear();
        scratch.places.resize(piece);
        for (std::size_t j = 0; j < count; ++j) {
            scratch.places[keys.size()] = static_cast<std::uint32_t>(j);
            if (allowed_(segment.keys[first + j])) keys.push_back(segment.keys[first + j]);
        }
        if (keys.empty()) return;
        scratch.scores.resize(most * piece);
        auto multiply = [&](const auto* tiles, std::size_t n) {
            using Number = std::remove_cvref_t<decltype(*tiles)>;
            products::multiply<Number>({scratch.rows.data(), most, width, tiles, n, width, width,
                                        nullptr, scratch.scores.data(), piece});
        };
        if (4 * keys.size() < 3 * count) {  // those that are allowed alone
            scratch.widened.resize(rounded_up(keys.size(), cells) * width);
            for (std::size_t j = 0; j < keys.size(); ++j)
                products::widen_all(segment.vectors.data + (first + scratch.places[j]) * width,
                                    width, scratch.widened.data() + j * width);
            std::fill(scratch.widened.begin() + static_cast<std::ptrdiff_t>(keys.size() * width),
                      scratch.widened.end(), 0.f);
            count = keys.size();
            multiply(scratch.widened.data(), count);
        } else {
            if (keys.size() < count) {
                keys.resize(count);
                for (std::size_t j = 0; j < count; ++j) {
                    const std::int32_t key = segment.keys[first + j];
                    keys[j] = allowed_(key) ? key : -1;
                }
            }
            if (std::is_same_v<T, float> || most == 1) {
                multiply(whole_tiles(segment.vectors, first, count, scratch.tail), count);
            } else {  // each group of queries would widen halves anew
                scratch.widened.resize(rounded_up(count, cells) * width);
                products::widen_all(segment.vectors.data + first * width, count * width,
                                    scratch.widened.data());
                std::fill(scratch.widened.begin() + static_cast<std::ptrdiff_t>(count * width),
                          scratch.widened.end(), 0.f);
                multiply(scratch.widened.data(), count);
            }
        }
        for (std::size_t i = 0; i < most; ++i) {
            float* scores = scratch.scores.data() + i * piece;
            std::fill(scores + count, scores + rounded_up(count, newton::lanes), lowest);
            Best& best = scratch.best[static_cast<std::size_t>(asking[i])];
            const std::size_t reach = reaching(scores, rounded_up(count, newton::lanes),
                                               best.refused_below(), scratch.places.data());
            for (std::size_t r = 0; r < reach; ++r) {
                const std::size_t j = scratch.places[r];
                if (j < count && keys[j] >= 0) best.offer(scores[j], keys[j]);
            }
        }
    }

    std::vector<Segment<T>> segments_;
    Rows<float> centres_, queries_;
    Allowed allowed_;
    std::span<const std::int64_t> counts_;
    Reach reach_;
    std::size_t k_;
};

}  // namespace megalabel::vectors
