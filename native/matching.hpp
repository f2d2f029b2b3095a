// How the names of labels match a text: the words of texts by number, and features of a text and
// a label.
//
// A text is a row of numbers, one for each of its words in order: of a known word its number; of
// an unknown word with a known stem, -2 less the stem's number; -1 of all others. A stem is what a
// word begins with, cut after some characters.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "counting.hpp"
#include "parallel.hpp"

namespace megalabel::matching {

inline constexpr std::int32_t kUnknown = -1;

// --- texts to numbers

// Rows of numbers, of any lengths.
struct WordRows {
    std::vector<std::int64_t> starts;
    text::Buffer<std::int32_t> ids;
};

// What the stem of a word that is not known is looked up by.
struct StemFinder {
    text::Lookup stems;
    text::Stems inflected;  // those of words
    std::size_t length;     // how many characters stems have; 0: they are those of `inflected`

    std::int32_t find(const char* p, std::size_t n) const {
        if (length > 0) {
            n = unicode::prefix_bytes(p, n, length);
            return stems.find(p, n, text::term_hash(p, n));
        }
        if (n > kLongest) return -1;
        std::array<char, kLongest + text::kReadable> stem;
        std::copy(p, p + n, stem.begin());
        n = inflected.apply(stem.data(), n);
        return stems.find(stem.data(), n, text::term_hash(stem.data(), n));
    }

  private:
    static constexpr std::size_t kLongest = 240;  // bytes of a word
};

// Numbers the words that it is given.
class WordCollector {
  public:
    WordCollector(const text::Lookup& words, const StemFinder& stems)
        : words_(words), stems_(stems) {}

    static std::uint32_t hash(const char* p, std::size_t n) { return text::term_hash(p, n); }
    void prefetch_slot(std::uint32_t hash) const { words_.prefetch_slot(hash); }
    void prefetch_term(std::uint32_t hash) const { words_.prefetch_term(hash); }
    void visit(const char* begin, std::uint32_t length, std::uint32_t hash) {
        std::int32_t id = words_.find(begin, length, hash);
        if (id < 0) {
            const std::int32_t stem = stems_.find(begin, length);
            id = stem < 0 ? kUnknown : kUnknown - 1 - stem;
        }
        ids.push_back(id);
    }

    std::vector<std::int32_t> ids;

  private:
    text::Lookup words_;
    StemFinder stems_;
};

inline WordRows find_words(const text::Strings& texts, const text::Analysis& how,
                           const text::WordTables& rules, const text::Lookup& words,
                           const StemFinder& stems) {
    text::Workers<text::Analyzer> workers([&](std::size_t) { return text::Analyzer(how, rules); });
    const std::size_t count = text::piece_count(texts);
    std::vector<std::vector<std::int32_t>> pieces(count);
    std::vector<std::size_t> first_rows(count);
    WordRows rows;
    rows.starts.resize(texts.size() + 1);
    text::each_piece(texts, [&](std::size_t piece, std::size_t begin, std::size_t end) {
        workers.lend([&](text::Analyzer& analyzer, std::size_t) {
            WordCollector collector(words, stems);
            text::Pipeline pipeline(collector);
            for (std::size_t row = begin; row < end; ++row) {
                const std::size_t before = collector.ids.size();
                analyzer(texts[row], pipeline);
                pipeline.drain();
                rows.starts[row + 1] = static_cast<std::int64_t>(collector.ids.size() - before);
            }
            first_rows[piece] = begin;
            pieces[piece] = std::move(collector.ids);
        });
    });
    std::partial_sum(rows.starts.begin(), rows.starts.end(), rows.starts.begin());
    rows.ids = text::Buffer<std::int32_t>(static_cast<std::size_t>(rows.starts.back()));
    parallel_for(count, 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t piece = first; piece < last; ++piece)
            std::copy(pieces[piece].begin(), pieces[piece].end(),
                      rows.ids.data.get() + rows.starts[first_rows[piece]]);
    });
    return rows;
}

// --- features of a text and a label

enum Feature : std::size_t {
    kWeightedShare,  // of the name's words that are in the text, weighed by idf
    kShare,          // the same, each word weighing the same
    kWhole,          // 1 if all are in the text
    kPhrase,         // 1 if they are in a row and in order there
    kFirstPosition,  // words of the text before the first match, of all of its words; NaN: none
    kRarestFound,    // the largest idf of a word that is in the text; 0: none
    kRarestMissing,  // the same of those that are not
    kNameWords,      // how many words the name has
    kTextShare,      // of the text's idf, each of its known words once, that the name covers
    kStemShare,      // as the first, of stems
    kFeatures,
};
inline constexpr std::array<const char*, kFeatures> kFeatureNames = {
    "weighted_share", "share",          "whole",      "phrase",     "first_position",
    "rarest_found",   "rarest_missing", "name_words", "text_share", "stem_share"};

// The names of labels, and the words that they are made of. A label may have several names.
struct Names {
    std::span<const std::int64_t> name_starts;  // one more than there are labels
    std::span<const std::int64_t> word_starts;  // one more than there are names
    std::span<const std::int32_t> words;        // of all names in a row
    std::span<const std::int32_t> stems;        // of each known word
    std::span<const float> word_idf, stem_idf;
    float unknown_idf;

    std::size_t labels() const { return name_starts.size() - 1; }

    void check() const {
        if (name_starts.empty() || word_starts.empty())
            throw std::invalid_argument("the starts of names or of their words are empty");
        if (stems.size() != word_idf.size())
            throw std::invalid_argument("words and their stems differ in number");
    }

    std::span<const std::int32_t> words_of(std::size_t name) const {
        const auto [begin, end] = piece(word_starts, name, words.size(), "name");
        return words.subspan(begin, end - begin);
    }
    std::pair<std::size_t, std::size_t> names_of(std::size_t label) const {
        return piece(name_starts, label, word_starts.size() - 1, "label");
    }
    std::size_t word(std::int32_t number) const { return inside(number, stems.size(), "word"); }
    std::size_t stem_of(std::size_t word) const { return stem(stems[word]); }
    std::size_t stem(std::int32_t number) const { return inside(number, stem_idf.size(), "stem"); }

  private:
    static std::pair<std::size_t, std::size_t> piece(std::span<const std::int64_t> starts,
                                                     std::size_t i, std::size_t size,
                                                     const char* what) {
        const std::int64_t begin = starts[i], end = starts[i + 1];
        if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > size)
            throw std::invalid_argument(std::string(what) + " " + std::to_string(i) +
                                        " lies outside the arrays");
        return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end)};
    }
    static std::size_t inside(std::int32_t number, std::size_t size, const char* what) {
        const auto at = static_cast<std::size_t>(static_cast<std::uint32_t>(number));
        if (at >= size) [[unlikely]]
            throw std::invalid_argument(std::string(what) + " " + std::to_string(number) + " of " +
                                        std::to_string(size));
        return at;
    }
};

// One text at a time against any labels; not to be shared by threads.
class Matcher {
  public:
    explicit Matcher(const Names& names) : names_(names) { names.check(); }

    // Takes the words of a text, which must stay where they are while features are asked for.
    void read(std::span<const std::int32_t> ids) {
        if (ids.size() > kMostWords) throw std::invalid_argument("a text of too many words");
        ids_ = ids;
        // a word and its stem for each, and half of the places free
        entries_.assign(std::bit_ceil(4 * ids.size() + 1), Entry{});
        shift_ = 32 - std::countr_zero(entries_.size());
        next_.resize(ids.size());
        mass_ = 0;
        turn_ = 0;
        for (std::size_t at = ids.size(); at-- > 0;) {  // backwards: what stays is the first place
            const auto place = static_cast<std::int32_t>(at);
            next_[at] = kNowhere;
            if (ids[at] < 0) mass_ += names_.unknown_idf;
            if (ids[at] == kUnknown) continue;
            if (ids[at] < 0) {
                add(~static_cast<std::int32_t>(names_.stem(kUnknown - 1 - ids[at]))).first = place;
                continue;
            }
            const std::size_t word = names_.word(ids[at]);
            Entry& entry = add(ids[at]);
            next_[at] = entry.first;
            if (entry.first == kNowhere) {
                mass_ += names_.word_idf[word];
                entry.first = place;
                add(~static_cast<std::int32_t>(names_.stem_of(word))).first = place;
            }
            entry.first = place;
        }
    }

    // Brings what is known of the names of some labels near, while nothing waits for it: their
    // names lie far apart in memory.
    template <class Labels>
    void approach(const Labels& labels) const {
        const auto each_name = [&](auto&& visit) {
            for (const std::size_t label : labels) {
                const auto [begin, end] = names_.names_of(label);
                for (std::size_t name = begin; name < end; ++name) visit(name);
            }
        };
        for (const std::size_t label : labels) __builtin_prefetch(&names_.name_starts[label]);
        each_name([&](std::size_t name) { __builtin_prefetch(&names_.word_starts[name]); });
        each_name([&](std::size_t name) { __builtin_prefetch(names_.words_of(name).data()); });
        each_name([&](std::size_t name) {
            for (const std::int32_t word : names_.words_of(name)) {
                __builtin_prefetch(&names_.stems[names_.word(word)]);
                __builtin_prefetch(&names_.word_idf[names_.word(word)]);
            }
        });
    }

    // Writes kFeatures numbers for each candidate; NaN where there is none: -1, or the number of
    // labels, with which rankings are padded.
    void features(std::span<const std::int32_t> candidates, float* out) {
        for (const std::int32_t label : candidates) {
            const auto number = static_cast<std::size_t>(static_cast<std::uint32_t>(label));
            if (number < names_.labels())
                features(number, out);
            else if (label == -1 || number == names_.labels())
                std::fill(out, out + kFeatures, std::numeric_limits<float>::quiet_NaN());
            else
                throw std::invalid_argument("label " + std::to_string(label) + " of " +
                                            std::to_string(names_.labels()));
            out += kFeatures;
        }
    }

    // Writes kFeatures numbers: those of the label's name with the largest weighted share, then
    // the largest share of stems; the first of equal ones. Those of a name without words are
    // those of one that has nothing in common with the text.
    void features(std::size_t label, float* out) {
        const auto [begin, end] = names_.names_of(label);
        nothing_in_common(out);
        for (std::size_t name = begin; name < end; ++name) {
            std::array<float, kFeatures> found;
            match(names_.words_of(name), found.data());
            if (name == begin || better(found.data(), out))
                std::copy(found.begin(), found.end(), out);
        }
    }

  private:
    static constexpr std::int32_t kNowhere = -1;
    static constexpr std::size_t kMostWords = std::size_t{1} << 29;

    // A word, or the complement of a stem's number, that is in the text.
    struct Entry {
        std::int32_t key = 0, first = kNowhere;
        std::uint32_t turn = 0;  // the last name that it was found in
    };

    static bool better(const float* one, const float* other) {
        return one[kWeightedShare] != other[kWeightedShare]
                   ? one[kWeightedShare] > other[kWeightedShare]
                   : one[kStemShare] > other[kStemShare];
    }

    static void nothing_in_common(float* out) {
        std::fill(out, out + kFeatures, 0.f);
        out[kFirstPosition] = std::numeric_limits<float>::quiet_NaN();
    }

    std::size_t slot(std::int32_t key) const {
        return shift_ == 32 ? 0 : (static_cast<std::uint32_t>(key) * 0x9E3779B1u) >> shift_;
    }

    // The entry of a key, or the free one that it would have; one is always free.
    Entry& entry(std::int32_t key) {
        std::size_t at = slot(key);
        while (entries_[at].first != kNowhere && entries_[at].key != key)
            at = (at + 1) & (entries_.size() - 1);
        return entries_[at];
    }
    Entry& add(std::int32_t key) {
        Entry& found = entry(key);
        found.key = key;
        return found;
    }

    void match(std::span<const std::int32_t> words, float* out) {
        nothing_in_common(out);
        out[kNameWords] = static_cast<float>(words.size());
        if (words.empty()) return;
        ++turn_;
        double total = 0, found = 0, covered = 0, stem_total = 0, stem_found = 0;
        std::size_t count = 0;
        std::int32_t first = std::numeric_limits<std::int32_t>::max();
        for (const std::int32_t number : words) {
            const std::size_t word = names_.word(number), stem = names_.stem_of(word);
            const float idf = names_.word_idf[word], stem_idf = names_.stem_idf[stem];
            total += idf;
            stem_total += stem_idf;
            Entry& in_text = entry(number);
            if (in_text.first == kNowhere) {
                out[kRarestMissing] = std::max(out[kRarestMissing], idf);
                if (entry(~static_cast<std::int32_t>(stem)).first != kNowhere)
                    stem_found += stem_idf;
                continue;
            }
            ++count;
            found += idf;
            stem_found += stem_idf;
            first = std::min(first, in_text.first);
            out[kRarestFound] = std::max(out[kRarestFound], idf);
            if (in_text.turn != turn_) covered += idf;
            in_text.turn = turn_;
        }
        out[kWeightedShare] = share(found, total);
        out[kShare] = share(static_cast<double>(count), static_cast<double>(words.size()));
        out[kTextShare] = share(covered, mass_);
        out[kStemShare] = share(stem_found, stem_total);
        if (count > 0) out[kFirstPosition] = share(first, static_cast<double>(ids_.size()));
        if (count < words.size()) return;
        out[kWhole] = 1;
        out[kPhrase] = holds_in_a_row(words) ? 1 : 0;
    }

    static float share(double part, double whole) {
        return whole > 0 ? static_cast<float>(part / whole) : 0;
    }

    bool holds_in_a_row(std::span<const std::int32_t> words) {
        for (std::int32_t at = entry(words.front()).first; at != kNowhere; at = next_[at]) {
            const auto left = ids_.subspan(static_cast<std::size_t>(at));
            if (left.size() < words.size()) return false;
            if (std::equal(words.begin(), words.end(), left.begin())) return true;
        }
        return false;
    }

    Names names_;
    std::span<const std::int32_t> ids_;
    std::vector<Entry> entries_;
    std::vector<std::int32_t> next_;  // where each word is next
    double mass_ = 0;                 // the idf of the text's words
    std::uint32_t turn_ = 0;
    int shift_ = 32;
};

// The features of each row and each of its k candidates, row by row.
inline std::vector<float> match_features(const Names& names, std::span<const std::int64_t> starts,
                                         std::span<const std::int32_t> ids,
                                         std::span<const std::int32_t> candidates, std::size_t n,
                                         std::size_t k) {
    if (starts.size() != n + 1 || candidates.size() != n * k)
        throw std::invalid_argument("texts and rows of candidates differ in number");
    names.check();
    std::vector<float> out(n * k * kFeatures);
    constexpr std::size_t kRows = 16;
    parallel_for(n, kRows, [&](std::size_t first, std::size_t last) {
        Matcher matcher(names);
        for (std::size_t row = first; row < last; ++row) {
            const std::int64_t begin = starts[row], end = starts[row + 1];
            if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > ids.size())
                throw std::invalid_argument("text " + std::to_string(row) +
                                            " lies outside the arrays");
            matcher.read(ids.subspan(static_cast<std::size_t>(begin),
                                     static_cast<std::size_t>(end - begin)));
            matcher.features(candidates.subspan(row * k, k), out.data() + row * k * kFeatures);
        }
    });
    return out;
}

}  // namespace megalabel::matching
