// Which labels a text names: an index of names by their rarest words, and features of a text and of
// each label whose name is in it, whole or in part.
//
// Texts and names are rows of numbers, one for each of their words in order (its stem, as a rule);
// below 0 are words that are not known. A name is found where the text has words of at least some
// share of its mass, the sum of the idf of its different words.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lookup.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::lexical {

// --- names, and the index of them

// Pieces of an array, one a row.
struct Pieces {
    std::span<const std::int64_t> starts;  // one more than there are rows
    std::span<const std::int32_t> items;

    std::size_t size() const { return starts.empty() ? 0 : starts.size() - 1; }
    std::span<const std::int32_t> operator[](std::size_t i) const {
        const std::int64_t begin = starts[i], end = starts[i + 1];
        if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > items.size())
            throw std::invalid_argument("row " + std::to_string(i) + " lies outside the arrays");
        return items.subspan(static_cast<std::size_t>(begin),
                             static_cast<std::size_t>(end - begin));
    }
};

inline std::size_t inside(std::int64_t number, std::size_t size, const char* what) {
    if (number < 0 || static_cast<std::uint64_t>(number) >= size) [[unlikely]]
        throw std::invalid_argument(std::string(what) + " " + std::to_string(number) + " of " +
                                    std::to_string(size));
    return static_cast<std::size_t>(number);
}

inline constexpr double kSlack = 1e-6;  // of a share, for rounding

// The different words of a name in the order of their numbers, and their mass.
class NameMass {
  public:
    explicit NameMass(std::span<const float> idf) : idf_(idf) {}

    const std::vector<std::int32_t>& words(std::span<const std::int32_t> name) {
        words_.assign(name.begin(), name.end());
        std::sort(words_.begin(), words_.end());
        words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
        mass = 0;
        for (const std::int32_t word : words_) mass += idf_[inside(word, idf_.size(), "word")];
        return words_;
    }

    double mass = 0;

  private:
    std::span<const float> idf_;
    std::vector<std::int32_t> words_;
};

// Which names to look at for a word. A name stands under its rarest words alone: so many that a
// text which has none of them has less than the share of its mass.
struct Index {
    std::vector<std::int64_t> starts;
    std::vector<std::int32_t> names;
};

inline Index index_names(const Pieces& names, std::span<const float> idf, double share) {
    std::vector<std::vector<std::int32_t>> keys((names.size() + 4095) / 4096);
    std::vector<std::vector<std::uint32_t>> counts(keys.size());
    parallel_for(keys.size(), 1, [&](std::size_t first, std::size_t last) {
        NameMass of(idf);
        for (std::size_t piece = first; piece < last; ++piece)
            for (std::size_t name = piece * 4096; name < std::min(names.size(), (piece + 1) * 4096);
                 ++name) {
                auto words = of.words(names[name]);
                std::sort(words.begin(), words.end(), [&](std::int32_t a, std::int32_t b) {
                    const float x = idf[static_cast<std::size_t>(a)];
                    const float y = idf[static_cast<std::size_t>(b)];
                    return x != y ? x > y : a < b;
                });
                double left = of.mass;
                std::uint32_t count = 0;
                for (const std::int32_t word : words) {
                    if (left < (share - 2 * kSlack) * of.mass) break;
                    keys[piece].push_back(word);
                    left -= idf[static_cast<std::size_t>(word)];
                    ++count;
                }
                counts[piece].push_back(count);
            }
    });
    Index index;
    index.starts.assign(idf.size() + 1, 0);
    for (const auto& piece : keys)
        for (const std::int32_t word : piece) ++index.starts[static_cast<std::size_t>(word) + 1];
    std::partial_sum(index.starts.begin(), index.starts.end(), index.starts.begin());
    index.names.resize(static_cast<std::size_t>(index.starts.back()));
    auto next = index.starts;
    std::int32_t name = 0;
    for (std::size_t piece = 0; piece < keys.size(); ++piece) {
        std::size_t at = 0;
        for (const std::uint32_t count : counts[piece]) {
            for (std::uint32_t i = 0; i < count; ++i, ++at) {
                auto& place = next[static_cast<std::size_t>(keys[piece][at])];
                index.names[static_cast<std::size_t>(place++)] = name;
            }
            ++name;
        }
    }
    return index;
}

// Of each name, how many labels have one of the same words, in any order.
inline std::vector<std::int32_t> sharing(const Pieces& names, std::span<const std::int32_t> owners,
                                         std::span<const float> idf) {
    if (owners.size() != names.size())
        throw std::invalid_argument("names and their labels differ in number");
    struct Item {
        std::uint64_t hash;
        std::int32_t label, name;
    };
    std::vector<Item> items(names.size());
    parallel_for(names.size(), 4096, [&](std::size_t first, std::size_t last) {
        NameMass of(idf);
        for (std::size_t name = first; name < last; ++name) {
            const auto& words = of.words(names[name]);
            const std::span bytes(reinterpret_cast<const std::uint8_t*>(words.data()),
                                  words.size() * sizeof(std::int32_t));
            items[name] = {text::text_hash(bytes), owners[name], static_cast<std::int32_t>(name)};
        }
    });
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return std::tie(a.hash, a.label, a.name) < std::tie(b.hash, b.label, b.name);
    });
    std::vector<std::int32_t> shared(names.size());
    for (std::size_t begin = 0, end; begin < items.size(); begin = end) {
        std::int32_t labels = 0;
        for (end = begin; end < items.size() && items[end].hash == items[begin].hash; ++end)
            labels += end == begin || items[end].label != items[end - 1].label;
        for (std::size_t i = begin; i < end; ++i)
            shared[static_cast<std::size_t>(items[i].name)] = labels;
    }
    return shared;
}

// --- features

enum Feature : std::size_t {
    kShare,          // of the name's mass that is in the text
    kWordsFound,     // different words of the name that are in the text
    kWordsMissing,   // those that are not
    kMassFound,      // the mass of those
    kMassMissing,    // of these
    kRarestFound,    // the largest idf of those
    kRarestMissing,  // of these; 0: there is none
    kCommonest,      // the smallest idf of those found
    kPhrase,         // 1 if all words of the name stand in a row and in order
    kWindow,       // words of the shortest piece of text that has all those found, by their number
    kOccurrences,  // how often the least frequent of them comes
    kBm25,         // sum over those found of idf and a saturated count
    kFirst,        // how much of the text comes before the first of them
    kLast,         // before the last of them
    kSpread,       // between both
    kTextWords,    // log(1 + words of the text)
    kTextShare,    // of the mass of the text's known words, what those found have
    kPreferred,    // 1 if the name is the label's first
    kNames,        // log of how many names the label has
    kNamesFound,   // how many of them are found
    kShared,       // log of how many labels have a name of the same words
    kLonger,       // the least mass of a whole name with each word found, by the mass found
    kCandidates,   // log of how many labels the text names
    kRelative,     // bm25 by the largest of the text
    kPlace,        // log of the place by bm25
    kRivals,       // log of how many labels are found by the same rarest word
    kBroader,      // broader labels that are found too
    kNarrower,     // narrower ones
    kRelated,      // related ones
    kCollection,   // those of the same collections
    kFeatures,
};
inline constexpr std::array<const char*, kFeatures> kFeatureNames = {
    "share",        "words_found",    "words_missing",   "mass_found",    "mass_missing",
    "rarest_found", "rarest_missing", "commonest_found", "phrase",        "window",
    "occurrences",  "bm25",           "first_position",  "last_position", "spread",
    "text_words",   "text_share",     "preferred",       "names",         "names_found",
    "shared",       "longer",         "candidates",      "relative_bm25", "place",
    "rivals",       "broader",        "narrower",        "related",       "collection"};

struct Names {
    Pieces names;                          // of each label
    Pieces words;                          // of each name
    std::span<const std::int32_t> owners;  // the label of each name
    std::span<const std::int32_t> shared;  // as of `sharing`
    Pieces postings;                       // the names to look at for each word
    std::span<const float> idf;
    Pieces links[3];                    // broader, narrower, related labels; none: no links
    Pieces collections;                 // of each label
    double usual_words;                 // of a text
    double share;                       // of a name's mass that a text must have
    std::size_t looked_at, candidates;  // at most so many names, and labels, of a text

    void check() const {
        if (names.starts.empty() || words.starts.empty() || postings.starts.empty())
            throw std::invalid_argument("the starts of names, words or postings are empty");
        if (owners.size() != words.size() || shared.size() != words.size())
            throw std::invalid_argument("names and what is known of them differ in number");
        if (postings.size() != idf.size())
            throw std::invalid_argument("words and their postings differ in number");
        for (const auto& link : links)
            if (link.size() != 0 && link.size() != names.size())
                throw std::invalid_argument("labels and their links differ in number");
        if (collections.size() != 0 && collections.size() != names.size())
            throw std::invalid_argument("labels and their collections differ in number");
        if (!(share > 0 && share <= 1) || !(usual_words > 0))
            throw std::invalid_argument("shares and lengths of texts must be above 0");
    }
};

// The labels that texts name, and what is known of how.
struct Found {
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> labels;  // rise within a text
    std::vector<std::int32_t> names;   // the best one of each
    std::vector<std::int32_t> rarest;  // the rarest word found of it
    std::vector<float> features;       // kFeatures of each
};

// One text at a time; not to be shared by threads.
class Finder {
  public:
    explicit Finder(const Names& names) : names_(names), mass_(names.idf) {}

    void operator()(std::span<const std::int32_t> text, Found& out) {
        read(text);
        look();
        choose();
        describe(out);
        out.starts.push_back(static_cast<std::int64_t>(out.labels.size()));
    }

  private:
    struct Word {
        std::int32_t id, count = 0;
        std::int32_t first = -1, last = -1;
        double longest = 0;  // the largest mass of a whole name that has it
        std::uint32_t rivals = 0;
    };
    struct Match {
        std::int32_t label, name;
        double mass, share, bm25;
        std::int32_t found;  // how many names of the label are
    };
    struct Place {
        std::int32_t at;
        std::size_t word;
    };

    static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t kOften = 64;  // places of a word that are looked at for windows

    static std::size_t slot(std::int32_t key, std::size_t size) {
        const int shift = 32 - std::countr_zero(size);
        return shift == 32 ? 0 : (static_cast<std::uint32_t>(key) * 0x9E3779B1u) >> shift;
    }

    // Where a word is among those of the text, or kNone.
    std::size_t place_of(std::int32_t id) const {
        for (std::size_t at = slot(id, table_.size());; at = (at + 1) & (table_.size() - 1)) {
            if (table_[at] == kNone || words_[table_[at]].id == id) return table_[at];
        }
    }

    void read(std::span<const std::int32_t> text) {
        if (text.size() >= (std::size_t{1} << 30))
            throw std::invalid_argument("a text of too many words");
        text_ = text;
        words_.clear();
        table_.assign(std::bit_ceil(2 * text.size() + 2), kNone);
        next_.assign(text.size(), -1);
        text_mass_ = 0;
        for (std::size_t i = 0; i < text.size(); ++i) {
            const std::int32_t id = text[i];
            if (id < 0) continue;
            std::size_t at = slot(id, table_.size());
            while (table_[at] != kNone && words_[table_[at]].id != id)
                at = (at + 1) & (table_.size() - 1);
            const auto here = static_cast<std::int32_t>(i);
            if (table_[at] == kNone) {
                table_[at] = words_.size();
                words_.push_back({id, 0, here, here});
                text_mass_ += names_.idf[inside(id, names_.idf.size(), "word")];
            }
            Word& word = words_[table_[at]];
            if (word.count++ > 0) next_[static_cast<std::size_t>(word.last)] = here;
            word.last = here;
        }
    }

    // Finds the names that the text has enough of: those of rare words first.
    void look() {
        order_.resize(words_.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        const auto length = [&](std::size_t i) {
            return names_.postings[static_cast<std::size_t>(words_[i].id)].size();
        };
        std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
            const std::size_t x = length(a), y = length(b);
            return x != y ? x < y : words_[a].id < words_[b].id;
        });
        std::size_t left = names_.looked_at, total = 0;
        for (const std::size_t i : order_) total += std::min(left, length(i));
        seen_.assign(std::bit_ceil(2 * std::min(left, total) + 2), -1);
        matches_.clear();
        for (const std::size_t i : order_)
            for (const std::int32_t name :
                 names_.postings[static_cast<std::size_t>(words_[i].id)]) {
                if (left == 0) return;
                std::size_t at = slot(name, seen_.size());
                while (seen_[at] != -1 && seen_[at] != name) at = (at + 1) & (seen_.size() - 1);
                if (seen_[at] == name) continue;
                seen_[at] = name;
                --left;
                match(name);
            }
    }

    void match(std::int32_t name) {
        const std::size_t number = inside(name, names_.words.size(), "name");
        const auto& words = mass_.words(names_.words[number]);
        double found = 0, bm25 = 0;
        std::size_t there = 0;
        for (const std::int32_t id : words) {
            const std::size_t place = place_of(id);
            if (place == kNone) continue;
            const double idf = names_.idf[static_cast<std::size_t>(id)];
            found += idf;
            bm25 += idf * saturated(words_[place].count);
            ++there;
        }
        if (found <= 0 || found < (names_.share - kSlack) * mass_.mass) return;
        const std::int32_t label = names_.owners[number];
        inside(label, names_.names.size(), "label");
        matches_.push_back({label, name, found, found / mass_.mass, bm25, 1});
        // by their number: words that every text has may weigh next to nothing
        if (there < words.size()) return;
        for (const std::int32_t id : words) {
            Word& word = words_[place_of(id)];
            word.longest = std::max(word.longest, found);
        }
    }

    double saturated(std::int32_t count) const {
        constexpr double k1 = 1.2, b = 0.75;
        const double length = static_cast<double>(text_.size()) / names_.usual_words;
        return count * (k1 + 1) / (count + k1 * (1 - b + b * length));
    }

    // Leaves the best name of each label, and of many labels those with the largest scores.
    void choose() {
        const auto better = [](const Match& a, const Match& b) {
            if (a.label != b.label) return a.label < b.label;
            if (std::abs(a.share - b.share) > kSlack) return a.share > b.share;
            return a.mass != b.mass ? a.mass > b.mass : a.name < b.name;
        };
        std::sort(matches_.begin(), matches_.end(), better);
        std::size_t kept = 0;
        for (std::size_t i = 0; i < matches_.size(); ++i) {
            if (i > 0 && matches_[i].label == matches_[kept - 1].label)
                ++matches_[kept - 1].found;
            else
                matches_[kept++] = matches_[i];
        }
        matches_.resize(kept);
        const auto stronger = [](const Match& a, const Match& b) {
            const double x = a.bm25 * a.share, y = b.bm25 * b.share;
            return x != y ? x > y : a.label < b.label;
        };
        if (kept > names_.candidates) {
            const auto end = matches_.begin() + static_cast<std::ptrdiff_t>(names_.candidates);
            std::nth_element(matches_.begin(), end, matches_.end(), stronger);
            matches_.erase(end, matches_.end());
            std::sort(matches_.begin(), matches_.end(), better);
        }
        by_score_.resize(matches_.size());
        std::iota(by_score_.begin(), by_score_.end(), std::size_t{0});
        std::sort(by_score_.begin(), by_score_.end(), [&](std::size_t a, std::size_t b) {
            return matches_[a].bm25 != matches_[b].bm25 ? matches_[a].bm25 > matches_[b].bm25
                                                        : a < b;
        });
    }

    bool named(std::int32_t label) const {
        const auto at = std::lower_bound(
            matches_.begin(), matches_.end(), label,
            [](const Match& match, std::int32_t other) { return match.label < other; });
        return at != matches_.end() && at->label == label;
    }

    void describe(Found& out) {
        const std::size_t begin = out.labels.size();
        collections_.clear();
        out.features.resize((begin + matches_.size()) * kFeatures);
        for (std::size_t i = 0; i < matches_.size(); ++i) {
            const Match& match = matches_[i];
            float* row = out.features.data() + (begin + i) * kFeatures;
            out.labels.push_back(match.label);
            out.names.push_back(match.name);
            out.rarest.push_back(words_[describe(match, row)].id);
            if (names_.collections.size() != 0)
                for (const std::int32_t one :
                     names_.collections[static_cast<std::size_t>(match.label)])
                    collections_.push_back(one);
        }
        std::sort(collections_.begin(), collections_.end());
        for (const std::int32_t id : std::span(out.rarest).subspan(begin))
            ++words_[place_of(id)].rivals;
        double top = 0;
        for (const Match& match : matches_) top = std::max(top, match.bm25);
        for (std::size_t i = 0; i < matches_.size(); ++i) {
            float* row = out.features.data() + (begin + i) * kFeatures;
            row[kCandidates] = std::log1p(static_cast<float>(matches_.size()));
            row[kRelative] = top > 0 ? static_cast<float>(matches_[i].bm25 / top) : 0;
            row[kRivals] =
                std::log(static_cast<float>(words_[place_of(out.rarest[begin + i])].rivals));
            link(static_cast<std::size_t>(matches_[i].label), row);
        }
        for (std::size_t place = 0; place < by_score_.size(); ++place)
            out.features[(begin + by_score_[place]) * kFeatures + kPlace] =
                std::log1p(static_cast<float>(place));
    }

    // How many linked labels the text names too.
    void link(std::size_t label, float* row) const {
        for (std::size_t kind = 0; kind < 3; ++kind) {
            const Pieces& links = names_.links[kind];
            std::size_t count = 0;
            if (links.size() != 0)
                for (const std::int32_t other : links[label]) count += named(other);
            row[kBroader + kind] = static_cast<float>(count);
        }
        std::ptrdiff_t together = 0;
        if (names_.collections.size() != 0)
            for (const std::int32_t one : names_.collections[label]) {
                const auto [first, last] =
                    std::equal_range(collections_.begin(), collections_.end(), one);
                together += last - first - 1;
            }
        row[kCollection] = static_cast<float>(together);
    }

    // Writes what the name itself says; gives the place of the rarest word found.
    std::size_t describe(const Match& match, float* row) {
        const auto number = static_cast<std::size_t>(match.name);
        const auto name = names_.words[number];
        const auto& words = mass_.words(name);
        std::fill(row, row + kFeatures, 0.f);
        std::size_t rarest = kNone, found = 0;
        std::int32_t first = std::numeric_limits<std::int32_t>::max(), last = 0;
        std::int32_t least = first;
        double longer = std::numeric_limits<double>::infinity();
        float commonest = std::numeric_limits<float>::infinity();
        places_.clear();
        for (const std::int32_t id : words) {
            const std::size_t place = place_of(id);
            const float idf = names_.idf[static_cast<std::size_t>(id)];
            if (place == kNone) {
                row[kRarestMissing] = std::max(row[kRarestMissing], idf);
                continue;
            }
            const Word& word = words_[place];
            if (rarest == kNone || idf > row[kRarestFound]) {
                rarest = place;
                row[kRarestFound] = idf;
            }
            commonest = std::min(commonest, idf);
            first = std::min(first, word.first);
            last = std::max(last, word.last);
            least = std::min(least, word.count);
            longer = std::min(longer, word.longest);
            std::size_t often = 0;
            for (std::int32_t at = word.first; at != -1 && often < kOften; ++often) {
                places_.push_back({at, found});
                at = next_[static_cast<std::size_t>(at)];
            }
            ++found;
        }
        const auto length = static_cast<float>(text_.size());
        row[kShare] = static_cast<float>(match.share);
        row[kWordsFound] = static_cast<float>(found);
        row[kWordsMissing] = static_cast<float>(words.size() - found);
        row[kMassFound] = static_cast<float>(match.mass);
        row[kMassMissing] = static_cast<float>(std::max(0., mass_.mass - match.mass));
        row[kCommonest] = commonest;
        row[kPhrase] = found == words.size() && in_a_row(name) ? 1 : 0;
        row[kWindow] = static_cast<float>(window(found)) / static_cast<float>(found);
        row[kOccurrences] = static_cast<float>(least);
        row[kBm25] = static_cast<float>(match.bm25);
        row[kFirst] = static_cast<float>(first) / length;
        row[kLast] = static_cast<float>(last) / length;
        row[kSpread] = row[kLast] - row[kFirst];
        row[kTextWords] = std::log1p(length);
        row[kTextShare] = text_mass_ > 0 ? static_cast<float>(match.mass / text_mass_) : 0;
        const auto own = static_cast<std::size_t>(match.label);
        const std::int64_t begin = names_.names.starts[own], end = names_.names.starts[own + 1];
        row[kPreferred] = match.name == begin ? 1 : 0;
        row[kNames] = std::log(static_cast<float>(std::max<std::int64_t>(1, end - begin)));
        row[kNamesFound] = static_cast<float>(match.found);
        row[kShared] = std::log(static_cast<float>(std::max(1, names_.shared[number])));
        row[kLonger] = static_cast<float>(longer / match.mass);
        return rarest;
    }

    // Words of the shortest piece of text that has each word found; their places are in places_.
    std::size_t window(std::size_t found) {
        if (found < 2) return found;
        std::sort(places_.begin(), places_.end(),
                  [](const Place& a, const Place& b) { return a.at < b.at; });
        inside_.assign(found, 0);
        std::size_t begin = 0, have = 0, best = text_.size();
        for (const Place& place : places_) {
            have += inside_[place.word]++ == 0;
            while (have == found) {
                const auto length = static_cast<std::size_t>(place.at - places_[begin].at + 1);
                best = std::min(best, length);
                have -= --inside_[places_[begin++].word] == 0;
            }
        }
        return best;
    }

    bool in_a_row(std::span<const std::int32_t> name) const {
        std::int32_t at = words_[place_of(name.front())].first;
        for (; at != -1; at = next_[static_cast<std::size_t>(at)]) {
            const auto rest = text_.subspan(static_cast<std::size_t>(at));
            if (rest.size() < name.size()) return false;
            if (std::equal(name.begin(), name.end(), rest.begin())) return true;
        }
        return false;
    }

    const Names& names_;
    NameMass mass_;
    std::span<const std::int32_t> text_;
    std::vector<Word> words_;         // the different words of the text
    std::vector<std::size_t> table_;  // places among them, by a hash
    std::vector<std::int32_t> next_;  // where each word of the text is next, -1: nowhere
    double text_mass_ = 0;
    std::vector<std::size_t> order_, by_score_;
    std::vector<std::int32_t> seen_, collections_;
    std::vector<Match> matches_;
    std::vector<Place> places_;
    std::vector<std::uint32_t> inside_;
};

// The labels that each text names.
inline Found find_names(const Names& names, const Pieces& texts) {
    names.check();
    constexpr std::size_t kRows = 32;
    std::vector<Found> pieces((texts.size() + kRows - 1) / kRows);
    parallel_for(pieces.size(), 1, [&](std::size_t first, std::size_t last) {
        Finder find(names);
        for (std::size_t piece = first; piece < last; ++piece)
            for (std::size_t row = piece * kRows; row < std::min(texts.size(), (piece + 1) * kRows);
                 ++row)
                find(texts[row], pieces[piece]);
    });
    if (pieces.size() == 1) return std::move(pieces.front());
    Found all;
    for (Found& piece : pieces) {
        const auto before = static_cast<std::int64_t>(all.labels.size());
        for (std::size_t row = 1; row < piece.starts.size(); ++row)
            all.starts.push_back(before + piece.starts[row]);
        all.labels.insert(all.labels.end(), piece.labels.begin(), piece.labels.end());
        all.names.insert(all.names.end(), piece.names.begin(), piece.names.end());
        all.rarest.insert(all.rarest.end(), piece.rarest.begin(), piece.rarest.end());
        all.features.insert(all.features.end(), piece.features.begin(), piece.features.end());
        piece = {};
    }
    return all;
}

// The k best labels of each text by the scores of those that it names, ties to the lower number;
// then the others in an order that is given, with scores that are given too.
inline Ranked ranked_names(const Pieces& found, std::span<const float> scores,
                           std::span<const std::int32_t> others,
                           std::span<const float> other_scores, std::size_t labels, std::size_t k) {
    if (scores.size() != found.items.size())
        throw std::invalid_argument("labels and their scores differ in number");
    if (others.size() != other_scores.size())
        throw std::invalid_argument("other labels and their scores differ in number");
    Ranked out(found.size(), k, labels);
    parallel_for(found.size(), 64, [&](std::size_t first, std::size_t last) {
        std::vector<Best::Entry> entries;
        std::vector<std::int32_t> named;
        for (std::size_t row = first; row < last; ++row) {
            const auto ids = found[row];
            const auto begin = static_cast<std::size_t>(found.starts[row]);
            entries.clear();
            for (std::size_t i = 0; i < ids.size(); ++i)
                entries.push_back({scores[begin + i], ids[i]});
            const std::size_t kept = std::min(k, entries.size());
            std::partial_sort(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(kept),
                              entries.end());
            std::size_t place = row * k;
            for (std::size_t i = 0; i < kept; ++i, ++place) {
                out.ids[place] = entries[i].id;
                out.scores[place] = entries[i].score;
            }
            if (kept == k) continue;
            named.assign(ids.begin(), ids.end());
            std::sort(named.begin(), named.end());
            for (std::size_t i = 0; i < others.size() && place < (row + 1) * k; ++i) {
                const std::int32_t label = others[i];
                inside(label, labels, "label");
                if (std::binary_search(named.begin(), named.end(), label)) continue;
                out.ids[place] = label;
                out.scores[place++] = other_scores[i];
            }
        }
    });
    return out;
}

}  // namespace megalabel::lexical
