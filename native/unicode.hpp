// Characters as Python's str and re know them: properties, lower case, case folding, UTF-8.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "unicode_tables.hpp"

namespace megalabel::unicode {

enum Property : std::uint8_t {
    kIsWord = 1,
    kIsSpace = 2,
    kIsCased = 4,
    kIsCaseIgnorable = 8,
    kIsMark = 16,
    kIsStable = 32,
    kHasLower = 64,
    kHasFold = 128,
};

inline constexpr std::uint32_t kCharacters = 0x110000;
inline constexpr std::uint32_t kReplacement = 0xFFFD;
inline constexpr std::uint32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

// The properties of every character in one flat array: a lookup is a single load, and only the
// pages of the scripts in use are ever touched again after it has been filled.
inline const std::uint8_t* properties() {
    static const auto table = [] {
        auto flat = std::make_unique<std::uint8_t[]>(kCharacters);
        auto mark = [&](std::uint32_t first, std::uint32_t last, std::uint32_t step,
                        Property what) {
            for (std::uint32_t c = first; c <= last; c += step) flat[c] |= what;
        };
        for (auto r : kWord) mark(r.first, r.last, 1, kIsWord);
        for (auto r : kSpace) mark(r.first, r.last, 1, kIsSpace);
        for (auto r : kCased) mark(r.first, r.last, 1, kIsCased);
        for (auto r : kCaseIgnorable) mark(r.first, r.last, 1, kIsCaseIgnorable);
        for (auto r : kMark) mark(r.first, r.last, 1, kIsMark);
        for (auto r : kStable) mark(r.first, r.last, 1, kIsStable);
        for (auto r : kLower) mark(r.first, r.last, r.step, kHasLower);
        for (auto r : kFold) mark(r.first, r.last, r.step, kHasFold);
        for (const auto& s : kLowerSeveral) mark(s.character, s.character, 1, kHasLower);
        for (const auto& s : kFoldSeveral) mark(s.character, s.character, 1, kHasFold);
        return flat;
    }();
    return table.get();
}

// Reads one character and moves on by at least a byte. Bytes that are not UTF-8 read as U+FFFD, so
// that whatever is written again is valid.
inline std::uint32_t decode(const std::uint8_t*& p, const std::uint8_t* end) {
    std::uint32_t lead = *p++;
    if (lead < 0x80) return lead;
    if (lead < 0xC2 || lead > 0xF4) return kReplacement;
    std::ptrdiff_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - p < more) return kReplacement;
    std::uint32_t c = lead & (0x3Fu >> more);
    for (std::ptrdiff_t i = 0; i < more; ++i) {
        if ((p[i] & 0xC0) != 0x80) return kReplacement;
        c = (c << 6) | (p[i] & 0x3Fu);
    }
    constexpr std::uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    if (c < smallest[more] || c >= kCharacters || (c >= 0xD800 && c < 0xE000)) return kReplacement;
    p += more;
    return c;
}

// The last character before p.
inline std::uint32_t decode_back(const std::uint8_t*& p, const std::uint8_t* begin) {
    const std::uint8_t* end = p;
    do --p;
    while (p > begin && end - p < 4 && (*p & 0xC0) == 0x80);
    const std::uint8_t* start = p;
    std::uint32_t c = decode(start, end);
    if (start != end) p = end - 1;
    return start == end ? c : kReplacement;
}

inline char* encode(std::uint32_t c, char* out) {
    if (c < 0x80) {
        *out++ = static_cast<char>(c);
    } else if (c < 0x800) {
        *out++ = static_cast<char>(0xC0 | (c >> 6));
        *out++ = static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *out++ = static_cast<char>(0xE0 | (c >> 12));
        *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        *out++ = static_cast<char>(0x80 | (c & 0x3F));
    } else {
        *out++ = static_cast<char>(0xF0 | (c >> 18));
        *out++ = static_cast<char>(0x80 | ((c >> 12) & 0x3F));
        *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3F));
        *out++ = static_cast<char>(0x80 | (c & 0x3F));
    }
    return out;
}

// How many of the bytes are the first so many characters.
inline std::size_t prefix_bytes(const char* p, std::size_t bytes, std::size_t characters) {
    std::size_t i = 0;
    for (; i < bytes; ++i)
        if ((p[i] & 0xC0) != 0x80 && characters-- == 0) break;
    return i;
}

enum class Case { kKeep, kLower, kFold };

// No character's lower case or folding takes more than three times its bytes, and U+FFFD takes
// three where one bad byte was.
inline constexpr std::size_t kMaxGrowth = 3;

// Whether a capital sigma over [sigma, after) ends its word, as str.lower decides it.
inline bool ends_word(const std::uint8_t* begin, const std::uint8_t* sigma,
                      const std::uint8_t* after, const std::uint8_t* end) {
    const std::uint8_t* known = properties();
    std::uint8_t found = kIsCaseIgnorable;
    while (sigma > begin && (found & kIsCaseIgnorable)) found = known[decode_back(sigma, begin)];
    if (!(found & kIsCased)) return false;
    found = kIsCaseIgnorable;
    while (after < end && (found & kIsCaseIgnorable)) found = known[decode(after, end)];
    return !(found & kIsCased);
}

// Calls emit(character) for what c becomes by runs and several, which hold it.
template <class Emit>
void emit_mapped(std::uint32_t c, std::span<const Run> runs, std::span<const Several> several,
                 Emit&& emit) {
    auto run = std::upper_bound(runs.begin(), runs.end(), c,
                                [](std::uint32_t v, const Run& r) { return v < r.first; });
    if (run != runs.begin() && c <= (--run)->last && (c - run->first) % run->step == 0) {
        emit(static_cast<std::uint32_t>(static_cast<std::int32_t>(c) + run->difference));
        return;
    }
    auto many = std::lower_bound(several.begin(), several.end(), c,
                                 [](const Several& s, std::uint32_t v) { return s.character < v; });
    for (std::uint32_t result : many->results)
        if (result != 0) emit(result);
}

// Calls emit(character) for each character of a UTF-8 text after the change of case.
template <class Emit>
void each_character(std::span<const std::uint8_t> text, Case change, Emit&& emit) {
    const std::uint8_t* known = properties();
    const std::uint8_t *begin = text.data(), *end = begin + text.size();
    const std::uint8_t changes = change == Case::kLower  ? kHasLower
                                 : change == Case::kFold ? kHasFold
                                                         : 0;
    for (const std::uint8_t* p = begin; p < end;) {
        const std::uint8_t* start = p;
        std::uint32_t c = decode(p, end);
        if (!(known[c] & changes)) {
            emit(c);
        } else if (c < 0x80) {
            emit(c + ('a' - 'A'));
        } else if (change == Case::kFold) {
            emit_mapped(c, kFold, kFoldSeveral, emit);
        } else if (c == kCapitalSigma) {
            emit(ends_word(begin, start, p, end) ? kFinalSigma : kSigma);
        } else {
            emit_mapped(c, kLower, kLowerSeveral, emit);
        }
    }
}

}  // namespace megalabel::unicode
