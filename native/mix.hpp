// Candidates of a mix: what several members ranked for a text, brought together with what each of
// them says, and the ranking that comes of it.
//
// A label is listed where some member has it among its first `shortlist`: only these are judged,
// and only by places before that, so that a longer answer changes none of a shorter one. Labels
// further down follow after all listed ones, by the best place that a member gives them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::mix {

// What is said of a listed label: three columns a member (the logit of its probability, its place
// from 1, how far its logit is below that of the member's best label; not a number where the member
// does not list it), then those of all members together.
constexpr std::size_t OF_MEMBER = 3;
enum Shared : std::size_t { FREQUENCY, MEAN, LISTED, FUSED, SHARED };

inline std::size_t width(std::size_t members) { return OF_MEMBER * members + SHARED; }

inline float logit(float probability) {
    const float p = std::clamp(probability, 1e-6f, 1 - 1e-6f);
    return std::log(p / (1 - p));
}

// Rankings of the members: (members, rows, columns), best first. Ids from `labels` on are padding.
struct Members {
    std::span<const std::int32_t> ids;
    std::span<const float> probabilities;
    std::size_t members, rows, columns, labels;

    void check(std::span<const std::int64_t> counts) const {
        if (ids.size() != probabilities.size() || ids.size() != members * rows * columns)
            throw std::invalid_argument("rankings of members differ in shape");
        if (counts.size() != labels)
            throw std::invalid_argument("there must be a count for each label");
    }
};

// One place that a member gives a label.
struct Place {
    std::int32_t id;
    std::uint32_t member, rank;
    float probability;
    bool operator<(const Place& other) const {
        if (id != other.id) return id < other.id;
        return member != other.member ? member < other.member : rank < other.rank;
    }
};

struct Candidates {
    std::size_t listed = 0, rest = 0;  // columns
    std::vector<std::int32_t> ids;     // (rows, listed), those listed most and highest first
    std::vector<float> said;           // (rows, listed, width)
    std::vector<std::int32_t> others;  // (rows, rest)
};

namespace detail {

struct Listed {
    std::int32_t id;
    float fused;
    std::size_t said;  // where what is said of it begins
};
struct Other {
    std::int32_t id;
    std::uint32_t rank, member;
    bool seen;
};
struct Row {
    std::vector<Listed> listed;
    std::vector<Other> others;
    std::vector<float> said;
};

inline Row row_of(const Members& given, std::size_t row, std::size_t shortlist,
                  std::span<const std::int64_t> counts, std::vector<Place>& places) {
    const std::size_t m = given.members;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    places.clear();
    std::vector<float> best(m, nan);
    for (std::size_t member = 0; member < m; ++member)
        for (std::size_t c = 0; c < given.columns; ++c) {
            const std::size_t at = (member * given.rows + row) * given.columns + c;
            if (static_cast<std::size_t>(given.ids[at]) >= given.labels) continue;  // or below 0
            if (c == 0) best[member] = logit(given.probabilities[at]);
            places.push_back({given.ids[at], static_cast<std::uint32_t>(member),
                              static_cast<std::uint32_t>(c), given.probabilities[at]});
        }
    std::sort(places.begin(), places.end());
    Row found;
    for (std::size_t begin = 0, end; begin < places.size(); begin = end) {
        for (end = begin + 1; end < places.size() && places[end].id == places[begin].id;) ++end;
        const std::span<const Place> own(places.data() + begin, end - begin);
        const auto first = std::min_element(own.begin(), own.end(), [](auto& a, auto& b) {
            return a.rank != b.rank ? a.rank < b.rank : a.member < b.member;
        });
        const bool seen = counts[first->id] > 0;
        if (first->rank >= shortlist || !seen) {
            found.others.push_back({first->id, first->rank, first->member, seen});
            continue;
        }
        const std::size_t at = found.said.size();
        found.said.resize(at + width(m), nan);
        float* said = found.said.data() + at;
        float sum = 0, times = 0, fused = 0;
        for (const Place& place : own) {
            float* of_member = said + OF_MEMBER * place.member;
            if (place.rank >= shortlist || !std::isnan(of_member[0])) continue;
            of_member[0] = logit(place.probability);
            of_member[1] = static_cast<float>(place.rank + 1);
            of_member[2] = best[place.member] - of_member[0];
            sum += place.probability;
            fused += 1.0f / static_cast<float>(place.rank + 1);
            ++times;
        }
        float* shared = said + OF_MEMBER * m;
        const auto members = static_cast<float>(m);
        shared[FREQUENCY] = std::log1p(static_cast<float>(counts[own[0].id]));
        shared[MEAN] = logit(sum / members);
        shared[LISTED] = times;
        shared[FUSED] = fused / members;
        found.listed.push_back({own[0].id, shared[FUSED], at});
    }
    std::sort(found.listed.begin(), found.listed.end(), [](auto& a, auto& b) {
        return a.fused != b.fused ? a.fused > b.fused : a.id < b.id;
    });
    std::sort(found.others.begin(), found.others.end(), [](auto& a, auto& b) {
        if (a.seen != b.seen) return a.seen;
        return a.rank != b.rank ? a.rank < b.rank : a.member < b.member;
    });
    return found;
}

}  // namespace detail

inline Candidates candidates(const Members& given, std::size_t shortlist,
                             std::span<const std::int64_t> counts) {
    given.check(counts);
    std::vector<detail::Row> rows(given.rows);
    parallel_for(given.rows, 32, [&](std::size_t begin, std::size_t end) {
        std::vector<Place> places;
        for (std::size_t i = begin; i < end; ++i)
            rows[i] = detail::row_of(given, i, shortlist, counts, places);
    });
    Candidates out;
    for (const auto& row : rows) {
        out.listed = std::max(out.listed, row.listed.size());
        out.rest = std::max(out.rest, row.others.size());
    }
    const std::size_t columns = width(given.members);
    const auto none = static_cast<std::int32_t>(given.labels);
    out.ids.assign(given.rows * out.listed, none);
    out.others.assign(given.rows * out.rest, none);
    out.said.assign(out.ids.size() * columns, std::numeric_limits<float>::quiet_NaN());
    parallel_for(given.rows, 256, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            for (std::size_t c = 0; c < rows[i].listed.size(); ++c) {
                const auto& label = rows[i].listed[c];
                out.ids[i * out.listed + c] = label.id;
                std::copy_n(rows[i].said.begin() + label.said, columns,
                            out.said.begin() + (i * out.listed + c) * columns);
            }
            for (std::size_t c = 0; c < rows[i].others.size(); ++c)
                out.others[i * out.rest + c] = rows[i].others[c].id;
        }
    });
    return out;
}

// The k best labels of each row: those listed by their scores, ties to the lower number, then the
// others as they come, each a little below the one before.
inline Ranked ordered(std::span<const std::int32_t> ids, std::span<const float> scores,
                      std::span<const std::int32_t> others, std::size_t rows, std::size_t labels,
                      std::size_t k) {
    if (rows == 0) return Ranked(0, k, labels);
    if (ids.size() != scores.size() || ids.size() % rows || others.size() % rows)
        throw std::invalid_argument("candidates and scores differ in shape");
    const std::size_t listed = ids.size() / rows, rest = others.size() / rows;
    Ranked out(rows, k, labels);
    parallel_for(rows, 64, [&](std::size_t begin, std::size_t end) {
        std::vector<Best::Entry> entries;
        for (std::size_t i = begin; i < end; ++i) {
            entries.clear();
            for (std::size_t c = i * listed; c < (i + 1) * listed; ++c)
                if (static_cast<std::size_t>(ids[c]) < labels)
                    entries.push_back({scores[c], ids[c]});
            const std::size_t sorted = std::min(k, entries.size());
            float lowest = 0;
            for (const auto& entry : entries) lowest = std::min(lowest, entry.score);
            std::partial_sort(entries.begin(), entries.begin() + sorted, entries.end());
            std::size_t place = 0;
            for (; place < sorted; ++place) {
                out.ids[i * k + place] = entries[place].id;
                out.scores[i * k + place] = entries[place].score;
            }
            for (std::size_t c = 0; c < rest && place < k; ++c) {
                const std::int32_t id = others[i * rest + c];
                if (static_cast<std::size_t>(id) >= labels) break;
                out.ids[i * k + place] = id;
                out.scores[i * k + place++] = lowest - 0.01f * static_cast<float>(c + 1);
            }
        }
    });
    return out;
}

}  // namespace megalabel::mix
