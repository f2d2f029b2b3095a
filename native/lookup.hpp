// Strings in an array, their hashes, and tables that find them again.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace megalabel::text {

// Strings one after the other, as Arrow keeps them. Offsets are checked as they are used.
struct Strings {
    std::span<const std::int64_t> offsets;
    std::span<const std::uint8_t> data;

    std::size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }

    // How long they are in all: of a slice, far less than its data.
    std::size_t bytes() const {
        if (offsets.empty() || offsets.back() <= offsets.front()) return 0;
        auto length = static_cast<std::uint64_t>(offsets.back()) -
                      static_cast<std::uint64_t>(offsets.front());
        return std::min<std::size_t>(length, data.size());
    }

    std::span<const std::uint8_t> operator[](std::size_t i) const {
        std::int64_t begin = offsets[i], end = offsets[i + 1];
        if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > data.size())
            throw std::invalid_argument("string " + std::to_string(i) + " lies outside its data");
        return data.subspan(begin, end - begin);
    }
};

// Rows that hold about a quarter of a million items, some milliseconds of work; more rows where
// there would be many thousands of pieces.
inline std::size_t rows_a_piece(std::size_t rows, std::size_t items) {
    constexpr std::size_t kItems = 1 << 18, kRows = 8192, kPieces = 1 << 14;
    std::size_t fitting = rows == 0 ? kRows : kItems / (items / rows + 1);
    return std::max({std::min(fitting, kRows), rows / kPieces, std::size_t{1}});
}

// --- hashing: reads 16 bytes from the start of a term, so that many must be readable there

inline constexpr std::size_t kReadable = 16;

inline std::uint64_t load8(const char* p) {
    std::uint64_t v;
    std::memcpy(&v, p, 8);
    if constexpr (std::endian::native == std::endian::big) v = __builtin_bswap64(v);
    return v;
}

// Keeps the first n of eight bytes.
inline std::uint64_t first_bytes(std::size_t n) {
    return n >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * n)) - 1;
}

inline std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
    unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Saved lookup tables rely on it: a change makes models of earlier versions unreadable.
inline std::uint32_t term_hash(const char* p, std::size_t n) {
    constexpr std::uint64_t k1 = 0x9E3779B97F4A7C15, k2 = 0xD6E8FEB86659FD93;
    std::uint64_t h = n * k2;
    for (; n > 16; p += 16, n -= 16) h = fold_product(load8(p) ^ h ^ k1, load8(p + 8) ^ k2);
    std::uint64_t a = load8(p) & first_bytes(n);
    std::uint64_t b = load8(p + 8) & (n > 8 ? first_bytes(n - 8) : 0);
    h = fold_product(a ^ h ^ k1, b ^ k2);
    return static_cast<std::uint32_t>(h ^ (h >> 32));
}

// 64 bits of a text of any length, which reads no byte behind its end. Models keep them, to know
// the texts they were trained on: a change makes those of earlier versions unknown.
inline std::uint64_t text_hash(std::span<const std::uint8_t> text) {
    constexpr std::uint64_t k1 = 0x9E3779B97F4A7C15, k2 = 0xD6E8FEB86659FD93;
    const char* p = reinterpret_cast<const char*>(text.data());
    std::size_t n = text.size();
    std::uint64_t h = (n + 1) * k2;
    for (; n >= 16; p += 16, n -= 16) h = fold_product(load8(p) ^ h ^ k1, load8(p + 8) ^ k2);
    char rest[16] = {};
    if (n > 0) std::memcpy(rest, p, n);
    h = fold_product(load8(rest) ^ h ^ k1, load8(rest + 8) ^ k2);
    return fold_product(h ^ k2, k1);
}

inline bool same_term(const char* a, const char* b, std::size_t n) {
    if (n > 16) return std::memcmp(a, b, n) == 0;
    std::uint64_t differ = (load8(a) ^ load8(b)) & first_bytes(n);
    differ |= (load8(a + 8) ^ load8(b + 8)) & (n > 8 ? first_bytes(n - 8) : 0);
    return differ == 0;
}

// --- a saved lookup table: open addressing over slots of (hash << 32 | number + 1), 0 if empty

struct Lookup {
    std::span<const std::uint64_t> slots;
    Strings terms;

    Lookup(std::span<const std::uint64_t> slots_, Strings terms_) : slots(slots_), terms(terms_) {
        if (!slots.empty() && !std::has_single_bit(slots.size()))
            throw std::invalid_argument("a lookup table must have a power of two of slots, not " +
                                        std::to_string(slots.size()));
    }

    void prefetch_slot(std::uint32_t hash) const {
        if (!slots.empty()) __builtin_prefetch(&slots[hash & (slots.size() - 1)]);
    }
    void prefetch_term(std::uint32_t hash) const {
        if (slots.empty()) return;
        std::uint64_t number = (slots[hash & (slots.size() - 1)] & 0xFFFFFFFF) - 1;
        if (number >= terms.size()) return;
        auto begin = static_cast<std::uint64_t>(terms.offsets[number]);
        if (begin < terms.data.size()) __builtin_prefetch(&terms.data[begin]);
    }

    // The number of a term, or -1. Every number, offset and step is checked, as the arrays may
    // come from a damaged file.
    std::int32_t find(const char* p, std::size_t n, std::uint32_t hash) const {
        if (slots.empty()) return -1;
        std::size_t mask = slots.size() - 1, at = hash & mask;
        for (std::size_t step = 0; step <= mask; ++step, at = (at + 1) & mask) {
            std::uint64_t slot = slots[at];
            if (slot == 0) return -1;
            if (static_cast<std::uint32_t>(slot >> 32) != hash) continue;
            std::uint64_t number = (slot & 0xFFFFFFFF) - 1;
            if (number >= terms.size())
                throw std::invalid_argument("a lookup table names term " + std::to_string(number) +
                                            " of " + std::to_string(terms.size()));
            auto term = terms[number];
            if (term.size() != n) continue;
            auto known = reinterpret_cast<const char*>(term.data());
            bool readable = terms.data.data() + terms.data.size() - term.data() >=
                            static_cast<std::ptrdiff_t>(kReadable);
            if (readable ? same_term(known, p, n) : std::memcmp(known, p, n) == 0)
                return static_cast<std::int32_t>(number);
        }
        return -1;
    }
};

inline std::vector<std::uint64_t> lookup_slots(Strings terms) {
    if (terms.size() == 0) return {};
    if (terms.size() >= (std::size_t{1} << 31)) throw std::invalid_argument("too many terms");
    std::vector<std::uint64_t> slots(std::bit_ceil(terms.size() * 2));
    std::string padded;
    for (std::size_t i = 0; i < terms.size(); ++i) {
        auto term = terms[i];
        padded.assign(reinterpret_cast<const char*>(term.data()), term.size());
        padded.resize(term.size() + kReadable);
        std::uint32_t hash = term_hash(padded.data(), term.size());
        std::size_t at = hash & (slots.size() - 1);
        while (slots[at] != 0) at = (at + 1) & (slots.size() - 1);
        slots[at] = std::uint64_t{hash} << 32 | (i + 1);
    }
    return slots;
}

}  // namespace megalabel::text
