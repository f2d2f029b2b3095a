// Candidates of a mix: what several members ranked for a text, brought together with what each of
// them says, and the ranking that comes of it.
//
// A label is listed where some member has it among its first `shortlist`: only these are judged,
// and only by places before that, so that a longer answer changes none of a shorter one. Labels
// further down follow after all listed ones, by the best place that a member gives them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <vector>

#include "combining.hpp"
#include "joint.hpp"
#include "matching.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::mix {

// What is said of a listed label: three columns a member (the logit of its probability, its place
// from 1, how far its logit is below that of the member's best label; not a number where the member
// does not list it), then those of all members together.
using combining::OF_MEMBER;
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

struct Candidates {
    std::size_t listed = 0, rest = 0;  // columns
    std::vector<std::int32_t> ids;     // (rows, listed), those listed most and highest first
    std::vector<float> said;           // (rows, listed, width)
    std::vector<std::int32_t> others;  // (rows, rest)
};

namespace detail {

// The places that members give in one row, brought together by label; used for many rows.
class Gathered {
  public:
    struct Listed {
        std::int32_t id;
        float fused;
        std::size_t said;  // where what is said of it begins
    };
    std::vector<Listed> listed;
    std::vector<float> said;

    // What is said takes so many columns; those that are for others to fill hold no number.
    void reset(std::size_t members, std::size_t columns) {
        places_.clear();
        best_.assign(members, std::numeric_limits<float>::quiet_NaN());
        columns_ = columns;
    }

    // Members add their places one after another, each from its best label on.
    void add(std::int32_t id, std::size_t member, std::size_t rank, float probability) {
        if (rank == 0) best_[member] = logit(probability);
        places_.push_back({id, static_cast<std::uint32_t>(member), static_cast<std::uint32_t>(rank),
                           probability});
    }

    void bring_together(std::size_t shortlist, std::span<const std::int64_t> counts) {
        listed.clear();
        others_.clear();
        said.clear();
        slots_.assign(std::bit_ceil(2 * places_.size() + 1), nowhere);
        std::size_t further = 0;
        for (const Place& place : places_) {
            const std::int64_t count = counts[static_cast<std::size_t>(place.id)];
            if (place.rank >= shortlist || count <= 0) {
                ++further;
                continue;
            }
            std::int32_t& at = slot(place.id);
            if (at == nowhere) {
                at = static_cast<std::int32_t>(listed.size());
                list(place.id, count);
            }
            say(said.data() + listed[static_cast<std::size_t>(at)].said, place);
        }
        const auto members = static_cast<float>(best_.size());
        for (Listed& label : listed) {
            float* shared = said.data() + label.said + OF_MEMBER * best_.size();
            shared[MEAN] = logit(shared[MEAN] / members);
            label.fused = shared[FUSED] /= members;
        }
        if (further == 0) return;
        for (const Place& place : places_) {
            const bool seen = counts[static_cast<std::size_t>(place.id)] > 0;
            if (place.rank < shortlist && seen) continue;
            std::int32_t& at = slot(place.id);
            if (at >= 0) continue;
            const Other other{place.id, place.rank, place.member, seen};
            if (at == nowhere) {
                others_.push_back(other);
                at = nowhere - static_cast<std::int32_t>(others_.size());
            } else if (other < others_[other_of(at)]) {
                others_[other_of(at)] = other;
            }
        }
    }

    // Labels further down: those that training has seen first, by the best place that they have.
    const auto& others() {
        std::sort(others_.begin(), others_.end());
        return others_;
    }

  private:
    struct Place {
        std::int32_t id;
        std::uint32_t member, rank;
        float probability;
    };
    struct Other {
        std::int32_t id;
        std::uint32_t rank, member;
        bool seen;
        bool operator<(const Other& b) const {
            if (seen != b.seen) return seen;
            return rank != b.rank ? rank < b.rank : member < b.member;
        }
    };

    // A slot holds the number of a listed label, or below `nowhere` that of another.
    static constexpr std::int32_t nowhere = -1;
    static std::size_t other_of(std::int32_t at) { return static_cast<std::size_t>(-2 - at); }

    std::int32_t& slot(std::int32_t id) {
        const std::size_t last = slots_.size() - 1;
        std::size_t i = (static_cast<std::uint32_t>(id) * 0x9E3779B1u) >> 8;
        for (;; ++i) {
            std::int32_t& at = slots_[i & last];
            if (at == nowhere) return at;
            if (id == (at >= 0 ? listed[static_cast<std::size_t>(at)].id : others_[other_of(at)].id))
                return at;
        }
    }

    void list(std::int32_t id, std::int64_t count) {
        const std::size_t at = said.size();
        listed.push_back({id, 0, at});
        said.resize(at + columns_, std::numeric_limits<float>::quiet_NaN());
        float* shared = said.data() + at + OF_MEMBER * best_.size();
        shared[FREQUENCY] = std::log1p(static_cast<float>(count));
        shared[MEAN] = shared[LISTED] = shared[FUSED] = 0;
    }

    void say(float* said_of, const Place& place) const {
        float* of_member = said_of + OF_MEMBER * place.member;
        if (!std::isnan(of_member[0])) return;  // the label was there before
        of_member[0] = logit(place.probability);
        of_member[1] = static_cast<float>(place.rank + 1);
        of_member[2] = best_[place.member] - of_member[0];
        float* shared = said_of + OF_MEMBER * best_.size();
        shared[MEAN] += place.probability;
        shared[FUSED] += 1.0f / static_cast<float>(place.rank + 1);
        ++shared[LISTED];
    }

    std::vector<Place> places_;
    std::vector<float> best_;  // the logit of the best label of each member
    std::vector<Other> others_;
    std::vector<std::int32_t> slots_;
    std::size_t columns_ = 0;
};

// The k best labels of a row: entries by their scores, ties to the lower number, then others as they
// come, each a little below the one before.
inline void order(std::vector<Best::Entry>& entries, std::span<const std::int32_t> others,
                  std::size_t k, std::int32_t* ids, float* scores) {
    const std::size_t sorted = std::min(k, entries.size());
    float lowest = 0;
    for (const auto& entry : entries) lowest = std::min(lowest, entry.score);
    std::partial_sort(entries.begin(), entries.begin() + sorted, entries.end());
    std::size_t place = 0;
    for (; place < sorted; ++place) {
        ids[place] = entries[place].id;
        scores[place] = entries[place].score;
    }
    for (std::size_t c = 0; c < others.size() && place < k; ++c, ++place) {
        ids[place] = others[c];
        scores[place] = lowest - 0.01f * static_cast<float>(c + 1);
    }
}

}  // namespace detail

inline Candidates candidates(const Members& given, std::size_t shortlist,
                             std::span<const std::int64_t> counts) {
    given.check(counts);
    const std::size_t columns = width(given.members);
    struct Row {
        std::vector<detail::Gathered::Listed> listed;
        std::vector<float> said;
        std::vector<std::int32_t> others;
    };
    std::vector<Row> rows(given.rows);
    parallel_for(given.rows, 32, [&](std::size_t begin, std::size_t end) {
        detail::Gathered gathered;
        for (std::size_t i = begin; i < end; ++i) {
            gathered.reset(given.members, columns);
            for (std::size_t member = 0; member < given.members; ++member)
                for (std::size_t c = 0; c < given.columns; ++c) {
                    const std::size_t at = (member * given.rows + i) * given.columns + c;
                    if (static_cast<std::size_t>(given.ids[at]) < given.labels)  // nor below 0
                        gathered.add(given.ids[at], member, c, given.probabilities[at]);
                }
            gathered.bring_together(shortlist, counts);
            Row& row = rows[i];
            row.listed = gathered.listed;
            row.said = gathered.said;
            std::sort(row.listed.begin(), row.listed.end(), [](auto& a, auto& b) {
                return a.fused != b.fused ? a.fused > b.fused : a.id < b.id;
            });
            for (const auto& other : gathered.others()) row.others.push_back(other.id);
        }
    });
    Candidates out;
    for (const auto& row : rows) {
        out.listed = std::max(out.listed, row.listed.size());
        out.rest = std::max(out.rest, row.others.size());
    }
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
                out.others[i * out.rest + c] = rows[i].others[c];
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
            auto own = others.subspan(i * rest, rest);
            const auto padding = std::find_if(own.begin(), own.end(), [&](std::int32_t id) {
                return static_cast<std::size_t>(id) >= labels;
            });
            own = own.first(padding - own.begin());
            detail::order(entries, own, k, out.ids.data() + i * k, out.scores.data() + i * k);
        }
    });
    return out;
}

// --- whole answers

// What a member ranks: scores, and the map that makes probabilities of them; without one they are
// probabilities already.
struct Ranking {
    std::span<const std::int32_t> ids;
    std::span<const float> scores;
    std::size_t columns, labels;
    const joint::Calibration* calibration;
    std::span<const std::int32_t> numbers;  // of its labels here; empty where they are the same

    void check(std::size_t rows, std::size_t known) const {
        if (ids.size() != rows * columns || scores.size() != ids.size())
            throw std::invalid_argument("rankings of members differ in shape");
        if (numbers.size() != (numbers.empty() ? 0 : labels) || (numbers.empty() && labels != known))
            throw std::invalid_argument("the numbers of a member's labels do not fit its labels");
        if (calibration != nullptr) calibration->check();
    }
};

// What does not change from one text to the next.
struct Mixing {
    std::span<const std::int64_t> counts;  // texts of each label
    std::size_t shortlist;
    const matching::Names* names;  // none: they are not looked for
    combining::Combiner combiner;
};

// The words of texts, by number.
struct Words {
    std::span<const std::int64_t> starts;
    std::span<const std::int32_t> ids;

    std::span<const std::int32_t> row(std::size_t i) const {
        const std::int64_t begin = starts[i], end = starts[i + 1];
        if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > ids.size())
            throw std::invalid_argument("a text lies outside the arrays of words");
        return ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    }
};

inline constexpr float tie = 1e-3f;  // how much places count where margins are equal

// The k best labels of each row: the first `depth` labels of each member as probabilities, what is
// said of those that are listed, the margins of that, and their order. Each row is answered by
// itself, from its first step to its last.
inline Ranked rank(const Mixing& mixing, std::span<const Ranking> members, const Words& words,
                   std::size_t rows, std::size_t depth, std::size_t k) {
    const std::size_t labels = mixing.counts.size(), own = width(members.size());
    const std::size_t columns = own + (mixing.names ? std::size_t{matching::kFeatures} : 0);
    for (const Ranking& member : members) member.check(rows, labels);
    if (mixing.names) {
        mixing.names->check();
        if (words.starts.size() != rows + 1)
            throw std::invalid_argument("texts and rankings differ in number");
        if (mixing.names->labels() < labels)
            throw std::invalid_argument("there are fewer labels with names than labels");
    }
    Ranked out(rows, k, labels);
    parallel_for(rows, 32, [&](std::size_t begin, std::size_t end) {
        std::vector<std::optional<joint::Rows>> calibrated(members.size());
        for (std::size_t m = 0; m < members.size(); ++m)
            if (members[m].calibration != nullptr)
                calibrated[m].emplace(*members[m].calibration, members[m].columns);
        std::optional<matching::Matcher> matcher;
        if (mixing.names) matcher.emplace(*mixing.names);
        std::vector<float> probabilities, margins;
        std::vector<std::int32_t> others;
        std::vector<Best::Entry> entries;
        detail::Gathered row;
        for (std::size_t i = begin; i < end; ++i) {
            row.reset(members.size(), columns);
            for (std::size_t m = 0; m < members.size(); ++m) {
                const Ranking& member = members[m];
                const auto ids = member.ids.subspan(i * member.columns, member.columns);
                auto scores = member.scores.subspan(i * member.columns, member.columns);
                if (calibrated[m]) {
                    probabilities.resize(member.columns);
                    calibrated[m]->answer(ids, scores, member.labels, probabilities);
                    scores = probabilities;
                }
                for (std::size_t c = 0; c < std::min(depth, ids.size()); ++c) {
                    const auto id = static_cast<std::size_t>(ids[c]);  // below 0: a large number
                    if (id >= member.labels) continue;
                    const std::int32_t number = member.numbers.empty() ? ids[c] : member.numbers[id];
                    if (static_cast<std::size_t>(number) >= labels)
                        throw std::invalid_argument("a member ranks a label that is not there");
                    row.add(number, m, c, scores[c]);
                }
            }
            row.bring_together(mixing.shortlist, mixing.counts);
            if (matcher) {
                matcher->read(words.row(i));
                matcher->approach(row.listed | std::views::transform(&detail::Gathered::Listed::id));
                for (const auto& label : row.listed)
                    matcher->features(static_cast<std::size_t>(label.id),
                                      row.said.data() + label.said + own);
            }
            margins.resize(row.listed.size());
            combining::margins_of(mixing.combiner, {row.said, margins.size(), columns}, margins);
            entries.clear();
            for (std::size_t c = 0; c < margins.size(); ++c)
                entries.push_back({margins[c] + tie * row.listed[c].fused, row.listed[c].id});
            others.clear();
            if (entries.size() < k)
                for (const auto& other : row.others()) others.push_back(other.id);
            detail::order(entries, others, k, out.ids.data() + i * k, out.scores.data() + i * k);
        }
    });
    return out;
}

}  // namespace megalabel::mix
