// A text's terms: words, runs of words, or runs of characters, as scikit-learn's analyzers give
// them. Terms are slices of a scratch buffer; nothing is allocated for a term.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lookup.hpp"
#include "parallel.hpp"
#include "unicode.hpp"

namespace megalabel::text {

// Lower case and word characters of ASCII bytes, and whether all of them are ASCII. Written so
// that the compiler vectorises it.
MEGALABEL_CLONES inline bool classify_ascii(const std::uint8_t* in, std::size_t n, bool lower,
                                            char* out, std::uint8_t* word) {
    const std::uint8_t shift = lower ? 'a' - 'A' : 0;
    std::uint8_t all = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::uint8_t c = in[i];
        std::uint8_t upper = static_cast<std::uint8_t>(c - 'A') < 26;
        std::uint8_t letter = static_cast<std::uint8_t>((c | 0x20) - 'a') < 26;
        std::uint8_t digit = static_cast<std::uint8_t>(c - '0') < 10;
        out[i] = static_cast<char>(c + (upper ? shift : 0));
        word[i] = letter | digit | (c == '_');
        all |= c;
    }
    return all < 0x80;
}

MEGALABEL_CLONES inline bool is_ascii(const std::uint8_t* in, std::size_t n) {
    std::uint8_t all = 0;
    for (std::size_t i = 0; i < n; ++i) all |= in[i];
    return all < 0x80;
}

enum class Unit { kWord, kCharacter, kCharacterInWord };

struct Analysis {
    Unit unit;
    unicode::Case change;
    bool strip_marks;
    std::size_t shortest, longest;  // of n-grams
    std::size_t min_word_length;
    std::size_t cut;  // words are cut to so many characters; 0: they are not
};

// The stems of words that were met, and what becomes of the endings of others; no stem is longer
// than its word.
struct Stems {
    Lookup words;
    std::span<const std::int32_t> stem_of;  // of each word, its place among the stems
    Strings stems;
    Lookup endings;
    std::span<const std::uint8_t> cuts;  // bytes that each ending loses
    Strings appended;                    // what takes their place

    bool empty() const { return words.slots.empty(); }

    // Puts the stem of a word in its place, behind which kReadable bytes can be read; gives how
    // many bytes that has.
    std::size_t apply(char* p, std::size_t n) const {
        const std::int32_t number = words.find(p, n, term_hash(p, n));
        if (number < 0) return shortened(p, n);
        const std::int32_t stem = at(stem_of, number, words.terms.size());
        if (stem < 0 || static_cast<std::size_t>(stem) >= stems.size())
            throw std::invalid_argument("stem " + std::to_string(stem) + " of " +
                                        std::to_string(stems.size()));
        const auto found = stems[static_cast<std::size_t>(stem)];
        if (found.empty() || found.size() > n)
            throw std::invalid_argument("a stem must be no longer than its word, and not empty");
        std::memcpy(p, found.data(), found.size());
        return found.size();
    }

  private:
    static constexpr std::size_t kFewest = 4, kLongest = 12;  // bytes of a word, of an ending

    template <class T>
    static T at(std::span<const T> values, std::int32_t number, std::size_t size) {
        if (values.size() != size)
            throw std::invalid_argument("words and what is known of them differ in number");
        return values[static_cast<std::size_t>(number)];
    }

    // The same by the longest ending that is known.
    std::size_t shortened(char* p, std::size_t n) const {
        if (endings.slots.empty() || n < kFewest) return n;
        for (std::size_t length = std::min(kLongest, n - 2); length > 0; --length) {
            const char* ending = p + (n - length);
            const std::int32_t number = endings.find(ending, length, term_hash(ending, length));
            if (number < 0) continue;
            const std::size_t cut = at(cuts, number, endings.terms.size());
            if (appended.size() != endings.terms.size())
                throw std::invalid_argument("endings and what takes their place differ in number");
            const auto more = appended[static_cast<std::size_t>(number)];
            if (cut > length || more.size() > cut) return n;
            if (!more.empty()) std::memcpy(p + (n - cut), more.data(), more.size());
            return n - cut + more.size();
        }
        return n;
    }
};

// Which words are left out, and what becomes of others.
struct WordTables {
    Lookup stop;
    Stems stems;
};

class Analyzer {
  public:
    Analyzer(const Analysis& how, const WordTables& rules)
        : how_(how), stop_(rules.stop), stems_(rules.stems) {
        if (how.shortest < 1 || how.longest < how.shortest)
            throw std::invalid_argument("n-grams must be from 1 up, the shorter length first");
    }

    // Calls sink(begin, length) for each term of the text; kReadable bytes can be read from begin.
    // The bytes stay in place until the next call.
    template <class Sink>
    void operator()(std::span<const std::uint8_t> text, Sink&& sink) {
        if (text.size() >= (std::size_t{1} << 30))
            throw std::invalid_argument("a text of " + std::to_string(text.size()) +
                                        " bytes is too long; at most 1 GiB");
        if (text.empty()) return;
        std::size_t room = text.size() * unicode::kMaxGrowth + 64;
        if (buffer_.size() < room) buffer_.resize(room);
        slices_.clear();
        if (how_.unit == Unit::kWord) {
            words(text);
            emit_words(sink);
        } else if (how_.unit == Unit::kCharacter) {
            characters(text);
            emit_characters(0, starts_.size() - 1, sink);
        } else {
            characters_in_words(text);
            for (Slice word : slices_) {
                // a word that is shorter than the n-grams, with its spaces, counts once as a whole
                if (word.end - word.begin < how_.shortest)
                    sink(buffer_.data() + starts_[word.begin],
                         starts_[word.end] - starts_[word.begin]);
                emit_characters(word.begin, word.end, sink);
            }
        }
    }

  private:
    struct Slice {
        std::uint32_t begin, end;
    };

    bool keeps_word(const char* p, std::size_t bytes) const {
        return stop_.slots.empty() || stop_.find(p, bytes, term_hash(p, bytes)) < 0;
    }

    // Puts the stem of a word, or its beginning, in its place; gives how many bytes that has.
    std::size_t shortened(char* p, std::size_t bytes) const {
        if (!stems_.empty()) bytes = stems_.apply(p, bytes);
        return how_.cut == 0 ? bytes : unicode::prefix_bytes(p, bytes, how_.cut);
    }

    void words(std::span<const std::uint8_t> text) {
        if (word_.size() < text.size() + 64) word_.resize(text.size() + 64);
        bool lower = how_.change != unicode::Case::kKeep;
        if (classify_ascii(text.data(), text.size(), lower, buffer_.data(), word_.data()))
            ascii_words(text.size());
        else
            unicode_words(text);
    }

    // Words are the runs of ones among the bits of word_.
    void ascii_words(std::size_t n) {
        std::memset(word_.data() + n, 0, 64);
        joined_ = 0;
        std::uint64_t before = 0;  // whether the last byte of the previous block was in a word
        std::size_t begin = 0;
        for (std::size_t block = 0; block <= n; block += 64) {
            std::uint64_t bits = 0;
            for (std::size_t i = 0; i < 8; ++i) {
                std::uint64_t bytes =
                    load8(reinterpret_cast<const char*>(word_.data() + block + 8 * i));
                // gathers the lowest bit of each byte into the top byte of the product
                bits |= (bytes * 0x0102040810204080 >> 56) << (8 * i);
            }
            std::uint64_t edges = bits ^ (bits << 1 | before);
            before = bits >> 63;
            for (; edges != 0; edges &= edges - 1) {
                std::size_t at = block + std::countr_zero(edges);
                if (bits >> (at - block) & 1)
                    begin = at;
                else
                    add_ascii_word(begin, at);
            }
        }
    }

    void add_ascii_word(std::size_t begin, std::size_t end) {
        char* text = buffer_.data();
        if (end - begin < how_.min_word_length || !keeps_word(text + begin, end - begin)) return;
        end = begin + shortened(text + begin, end - begin);
        if (how_.longest > 1) {  // n-grams are slices too once words are one space apart
            std::memmove(text + joined_, text + begin, end - begin);
            end = joined_ + (end - begin);
            begin = joined_;
            text[end] = ' ';
            joined_ = end + 1;
        }
        slices_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    }

    void unicode_words(std::span<const std::uint8_t> text) {
        const std::uint8_t* known = unicode::properties();
        char *begin = buffer_.data(), *out = begin, *word = begin;
        std::size_t length = 0;
        auto finish = [&] {
            if (length >= how_.min_word_length && keeps_word(word, out - word)) {
                out = word + shortened(word, out - word);
                slices_.push_back({static_cast<std::uint32_t>(word - begin),
                                   static_cast<std::uint32_t>(out - begin)});
                *out++ = ' ';
            } else {
                out = word;
            }
            word = out;
            length = 0;
        };
        unicode::each_character(text, how_.change, [&](std::uint32_t c) {
            std::uint8_t is = known[c];
            if (how_.strip_marks && (is & unicode::kIsMark)) return;
            if (is & unicode::kIsWord) {
                out = unicode::encode(c, out);
                ++length;
            } else if (length > 0) {
                finish();
            }
        });
        if (length > 0) finish();
    }

    template <class Sink>
    void emit_words(Sink&& sink) {
        const char* text = buffer_.data();
        for (std::size_t n = how_.shortest; n <= how_.longest && n <= slices_.size(); ++n)
            for (std::size_t i = 0; i + n <= slices_.size(); ++i)
                sink(text + slices_[i].begin, slices_[i + n - 1].end - slices_[i].begin);
    }

    // Where each character starts goes to starts_, with the end after the last.
    void characters(std::span<const std::uint8_t> text) {
        std::size_t spaces = 0;
        each_kept(text, [&](std::uint32_t c, bool space) {
            spaces = space ? spaces + 1 : 0;
            if (spaces < 2) {
                put(c);
            } else {  // two or more spaces become a plain one; a single one stays as it is
                out_ = buffer_.data() + starts_.back();
                *out_++ = ' ';
            }
        });
        starts_.push_back(static_cast<std::uint32_t>(out_ - buffer_.data()));
    }

    // Words with a space before, between and after them; each slice is a word with both its spaces.
    void characters_in_words(std::span<const std::uint8_t> text) {
        bool open = false;
        std::size_t begin = 0;
        auto close = [&] {
            put(' ');
            slices_.push_back(
                {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(starts_.size())});
            open = false;
        };
        each_kept(text, [&](std::uint32_t c, bool space) {
            if (space) {
                if (open) close();
                return;
            }
            if (!open) {
                if (starts_.empty()) put(' ');
                begin = starts_.size() - 1;
                open = true;
            }
            put(c);
        });
        if (open) close();
        starts_.push_back(static_cast<std::uint32_t>(out_ - buffer_.data()));
    }

    template <class Visit>
    void each_kept(std::span<const std::uint8_t> text, Visit&& visit) {
        const std::uint8_t* known = unicode::properties();
        starts_.clear();
        out_ = buffer_.data();
        unicode::each_character(text, how_.change, [&](std::uint32_t c) {
            if (!(how_.strip_marks && (known[c] & unicode::kIsMark)))
                visit(c, known[c] & unicode::kIsSpace);
        });
    }

    void put(std::uint32_t c) {
        starts_.push_back(static_cast<std::uint32_t>(out_ - buffer_.data()));
        out_ = unicode::encode(c, out_);
    }

    template <class Sink>
    void emit_characters(std::size_t first, std::size_t last, Sink&& sink) {
        for (std::size_t n = how_.shortest; n <= how_.longest && n <= last - first; ++n)
            for (std::size_t i = first; i + n <= last; ++i)
                sink(buffer_.data() + starts_[i], starts_[i + n] - starts_[i]);
    }

    Analysis how_;
    Lookup stop_;
    Stems stems_;
    std::vector<char> buffer_;
    std::vector<std::uint8_t> word_;
    std::vector<Slice> slices_;
    std::vector<std::uint32_t> starts_;
    std::size_t joined_ = 0;  // where the next word goes, if words are to be one space apart
    char* out_ = nullptr;
};

// The terms of the texts in the order in which they come.
inline std::pair<std::vector<std::int64_t>, std::vector<std::uint8_t>> analyse(
    const Strings& texts, const Analysis& how, const WordTables& rules) {
    Analyzer analyzer(how, rules);
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint8_t> data;
    for (std::size_t i = 0; i < texts.size(); ++i)
        analyzer(texts[i], [&](const char* begin, std::uint32_t length) {
            data.insert(data.end(), begin, begin + length);
            offsets.push_back(static_cast<std::int64_t>(data.size()));
        });
    return {std::move(offsets), std::move(data)};
}

}  // namespace megalabel::text
