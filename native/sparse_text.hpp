// Sparse rows as text: `label,label feature:value feature:value ...`, one row a line.
//
// Reading: the text is cut into pieces at line ends, the pieces are parsed in parallel, and their
// rows are then copied, in parallel, to where prefix sums say. A row with something wrong is left
// out and described (line, column, what was expected, what was found). Nothing depends on how the
// text was cut or on the number of threads.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel.hpp"

namespace megalabel::sparse_text {

// Leaves new elements uninitialised: large arrays are first touched by the threads that fill them.
template <class T>
struct Uninitialised : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Uninitialised<U>;
    };
    template <class U, class... Arguments>
    void construct(U* where, Arguments&&... arguments) {
        if constexpr (sizeof...(Arguments) == 0)
            ::new (static_cast<void*>(where)) U;
        else
            ::new (static_cast<void*>(where)) U(std::forward<Arguments>(arguments)...);
    }
};
template <class T>
using Array = std::vector<T, Uninitialised<T>>;

struct Problem {
    std::int64_t line, column;  // from 1; columns count bytes
    std::string message;        // quotes the text, so not always valid UTF-8
};

struct Options {
    bool svmlight = false;        // comments, qid: and blank lines, which are not rows
    std::int64_t features = 0;    // feature numbers are below this
    std::int64_t labels = 0;      // label numbers are below this
    std::int64_t first_line = 1;  // the number of the text's first line
    std::size_t keep = 100;       // this many problems are described; all are counted
    std::size_t piece_bytes = std::size_t{1} << 20;
};

struct Rows {
    Array<std::int64_t> target_indptr, feature_indptr;
    Array<std::int32_t> target_indices, feature_indices;
    Array<float> values;
    std::int64_t bad = 0;  // rows left out
    std::vector<Problem> problems;
};

namespace detail {

struct Feature {
    std::int32_t number;
    float value;
};

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Powers of ten that are exact in a double.
inline constexpr double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
inline constexpr std::uint64_t WHOLE_POWERS[] = {1,      10,      100,      1000,     10000,
                                                 100000, 1000000, 10000000, 100000000};

// Appends the digits at p to value and returns where they end. Wraps around after 19 digits, so
// callers look at how many there were.
inline const char* read_digits(const char* p, const char* end, std::uint64_t& value) {
    if constexpr (std::endian::native == std::endian::little) {
        while (end - p >= 8) {
            // Eight bytes at a time, whichever of them are digits: numbers differ in length, and a
            // branch a digit would be mispredicted once a number.
            std::uint64_t bytes;
            std::memcpy(&bytes, p, 8);
            bytes ^= 0x3030303030303030;
            std::uint64_t other =
                ((bytes + 0x7676767676767676) | bytes) & std::uint64_t{0x8080808080808080};
            int count = std::countr_zero(other) >> 3;
            if (count == 0) return p;
            bytes <<= 64 - 8 * count;
            bytes = (bytes * 10 + (bytes >> 8)) & 0x00ff00ff00ff00ff;
            bytes = (bytes * 100 + (bytes >> 16)) & 0x0000ffff0000ffff;
            bytes = (bytes * 10000 + (bytes >> 32)) & 0x00000000ffffffff;
            value = value * WHOLE_POWERS[count] + bytes;
            p += count;
            if (count < 8) return p;
        }
    }
    for (; p < end && is_digit(*p); ++p) value = value * 10 + static_cast<std::uint64_t>(*p - '0');
    return p;
}

// The float32 nearest to the decimal number at p, ties to even, as strtof gives; returns where the
// number ends, or nullptr if there is none or if it is not finite.
inline const char* read_float(const char* p, const char* end, float& value) {
    const bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) ++p;
    const char* begin = p;
    std::uint64_t mantissa = 0;
    p = read_digits(p, end, mantissa);
    std::int64_t digits = p - begin, exponent = 0;
    if (p < end && *p == '.') {
        const char* fraction = ++p;
        p = read_digits(p, end, mantissa);
        exponent = fraction - p;
        digits += p - fraction;
    }
    if (digits == 0) return nullptr;
    if (p < end && (*p == 'e' || *p == 'E')) {
        ++p;
        const bool below = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) ++p;
        const char* first = p;
        std::uint64_t power = 0;
        p = read_digits(p, end, power);
        if (p == first) return nullptr;
        if (p - first > 9) power = 1'000'000'000;
        exponent += below ? -static_cast<std::int64_t>(power) : static_cast<std::int64_t>(power);
    }
    // Both factors are exact in a double, so one operation rounds correctly; rounding again to
    // float32 is harmless unless the double lies just between two float32 numbers.
    if (digits <= 15 && exponent >= -22 && exponent <= 22) {
        double exact = exponent < 0 ? static_cast<double>(mantissa) / POWERS[-exponent]
                                    : static_cast<double>(mantissa) * POWERS[exponent];
        if ((std::bit_cast<std::uint64_t>(exact) & 0x1fffffff) != 0x10000000) {
            value = static_cast<float>(negative ? -exact : exact);
            return p;
        }
    }
    auto [stop, error] = std::from_chars(begin, p, value);
    if (error == std::errc::result_out_of_range) {
        // Too small for float32, which is zero, or too large: the place of the first digit tells.
        for (const char* q = begin; q < p && (*q == '0' || *q == '.'); ++q) digits -= *q == '0';
        if (digits + exponent > 0) return nullptr;
        value = 0;
    } else if (error != std::errc{} || stop != p) {
        return nullptr;
    }
    if (negative) value = -value;
    return p;
}

// The lines that begin in one stretch of the text.
class Piece {
  public:
    Piece(const char* begin, const char* end, const char* text_end)
        : begin_(begin), end_(end), text_end_(text_end) {}

    void parse(const Options& options) {
        options_ = &options;
        // The most there can be, for "0:0 " is four bytes. Untouched memory costs nothing.
        features_.resize(static_cast<std::size_t>(end_ - begin_) / 4 + 1);
        feature_ = features_.data();
        for (const char* p = begin_; p < end_; ++lines) {
            auto* stop =
                static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end_ - p)));
            const char* next = stop == nullptr ? end_ : stop + 1;
            if (stop == nullptr) stop = end_;
            parse_line(p, stop);
            p = next;
        }
        features_.resize(static_cast<std::size_t>(feature_ - features_.data()));
    }

    // Copies the rows to their places and gives back the memory.
    void move_to(Rows& rows, std::size_t row, std::size_t target, std::size_t feature) {
        std::copy(labels_.begin(), labels_.end(), rows.target_indices.begin() + target);
        for (std::size_t i = 0; i < features_.size(); ++i) {
            rows.feature_indices[feature + i] = features_[i].number;
            rows.values[feature + i] = features_[i].value;
        }
        for (std::size_t i = 0; i < row_ends_.size(); ++i) {
            rows.target_indptr[row + i + 1] =
                static_cast<std::int64_t>(target + row_ends_[i].first);
            rows.feature_indptr[row + i + 1] =
                static_cast<std::int64_t>(feature + row_ends_[i].second);
        }
        Array<Feature>().swap(features_);
        std::vector<std::int32_t>().swap(labels_);
        std::vector<std::pair<std::size_t, std::size_t>>().swap(row_ends_);
    }

    std::size_t rows() const { return row_ends_.size(); }
    std::size_t labels() const { return labels_.size(); }
    std::size_t features() const { return features_.size(); }

    std::int64_t lines = 0, bad = 0;
    std::vector<Problem> problems;  // lines counted from 0, in this piece

  private:
    void parse_line(const char* p, const char* end) {
        line_ = p;
        if (p < end && end[-1] == '\r') --end;
        if (options_->svmlight) {
            auto* comment = std::memchr(p, '#', static_cast<std::size_t>(end - p));
            if (comment != nullptr) end = static_cast<const char*>(comment);
            if (std::all_of(p, end, is_blank)) return;
        }
        const std::size_t labels = labels_.size();
        Feature* const features = feature_;
        if (parse_row(p, end)) {
            row_ends_.emplace_back(labels_.size(),
                                   static_cast<std::size_t>(feature_ - features_.data()));
        } else {
            labels_.resize(labels);
            feature_ = features;
            ++bad;
        }
    }

    bool parse_row(const char* p, const char* end) {
        const std::size_t labels = labels_.size();
        // A row without labels begins with a blank or with a feature.
        if (p < end && !is_blank(*p) && !begins_with_pair(p, end)) {
            p = parse_labels(p, end);
            if (p == nullptr) return false;
            auto first = labels_.begin() + static_cast<std::ptrdiff_t>(labels);
            if (!std::is_sorted(first, labels_.end(), std::less_equal<>())) {
                std::sort(first, labels_.end());
                labels_.erase(std::unique(first, labels_.end()), labels_.end());
            }
        }
        Feature* const first = feature_;
        std::int64_t last = -1;
        bool sorted = true;
        for (;;) {
            while (p < end && is_blank(*p)) ++p;
            if (p == end) break;
            std::uint64_t number = 0;
            const char* colon = read_digits(p, text_end_, number);
            if (colon == p || colon == end || *colon != ':') {
                if (options_->svmlight && first == feature_ && is_query(p, end)) {
                    p = token_end(p, end);
                    continue;
                }
                return fail(p, end,
                            begins_with_pair(p, end) ? range("feature", options_->features)
                                                     : "feature:value");
            }
            if (colon - p > 18 || number >= static_cast<std::uint64_t>(options_->features))
                return fail(p, colon, range("feature", options_->features));
            float value = 0;
            const char* stop = read_float(colon + 1, text_end_, value);
            if (stop == nullptr || (stop < end && !is_blank(*stop)))
                return fail(colon + 1, end, "a finite number");
            sorted &= static_cast<std::int64_t>(number) > last;
            last = static_cast<std::int64_t>(number);
            *feature_++ = {static_cast<std::int32_t>(number), value};
            p = stop;
        }
        return sorted || sort(first, end);
    }

    const char* parse_labels(const char* p, const char* end) {
        for (;;) {
            std::uint64_t number = 0;
            const char* start = p + (p < end && *p == '+');
            p = read_digits(start, text_end_, number);
            const bool whole = p > start;
            const bool large =
                p - start > 18 || number >= static_cast<std::uint64_t>(options_->labels);
            // Some programs write labels as 3.0.
            if (whole && p < end && *p == '.') p = std::find_if(p + 1, end, is_not_zero);
            const bool more = p < end && *p == ',';
            if (!whole || (p < end && !more && !is_blank(*p))) {
                fail(start, end, range("label", options_->labels));
                return nullptr;
            }
            if (large) {
                fail(start, p, range("label", options_->labels));
                return nullptr;
            }
            labels_.push_back(static_cast<std::int32_t>(number));
            if (!more) return p;
            ++p;
        }
    }

    bool sort(Feature* first, const char* end) {
        std::sort(first, feature_, [](auto& a, auto& b) { return a.number < b.number; });
        auto* twice = std::adjacent_find(first, feature_,
                                         [](auto& a, auto& b) { return a.number == b.number; });
        if (twice == feature_) return true;
        // Sorting lost the places: look where it stands the second time.
        const auto wanted = static_cast<std::uint64_t>(twice->number);
        const char* where = line_;
        int seen = 0;
        for (const char* p = line_; p < end && seen < 2; p = token_end(p, end)) {
            while (p < end && is_blank(*p)) ++p;
            std::uint64_t number = 0;
            const char* colon = read_digits(p, end, number);
            if (colon == p || colon == end || *colon != ':' || number != wanted) continue;
            where = p;
            ++seen;
        }
        return fail(where, end, "each feature once");
    }

    static bool is_not_zero(char c) { return c != '0'; }

    static const char* token_end(const char* p, const char* end) {
        return std::find_if(p, end, is_blank);
    }

    // Whether a whole number, be it negative, and a colon stand at p.
    static bool begins_with_pair(const char* p, const char* end) {
        if (*p == '-' || *p == '+') ++p;
        const char* colon = std::find_if_not(p, end, is_digit);
        return colon > p && colon < end && *colon == ':';
    }

    static bool is_query(const char* p, const char* end) {
        std::string_view token(p, static_cast<std::size_t>(token_end(p, end) - p));
        return token.size() > 4 && token.starts_with("qid:") &&
               std::all_of(token.begin() + 4, token.end(), is_digit);
    }

    static std::string range(const char* what, std::int64_t limit) {
        if (limit <= 0) return std::string("no ") + what;
        return std::string("a ") + what + " number from 0 to " + std::to_string(limit - 1);
    }

    bool fail(const char* where, const char* end, std::string_view expected) {
        if (problems.size() < options_->keep) {
            constexpr std::ptrdiff_t SHOWN = 40;
            const char* stop = token_end(where, end);
            const bool cut = stop - where > SHOWN;
            std::string found(where, cut ? where + SHOWN : stop);
            std::string message = "expected " + std::string(expected) + ", found ";
            message += found.empty() ? "nothing" : "'" + found + (cut ? "…'" : "'");
            problems.push_back({lines, where - line_ + 1, std::move(message)});
        }
        return false;
    }

    const char *begin_, *end_, *text_end_;
    const Options* options_ = nullptr;
    const char* line_ = nullptr;
    std::vector<std::int32_t> labels_;
    Array<Feature> features_;
    Feature* feature_ = nullptr;
    std::vector<std::pair<std::size_t, std::size_t>> row_ends_;  // in labels_ and in features_
};

inline std::vector<Piece> cut(std::span<const char> text, std::size_t piece_bytes) {
    std::vector<Piece> pieces;
    const char* end = text.data() + text.size();
    for (const char* p = text.data(); p < end;) {
        const char* stop = end;
        if (static_cast<std::size_t>(end - p) > piece_bytes) {
            const char* near = p + std::max<std::size_t>(piece_bytes, 1) - 1;
            auto* line_end = static_cast<const char*>(
                std::memchr(near, '\n', static_cast<std::size_t>(end - near)));
            if (line_end != nullptr) stop = line_end + 1;
        }
        pieces.emplace_back(p, stop, end);
        p = stop;
    }
    return pieces;
}

}  // namespace detail

inline Rows parse(std::span<const char> text, const Options& options) {
    auto pieces = detail::cut(text, options.piece_bytes);
    parallel_for(pieces.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) pieces[i].parse(options);
    });
    struct Place {
        std::size_t row = 0, target = 0, feature = 0;
    };
    Rows rows;
    Place total;
    std::vector<Place> places;
    std::int64_t line = options.first_line;
    for (auto& piece : pieces) {
        places.push_back(total);
        total.row += piece.rows();
        total.target += piece.labels();
        total.feature += piece.features();
        for (auto& problem : piece.problems) {
            if (rows.problems.size() == options.keep) break;
            problem.line += line;
            rows.problems.push_back(std::move(problem));
        }
        rows.bad += piece.bad;
        line += piece.lines;
    }
    rows.target_indptr.resize(total.row + 1);
    rows.feature_indptr.resize(total.row + 1);
    rows.target_indptr[0] = rows.feature_indptr[0] = 0;
    rows.target_indices.resize(total.target);
    rows.feature_indices.resize(total.feature);
    rows.values.resize(total.feature);
    parallel_for(pieces.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            pieces[i].move_to(rows, places[i].row, places[i].target, places[i].feature);
    });
    return rows;
}

struct Sparse {
    std::span<const std::int64_t> indptr;
    std::span<const std::int32_t> indices;
};

// The lines of rows [begin, end): each value is the shortest decimal that reads back the same.
inline std::string format(Sparse targets, Sparse features, std::span<const float> values,
                          std::size_t begin, std::size_t end) {
    if (begin > end || end >= targets.indptr.size() || end >= features.indptr.size() ||
        values.size() != features.indices.size())
        throw std::invalid_argument("rows to write lie outside of the matrices");
    for (const Sparse& matrix : {targets, features})
        for (std::size_t row = begin; row < end; ++row)
            if (matrix.indptr[row] < 0 || matrix.indptr[row] > matrix.indptr[row + 1] ||
                static_cast<std::size_t>(matrix.indptr[row + 1]) > matrix.indices.size())
                throw std::invalid_argument("indptr of row " + std::to_string(row) +
                                            " is not within the matrix");
    constexpr std::size_t GRAIN = 256;
    std::vector<std::string> pieces((end - begin + GRAIN - 1) / GRAIN);
    parallel_for(end - begin, GRAIN, [&](std::size_t first, std::size_t last) {
        std::string& out = pieces[first / GRAIN];
        char buffer[64];
        auto put = [&](auto number) {
            auto result = std::to_chars(buffer, buffer + sizeof buffer, number);
            out.append(buffer, result.ptr);
        };
        for (std::size_t row = begin + first; row < begin + last; ++row) {
            for (auto i = targets.indptr[row]; i < targets.indptr[row + 1]; ++i) {
                if (i > targets.indptr[row]) out += ',';
                put(targets.indices[static_cast<std::size_t>(i)]);
            }
            for (auto i = features.indptr[row]; i < features.indptr[row + 1]; ++i) {
                out += ' ';
                put(features.indices[static_cast<std::size_t>(i)]);
                out += ':';
                put(values[static_cast<std::size_t>(i)]);
            }
            out += '\n';
        }
    });
    std::string text;
    text.reserve(std::accumulate(pieces.begin(), pieces.end(), std::size_t{0},
                                 [](std::size_t n, auto& piece) { return n + piece.size(); }));
    for (auto& piece : pieces) text += piece;
    return text;
}

}  // namespace megalabel::sparse_text
