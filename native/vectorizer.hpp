// Texts to rows of a sparse matrix: terms looked up or hashed, counted and weighed.
#pragma once

#include <cmath>

#include "counting.hpp"

namespace megalabel::text {

inline constexpr std::size_t kFewCells = 64;

// Counts of terms: columns rise within a row.
struct CountRows {
    std::vector<std::int64_t> indptr;
    Buffer<std::int32_t> indices;
    Buffer<float> counts;
};

// Sorts a few different cells: each goes to the place that the number of smaller ones gives. That
// needs no branches, and vectors do the counting.
MEGALABEL_CLONES inline void rank_cells(std::uint64_t* cells, std::size_t n) {
    constexpr std::size_t kLanes = 8;
    std::int64_t padded[kFewCells];
    std::size_t width = (n + kLanes - 1) / kLanes * kLanes;
    for (std::size_t i = 0; i < width; ++i)
        padded[i] =
            i < n ? static_cast<std::int64_t>(cells[i]) : std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < n; ++i) {
        std::int64_t smaller = 0;
        for (std::size_t j = 0; j < width; j += kLanes)
            for (std::size_t lane = 0; lane < kLanes; ++lane)
                smaller += padded[j + lane] < padded[i];
        cells[smaller] = static_cast<std::uint64_t>(padded[i]);
    }
}

// Sorts cells by column, a byte of the column at a time if they are many.
class CellSorter {
  public:
    void operator()(std::uint64_t* cells, std::size_t n) {
        if (n <= kFewCells) return rank_cells(cells, n);
        std::uint64_t greatest = *std::max_element(cells, cells + n);
        if (other_.size() < n) other_.resize(n);
        std::uint64_t *from = cells, *to = other_.data();
        for (int shift = 32; shift < 64 && greatest >> shift != 0; shift += 8) {
            std::size_t places[257] = {};
            for (std::size_t i = 0; i < n; ++i) ++places[(from[i] >> shift & 0xFF) + 1];
            std::partial_sum(places, places + 257, places);
            for (std::size_t i = 0; i < n; ++i) to[places[from[i] >> shift & 0xFF]++] = from[i];
            std::swap(from, to);
        }
        if (from != cells) std::copy(from, from + n, cells);
    }

  private:
    std::vector<std::uint64_t> other_;
};

// Joins pieces to one matrix. With `columns`, each worker's numbers become columns (-1: dropped);
// without, cells are in place already. Pieces are freed as they are written.
inline CountRows assemble(std::vector<Piece>& pieces,
                          const std::vector<std::vector<std::int32_t>>* columns) {
    std::vector<std::size_t> row_begins(pieces.size() + 1), cell_begins(pieces.size() + 1);
    parallel_for(pieces.size(), 1, [&](std::size_t first, std::size_t last) {
        CellSorter sort;
        for (std::size_t p = first; p < last; ++p) {
            Piece& piece = pieces[p];
            row_begins[p + 1] = piece.lengths.size();
            if (columns == nullptr) {
                cell_begins[p + 1] = piece.cells.size();
                continue;
            }
            // renumbered, compacted and sorted where they lie
            const auto& column = (*columns)[piece.worker];
            std::uint64_t *in = piece.cells.data(), *out = in;
            for (std::uint32_t& length : piece.lengths) {
                std::uint64_t* row = out;
                for (const std::uint64_t* end = in + length; in != end; ++in) {
                    std::int32_t to = column[*in >> 32];
                    if (to >= 0) *out++ = cell(static_cast<std::uint64_t>(to), *in & 0xFFFFFFFF);
                }
                length = static_cast<std::uint32_t>(out - row);
                sort(row, length);
            }
            cell_begins[p + 1] = out - piece.cells.data();
        }
    });
    std::partial_sum(row_begins.begin(), row_begins.end(), row_begins.begin());
    std::partial_sum(cell_begins.begin(), cell_begins.end(), cell_begins.begin());
    CountRows rows;
    rows.indptr.resize(row_begins.back() + 1);
    rows.indices = Buffer<std::int32_t>(cell_begins.back());
    rows.counts = Buffer<float>(cell_begins.back());
    parallel_for(pieces.size(), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t p = first; p < last; ++p) {
            Piece piece = std::move(pieces[p]);
            std::size_t end = cell_begins[p], row = row_begins[p];
            for (std::uint32_t length : piece.lengths)
                rows.indptr[++row] = static_cast<std::int64_t>(end += length);
            for (std::size_t i = cell_begins[p], j = 0; i < end; ++i, ++j) {
                rows.indices[i] = static_cast<std::int32_t>(piece.cells[j] >> 32);
                rows.counts[i] = static_cast<float>(piece.cells[j] & 0xFFFFFFFF);
            }
        }
    });
    return rows;
}

struct Learned {
    Terms terms;
    std::size_t found;  // terms before the selection
    CountRows rows;
};

// Learns the terms of the texts and gives their rows, reading the texts once.
inline Learned learn_rows(const Strings& texts, const Analysis& how, const WordTables& rules,
                          Selection wanted) {
    Counted counted = count_terms(texts, how, rules, true);
    auto [terms, columns] = select_terms(counted.terms.view(), wanted);
    for (auto& numbers : counted.numbers)
        for (std::int32_t& number : numbers) number = columns[static_cast<std::size_t>(number)];
    return {std::move(terms), columns.size(), assemble(counted.pieces, &counted.numbers)};
}

// Rows by the columns that `Finder` gives: find(begin, length, hash) is a column or -1.
template <class Finder>
class RowCollector {
  public:
    explicit RowCollector(const Finder& finder) : finder_(finder) {}

    std::uint32_t hash(const char* p, std::size_t n) const { return finder_.hash(p, n); }
    void prefetch_slot(std::uint32_t hash) const { finder_.prefetch_slot(hash); }
    void prefetch_term(std::uint32_t hash) const { finder_.prefetch_term(hash); }
    void visit(const char* begin, std::uint32_t length, std::uint32_t hash) {
        std::int32_t column = finder_.find(begin, length, hash);
        if (column < 0) return;
        found_.push_back(cell(static_cast<std::uint64_t>(column), found_.size()));
        if (found_.size() == kMany) count_found(partial_);
    }

    void finish_row() {
        std::size_t before = cells_.size();
        count_found(partial_.empty() ? cells_ : partial_);
        std::sort(partial_.begin(), partial_.end());
        for (std::uint64_t next : partial_) {
            if (cells_.size() > before && cells_.back() >> 32 == next >> 32)
                cells_.back() += next & 0xFFFFFFFF;
            else
                cells_.push_back(next);
        }
        partial_.clear();
        lengths_.push_back(static_cast<std::uint32_t>(cells_.size() - before));
    }

    Piece piece() { return {{cells_.begin(), cells_.end()}, std::move(lengths_), 0}; }

  private:
    // Adds the columns found to `counted`, with how often each was.
    void count_found(std::vector<std::uint64_t>& counted) {
        sort_(found_.data(), found_.size());
        for (std::size_t i = 0, j; i < found_.size(); i = j) {
            std::uint64_t column = found_[i] >> 32;
            for (j = i + 1; j < found_.size() && found_[j] >> 32 == column;) ++j;
            counted.push_back(cell(column, j - i));
        }
        found_.clear();
    }

    static constexpr std::size_t kMany = 1 << 20;  // a long text's terms are counted in parts
    const Finder& finder_;
    CellSorter sort_;
    std::vector<std::uint64_t> cells_;
    std::vector<std::uint32_t> lengths_;
    std::vector<std::uint64_t> found_;  // column << 32 | order, so that no two are the same
    std::vector<std::uint64_t> partial_;
};

template <class Finder>
CountRows find_rows(const Strings& texts, const Analysis& how, const WordTables& rules,
                    const Finder& finder) {
    Workers<Analyzer> workers([&](std::size_t) { return Analyzer(how, rules); });
    std::vector<Piece> pieces(piece_count(texts));
    each_piece(texts, [&](std::size_t number, std::size_t begin, std::size_t end) {
        workers.lend([&](Analyzer& analyzer, std::size_t) {
            RowCollector collector(finder);
            Pipeline pipeline(collector);
            for (std::size_t row = begin; row < end; ++row) {
                analyzer(texts[row], pipeline);
                pipeline.drain();
                collector.finish_row();
            }
            pieces[number] = collector.piece();
        });
    });
    return assemble(pieces, nullptr);
}

// Finds the columns of learned terms.
struct TermFinder {
    Lookup lookup;
    static std::uint32_t hash(const char* p, std::size_t n) { return term_hash(p, n); }
    void prefetch_slot(std::uint32_t hash) const { lookup.prefetch_slot(hash); }
    void prefetch_term(std::uint32_t hash) const { lookup.prefetch_term(hash); }
    std::int32_t find(const char* p, std::uint32_t n, std::uint32_t hash) const {
        return lookup.find(p, n, hash);
    }
};

// MurmurHash3 (x86, 32 bits) of the UTF-8 bytes with seed 0, by Austin Appleby's public definition.
inline std::uint32_t murmur3(const char* p, std::size_t n) {
    constexpr std::uint32_t c1 = 0xCC9E2D51, c2 = 0x1B873593;
    auto scramble = [](std::uint32_t k) { return std::rotl(k * c1, 15) * c2; };
    std::uint32_t h = 0;
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4)
        h = std::rotl(h ^ scramble(static_cast<std::uint32_t>(load8(p + i))), 13) * 5 + 0xE6546B64;
    // load8 reads on past the end, where kReadable bytes from the start are sure to be readable
    h ^= scramble(i < n ? static_cast<std::uint32_t>(load8(p + i) & first_bytes(n - i)) : 0);
    h ^= static_cast<std::uint32_t>(n);
    h = (h ^ (h >> 16)) * 0x85EBCA6B;
    h = (h ^ (h >> 13)) * 0xC2B2AE35;
    return h ^ (h >> 16);
}

// A column for every term there could be; the sign of the hash is dropped as scikit-learn does.
struct HashFinder {
    std::uint32_t columns;
    explicit HashFinder(std::uint32_t n) : columns(n) {
        if (n < 1 || n > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()))
            throw std::invalid_argument("hashing into " + std::to_string(n) + " columns");
    }
    static std::uint32_t hash(const char* p, std::size_t n) { return murmur3(p, n); }
    void prefetch_slot(std::uint32_t) const {}
    void prefetch_term(std::uint32_t) const {}
    std::int32_t find(const char*, std::uint32_t, std::uint32_t hash) const {
        std::uint32_t size = hash >> 31 ? 0u - hash : hash;
        return static_cast<std::int32_t>(size % columns);
    }
};

// --- weights

enum class Norm { kNone, kL1, kL2 };

// Counts to weights, in place: tf, times idf (none if empty), divided by the row's norm. The norm is
// that of the columns before `counted`; of all of them where a row has no other.
inline void weigh_rows(std::span<const std::int64_t> indptr, std::span<const std::int32_t> indices,
                       std::span<float> values, std::span<const float> idf, bool binary,
                       bool sublinear, Norm norm, std::int64_t counted) {
    if (indptr.empty() || indices.size() != values.size() || indptr.front() != 0 ||
        indptr.back() != static_cast<std::int64_t>(values.size()))
        throw std::invalid_argument("not the arrays of a CSR matrix");
    static const std::vector<double> tf = [] {
        std::vector<double> values(64);
        for (std::size_t i = 1; i < values.size(); ++i)
            values[i] = 1 + std::log(static_cast<double>(i));
        return values;
    }();
    auto frequency = [&](float count) -> double {
        if (binary) return 1;
        if (!sublinear) return count;
        const bool small = count >= 0 && count < static_cast<float>(tf.size());
        const auto whole = static_cast<std::int32_t>(small ? count : 0);
        return small && static_cast<float>(whole) == count
                   ? tf[static_cast<std::size_t>(whole)]
                   : 1 + std::log(static_cast<double>(count));
    };
    std::size_t grain = rows_a_piece(indptr.size() - 1, values.size());
    parallel_for(indptr.size() - 1, grain, [&](std::size_t first, std::size_t last) {
        for (std::size_t row = first; row < last; ++row) {
            std::int64_t begin = indptr[row], end = indptr[row + 1];
            if (begin < 0 || end < begin || end > indptr.back())
                throw std::invalid_argument("row " + std::to_string(row) +
                                            " lies outside its matrix");
            double total = 0, rest = 0;
            for (std::int64_t i = begin; i < end; ++i) {
                double weight = frequency(values[i]);
                if (!idf.empty()) {
                    auto column = static_cast<std::size_t>(indices[i]);
                    if (column >= idf.size())
                        throw std::invalid_argument("column " + std::to_string(indices[i]) +
                                                    " of " + std::to_string(idf.size()));
                    weight *= idf[column];
                }
                values[i] = static_cast<float>(weight);
                (indices[i] < counted ? total : rest) +=
                    norm == Norm::kL2 ? weight * weight : std::abs(weight);
            }
            if (total == 0) total = rest;
            if (norm == Norm::kNone || total == 0) continue;
            double scale = 1 / (norm == Norm::kL2 ? std::sqrt(total) : total);
            for (std::int64_t i = begin; i < end; ++i)
                values[i] = static_cast<float>(values[i] * scale);
        }
    });
}

}  // namespace megalabel::text
