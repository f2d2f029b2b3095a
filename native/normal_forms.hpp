// Normal forms of texts (Unicode Standard Annex 15), by the same tables as all else that is known
// of characters: what a model makes of a text does not depend on any other library's version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analyzer.hpp"
#include "counting.hpp"
#include "lookup.hpp"
#include "unicode.hpp"

namespace megalabel::unicode {

// Canonical combining classes end at 240; characters that decompose stand beyond them, and so do
// those that only compatibility decomposes. None of the latter has a class of its own.
inline constexpr std::uint8_t kDecomposes = 254, kDecomposesCompatibly = 255;

// Of every character, its class or one of the two numbers above.
inline const std::uint8_t* classes() {
    static const auto table = [] {
        auto flat = std::make_unique<std::uint8_t[]>(kCharacters);
        for (auto r : kClasses) std::fill(&flat[r.first], &flat[r.last] + 1, r.number);
        for (auto p : kCompatible) flat[p.character] = kDecomposesCompatibly;
        for (auto p : kCanonical) flat[p.character] = kDecomposes;
        return flat;
    }();
    return table.get();
}

// Korean syllables are a leading consonant, a vowel and, mostly, a trailing consonant; all three
// follow from the number (the Unicode Standard, 3.12).
struct Syllable {
    static constexpr std::uint32_t first = 0xAC00, leading = 0x1100, vowel = 0x1161;
    static constexpr std::uint32_t trailing = 0x11A7;  // one before the first
    static constexpr std::uint32_t leadings = 19, vowels = 21, trailings = 28;

    static bool is(std::uint32_t c) { return c - first < leadings * vowels * trailings; }

    // The syllable of two letters, or of one without a trailing consonant and that; 0: of neither.
    static std::uint32_t composed(std::uint32_t a, std::uint32_t b) {
        if (a - leading < leadings && b - vowel < vowels)
            return first + ((a - leading) * vowels + (b - vowel)) * trailings;
        if (is(a) && (a - first) % trailings == 0 && b - trailing - 1 < trailings - 1)
            return a + (b - trailing);
        return 0;
    }
};

// The character that two become, or 0.
inline std::uint32_t composed(std::uint32_t a, std::uint32_t b) {
    if (const std::uint32_t syllable = Syllable::composed(a, b)) return syllable;
    const auto found = std::lower_bound(
        std::begin(kComposed), std::end(kComposed), std::pair{a, b},
        [](const Pair& p, const auto& wanted) { return std::pair{p.first, p.second} < wanted; });
    return found != std::end(kComposed) && found->first == a && found->second == b ? found->composed
                                                                                   : 0;
}

struct Form {
    bool compose, compatible;
};

// One text after the other into a normal form.
class Normaliser {
  public:
    explicit Normaliser(Form form) : form_(form) {}

    // Whether a character stays as it is and nothing before it changes with it: texts fall apart
    // before such characters, and where two meet the first is as it will be.
    bool inert(std::uint32_t c) const {
        if (form_.compose) return known_[c] & kIsStable;
        return (classes_[c] == 0 || (classes_[c] == kDecomposesCompatibly && !form_.compatible)) &&
               !Syllable::is(c);
    }

    bool changes(std::span<const std::uint8_t> text) const {
        if (text::is_ascii(text.data(), text.size())) return false;
        const std::uint8_t *p = text.data(), *end = p + text.size();
        while (p < end)
            if (!inert(decode(p, end))) return true;
        return false;
    }

    // Appends the text's normal form.
    void operator()(std::span<const std::uint8_t> text, std::vector<std::uint8_t>& out) {
        const std::uint8_t *p = text.data(), *end = p + text.size();
        const std::uint8_t *kept = p, *last = p;  // what is not yet written; the last character
        while (p < end) {
            const std::uint8_t* start = p;
            if (inert(decode(p, end))) {
                last = start;
                continue;
            }
            out.insert(out.end(), kept, last);
            // from the inert character before it, which it may join, to the next one
            characters_.clear();
            for (p = last; p < end;) {
                start = p;
                const std::uint32_t c = decode(p, end);
                if (start > last && inert(c)) {
                    p = start;
                    break;
                }
                decompose(c);
            }
            write(out);
            kept = last = p;
        }
        out.insert(out.end(), kept, end);
    }

  private:
    std::uint8_t class_of(std::uint32_t c) const {
        return classes_[c] < kDecomposes ? classes_[c] : 0;
    }

    bool add_parts(std::uint32_t c, std::span<const Parts> all, const std::uint32_t* parts) {
        const auto found = std::lower_bound(
            all.begin(), all.end(), c,
            [](const Parts& p, std::uint32_t wanted) { return p.character < wanted; });
        if (found == all.end() || found->character != c) return false;
        characters_.insert(characters_.end(), parts + found->begin,
                           parts + found->begin + found->count);
        return true;
    }

    void decompose(std::uint32_t c) {
        if (classes_[c] >= kDecomposes) {
            if (form_.compatible && add_parts(c, kCompatible, kCompatibleParts)) return;
            if (add_parts(c, kCanonical, kCanonicalParts)) return;
        } else if (Syllable::is(c)) {
            const std::uint32_t number = c - Syllable::first;
            const std::uint32_t last = number % Syllable::trailings;
            const std::uint32_t both = number / Syllable::trailings;
            characters_.push_back(Syllable::leading + both / Syllable::vowels);
            characters_.push_back(Syllable::vowel + both % Syllable::vowels);
            if (last != 0) characters_.push_back(Syllable::trailing + last);
            return;
        }
        characters_.push_back(c);
    }

    // Marks after a character in the order of their classes.
    void order_marks() {
        const auto rises = [&](std::uint32_t a, std::uint32_t b) {
            return class_of(a) < class_of(b);
        };
        for (auto begin = characters_.begin(); begin != characters_.end();) {
            const auto is_mark = [&](std::uint32_t c) { return class_of(c) != 0; };
            begin = std::find_if(begin, characters_.end(), is_mark);
            const auto end = std::find_if_not(begin, characters_.end(), is_mark);
            if (!std::is_sorted(begin, end, rises)) std::stable_sort(begin, end, rises);
            begin = end;
        }
    }

    // Joins each character with the last one of class 0 before it, unless one between them is of
    // the same or a higher class.
    void compose() {
        std::size_t size = 0, starter = characters_.size();
        std::uint8_t before = 0;
        for (const std::uint32_t c : characters_) {  // none is written before it is read
            const std::uint8_t own = class_of(c);
            if (starter < size && (starter + 1 == size || before < own))
                if (const std::uint32_t both = composed(characters_[starter], c)) {
                    characters_[starter] = both;
                    continue;
                }
            if (own == 0) starter = size;
            before = own;
            characters_[size++] = c;
        }
        characters_.resize(size);
    }

    void write(std::vector<std::uint8_t>& out) {
        order_marks();
        if (form_.compose) compose();
        for (const std::uint32_t c : characters_) {
            char bytes[4];
            out.insert(out.end(), bytes, encode(c, bytes));
        }
    }

    Form form_;
    const std::uint8_t* known_ = properties();
    const std::uint8_t* classes_ = classes();
    std::vector<std::uint32_t> characters_;
};

}  // namespace megalabel::unicode

namespace megalabel::text {

// The texts in a normal form, as offsets and UTF-8; nothing if all of them are in it already.
inline std::optional<std::pair<std::vector<std::int64_t>, std::vector<std::uint8_t>>> normalised(
    const Strings& texts, unicode::Form form) {
    std::vector<std::uint8_t> changing(texts.size());
    each_piece(texts, [&](std::size_t, std::size_t begin, std::size_t end) {
        const unicode::Normaliser normaliser(form);
        for (std::size_t i = begin; i < end; ++i) changing[i] = normaliser.changes(texts[i]);
    });
    if (std::ranges::find(changing, 1) == changing.end()) return std::nullopt;
    // Changed texts of each piece first, which are few as a rule; then all where they belong.
    std::vector<std::vector<std::uint8_t>> pieces(piece_count(texts));
    std::vector<std::int64_t> offsets(texts.size() + 1);
    each_piece(texts, [&](std::size_t number, std::size_t begin, std::size_t end) {
        unicode::Normaliser normaliser(form);
        auto& piece = pieces[number];
        for (std::size_t i = begin; i < end; ++i) {
            const std::size_t before = piece.size();
            if (changing[i]) normaliser(texts[i], piece);
            offsets[i + 1] =
                static_cast<std::int64_t>(changing[i] ? piece.size() - before : texts[i].size());
        }
    });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    std::vector<std::uint8_t> data(static_cast<std::size_t>(offsets.back()));
    each_piece(texts, [&](std::size_t number, std::size_t begin, std::size_t end) {
        const auto piece = std::move(pieces[number]);
        auto next = piece.begin();
        for (std::size_t i = begin; i < end; ++i) {
            const auto out = data.begin() + offsets[i];
            if (changing[i]) {
                const auto length = offsets[i + 1] - offsets[i];
                std::copy_n(next, length, out);
                next += length;
            } else {
                std::ranges::copy(texts[i], out);
            }
        }
    });
    return std::pair{std::move(offsets), std::move(data)};
}

}  // namespace megalabel::text
