// Learning terms: texts are taken in pieces, in parallel. Each worker counts terms in a table of
// its own; the tables are then sorted and merged, so that terms have the same numbers whatever the
// number of threads was.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "analyzer.hpp"
#include "parallel.hpp"

namespace megalabel::text {

// An array whose memory is first touched by the threads that fill it.
template <class T>
struct Buffer {
    std::unique_ptr<T[]> data;
    std::size_t size = 0;

    Buffer() = default;
    explicit Buffer(std::size_t n) : data(std::make_unique_for_overwrite<T[]>(n)), size(n) {}
    T& operator[](std::size_t i) { return data[i]; }
};

// Terms in the order of their bytes (which for UTF-8 is that of their characters), with the number
// of texts they occur in and how often they occur in all.
struct TermsView {
    Strings strings;
    std::span<const std::int64_t> text_counts, counts;

    std::size_t size() const { return strings.size(); }
    void check() const {
        if (text_counts.size() != size() || counts.size() != size())
            throw std::invalid_argument("terms and their counts differ in number");
    }
};

struct Terms {
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint8_t> data;
    std::vector<std::int64_t> text_counts, counts;

    TermsView view() const { return {{offsets, data}, text_counts, counts}; }
    void add(std::span<const std::uint8_t> term, std::int64_t texts, std::int64_t count) {
        data.insert(data.end(), term.begin(), term.end());
        offsets.push_back(static_cast<std::int64_t>(data.size()));
        text_counts.push_back(texts);
        counts.push_back(count);
    }
};

// Memory that goes back to the system as soon as it is freed, which malloc does not promise: pieces
// are freed one by one while the matrix they go into grows. The few cells of a query or two come
// from malloc, as fresh pages would take longer than the query.
template <class T>
struct PageAllocator {
    using value_type = T;
    static constexpr std::size_t kFew = (1 << 16) / sizeof(T);
    T* allocate(std::size_t n) {
        if (n <= kFew) return std::allocator<T>{}.allocate(n);
        void* pages = ::mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
        return static_cast<T*>(pages);
    }
    void deallocate(T* p, std::size_t n) noexcept {
        if (n <= kFew)
            std::allocator<T>{}.deallocate(p, n);
        else
            ::munmap(p, n * sizeof(T));
    }
    bool operator==(const PageAllocator&) const = default;
};

// Rows a worker has made: cells of (column << 32 | count), row after row.
struct Piece {
    std::vector<std::uint64_t, PageAllocator<std::uint64_t>> cells;
    std::vector<std::uint32_t> lengths;
    std::size_t worker = 0;
};

inline int compare(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
    int order = std::memcmp(a.data(), b.data(), std::min(a.size(), b.size()));
    return order != 0 ? order : a.size() < b.size() ? -1 : a.size() > b.size();
}

inline std::uint64_t cell(std::uint64_t column, std::uint64_t count) {
    return column << 32 | count;
}

inline std::size_t piece_count(const Strings& texts) {
    std::size_t rows = rows_a_piece(texts.size(), texts.bytes());
    return (texts.size() + rows - 1) / rows;
}

// Calls body(piece, begin, end) in parallel for the rows of each piece.
template <class Body>
void each_piece(const Strings& texts, Body&& body) {
    std::size_t rows = rows_a_piece(texts.size(), texts.bytes());
    parallel_for(piece_count(texts), 1, [&](std::size_t first, std::size_t last) {
        for (std::size_t piece = first; piece < last; ++piece)
            body(piece, piece * rows, std::min(texts.size(), (piece + 1) * rows));
    });
}

// One state for each thread that takes part, lent for a piece at a time.
template <class State>
class Workers {
  public:
    explicit Workers(std::function<State(std::size_t)> make) : make_(std::move(make)) {}

    template <class Body>
    void lend(Body&& body) {
        std::size_t number;
        State* state;
        {
            std::lock_guard lock(mutex_);
            if (idle_.empty()) {
                states_.push_back(std::make_unique<State>(make_(states_.size())));
                idle_.push_back(states_.size() - 1);
            }
            number = idle_.back();
            state = states_[number].get();
            idle_.pop_back();
        }
        body(*state, number);
        std::lock_guard lock(mutex_);
        idle_.push_back(number);
    }

    const std::vector<std::unique_ptr<State>>& states() const { return states_; }

  private:
    std::function<State(std::size_t)> make_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<State>> states_;
    std::vector<std::size_t> idle_;
};

// Hashes a few terms ahead of their visit, so that memory has time to answer.
template <class Target>
class Pipeline {
  public:
    explicit Pipeline(Target& target) : target_(target) {}

    void operator()(const char* begin, std::uint32_t length) {
        std::uint32_t hash = target_.hash(begin, length);
        target_.prefetch_slot(hash);
        waiting_[count_++] = {begin, length, hash};
        if (count_ == kAhead) drain();
    }

    void drain() {
        for (std::size_t i = 0; i < count_; ++i) target_.prefetch_term(waiting_[i].hash);
        for (std::size_t i = 0; i < count_; ++i)
            target_.visit(waiting_[i].begin, waiting_[i].length, waiting_[i].hash);
        count_ = 0;
    }

  private:
    static constexpr std::size_t kAhead = 32;
    struct Waiting {
        const char* begin;
        std::uint32_t length, hash;
    };
    Target& target_;
    Waiting waiting_[kAhead];
    std::size_t count_ = 0;
};

// The terms one worker has met. A row's cells are found again through the term's record, so that
// counting needs no sorting and no second table. A record and its term lie side by side: finding a
// term takes two lines of memory, both asked for ahead of time.
class TermTable {
  public:
    struct Record {
        std::uint64_t count;
        std::uint32_t text_count;
        std::uint32_t number, table;
        std::uint32_t length;
        std::uint32_t row, position;  // the last text it was seen in, and its cell there

        const char* begin() const { return reinterpret_cast<const char*>(this + 1); }
        std::span<const std::uint8_t> term() const {
            return {reinterpret_cast<const std::uint8_t*>(begin()), length};
        }
    };

    TermTable(std::size_t table, bool keep_rows)
        : table_(static_cast<std::uint32_t>(table)), keep_rows_(keep_rows), slots_(1 << 12) {}

    static std::uint32_t hash(const char* p, std::size_t n) { return term_hash(p, n); }
    void prefetch_slot(std::uint32_t hash) const {
        __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
    }
    void prefetch_term(std::uint32_t hash) const {
        std::uint64_t slot = slots_[hash & (slots_.size() - 1)];
        if (slot != 0) __builtin_prefetch(&at(slot));
    }

    void start_row(std::uint32_t row) {
        row_ = row;
        row_begin_ = cells.size();
    }
    std::uint32_t row_length() const {
        return static_cast<std::uint32_t>(cells.size() - row_begin_);
    }

    void visit(const char* begin, std::uint32_t length, std::uint32_t hash) {
        Record& record = find_or_add(begin, length, hash);
        ++record.count;
        if (record.row == row_) {
            if (keep_rows_) ++cells[record.position];
            return;
        }
        record.row = row_;
        ++record.text_count;
        if (!keep_rows_) return;
        record.position = static_cast<std::uint32_t>(cells.size());
        cells.push_back(cell(record.number, 1));
    }

    const std::vector<const Record*>& records() const { return records_; }

    std::vector<std::uint64_t> cells;

  private:
    // Records lie in chunks; their place is counted in eight bytes, so that 32 bits reach 32 GiB.
    static constexpr std::size_t kUnit = 8, kChunkBits = 17, kChunkUnits = 1 << kChunkBits;
    static constexpr std::uint32_t kNoRow = std::numeric_limits<std::uint32_t>::max();

    Record& at(std::uint64_t slot) const {
        auto place = static_cast<std::uint32_t>(slot);
        return *reinterpret_cast<Record*>(chunks_[place >> kChunkBits] +
                                          (place & (kChunkUnits - 1)) * kUnit);
    }

    Record& find_or_add(const char* begin, std::uint32_t length, std::uint32_t hash) {
        std::size_t mask = slots_.size() - 1, i = hash & mask;
        for (; slots_[i] != 0; i = (i + 1) & mask) {
            if (static_cast<std::uint32_t>(slots_[i] >> 32) != hash) continue;
            Record& record = at(slots_[i]);
            if (record.length == length && same_term(record.begin(), begin, length)) return record;
        }
        std::uint64_t slot = slots_[i] = std::uint64_t{hash} << 32 | store(begin, length);
        if (records_.size() * 2 > slots_.size()) grow();
        return at(slot);
    }

    std::uint32_t store(const char* begin, std::uint32_t length) {
        std::size_t units = (sizeof(Record) + length + kUnit - 1) / kUnit;
        // room for reading a little past the end of the last term
        if (next_ + units + kReadable / kUnit > chunks_.size() * kChunkUnits) {
            next_ = std::max<std::size_t>(chunks_.size() * kChunkUnits, 1);  // 0 is an empty slot
            // a long term takes several chunks in one
            std::size_t chunks = (units + kReadable / kUnit) / kChunkUnits + 1;
            memory_.push_back(std::make_unique_for_overwrite<char[]>(chunks * kChunkUnits * kUnit));
            for (std::size_t i = 0; i < chunks; ++i)
                chunks_.push_back(memory_.back().get() + i * kChunkUnits * kUnit);
        }
        if (next_ + units > std::numeric_limits<std::uint32_t>::max())
            throw std::invalid_argument("more than 32 GiB of terms; give the texts in batches");
        auto place = static_cast<std::uint32_t>(next_);
        next_ += units;
        auto number = static_cast<std::uint32_t>(records_.size());
        Record& record = *new (&at(place)) Record{0, 0, number, table_, length, kNoRow, 0};
        std::memcpy(reinterpret_cast<char*>(&record + 1), begin, length);
        records_.push_back(&record);
        return place;
    }

    void grow() {
        std::vector<std::uint64_t> larger(slots_.size() * 2);
        std::size_t mask = larger.size() - 1;
        for (std::uint64_t slot : slots_) {
            if (slot == 0) continue;
            std::size_t i = (slot >> 32) & mask;
            while (larger[i] != 0) i = (i + 1) & mask;
            larger[i] = slot;
        }
        slots_ = std::move(larger);
    }

    std::uint32_t table_;
    bool keep_rows_;
    std::vector<std::uint64_t> slots_;  // hash << 32 | place
    std::vector<std::unique_ptr<char[]>> memory_;
    std::vector<char*> chunks_;
    std::size_t next_ = 0;
    std::vector<const Record*> records_;
    std::uint32_t row_ = kNoRow;
    std::size_t row_begin_ = 0;
};

struct Counted {
    Terms terms;
    std::vector<Piece> pieces;                       // if rows are kept, in the order of the texts
    std::vector<std::vector<std::int32_t>> numbers;  // of each worker's terms among the terms
};

// Sorts and joins what the workers have found. Terms are dealt out by their first two bytes, so
// that the parts can be sorted in parallel and each part's duplicates are side by side.
inline void merge_tables(const std::vector<const TermTable*>& tables, Counted& result) {
    using Record = TermTable::Record;
    struct Item {
        std::uint64_t prefix;  // the first eight bytes, most significant first
        const Record* record;
    };
    auto prefix_of = [](const Record* r) {
        return __builtin_bswap64(load8(r->begin()) & first_bytes(r->length));
    };
    std::vector<std::size_t> begins((1 << 16) + 1);
    for (const auto* table : tables)
        for (const auto* record : table->records()) ++begins[(prefix_of(record) >> 48) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    Buffer<Item> items(begins.back());
    auto next = begins;
    for (const auto* table : tables)
        for (const auto* record : table->records()) {
            std::uint64_t prefix = prefix_of(record);
            items[next[prefix >> 48]++] = {prefix, record};
        }
    std::vector<std::span<Item>> parts;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i)
        if (begins[i] < begins[i + 1])
            parts.emplace_back(items.data.get() + begins[i], items.data.get() + begins[i + 1]);

    auto order = [](const Item& a, const Item& b) {
        return a.prefix != b.prefix ? (a.prefix < b.prefix ? -1 : 1)
                                    : compare(a.record->term(), b.record->term());
    };
    auto is_new = [&](std::span<Item> part, std::size_t i) {
        return i == 0 || order(part[i - 1], part[i]) != 0;
    };
    std::vector<std::size_t> terms_before(parts.size() + 1), bytes_before(parts.size() + 1);
    parallel_for(parts.size(), 4, [&](std::size_t first, std::size_t last) {
        for (std::size_t p = first; p < last; ++p) {
            auto part = parts[p];
            std::sort(part.begin(), part.end(),
                      [&](const Item& a, const Item& b) { return order(a, b) < 0; });
            for (std::size_t i = 0; i < part.size(); ++i) {
                if (!is_new(part, i)) continue;
                ++terms_before[p + 1];
                bytes_before[p + 1] += part[i].record->length;
            }
        }
    });
    std::partial_sum(terms_before.begin(), terms_before.end(), terms_before.begin());
    std::partial_sum(bytes_before.begin(), bytes_before.end(), bytes_before.begin());
    std::size_t count = terms_before.back();
    if (count > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
        throw std::invalid_argument("more than two billion different terms");

    Terms& terms = result.terms;
    terms.offsets.resize(count + 1);
    terms.data.resize(bytes_before.back());
    terms.text_counts.resize(count);
    terms.counts.resize(count);
    for (const auto* table : tables) result.numbers.emplace_back(table->records().size());
    parallel_for(parts.size(), 4, [&](std::size_t first, std::size_t last) {
        for (std::size_t p = first; p < last; ++p) {
            auto part = parts[p];
            std::size_t term = terms_before[p] - 1, byte = bytes_before[p];
            for (std::size_t i = 0; i < part.size(); ++i) {
                const Record& record = *part[i].record;
                if (is_new(part, i)) {
                    std::memcpy(terms.data.data() + byte, record.begin(), record.length);
                    terms.offsets[++term + 1] = static_cast<std::int64_t>(byte += record.length);
                }
                terms.text_counts[term] += record.text_count;
                terms.counts[term] += static_cast<std::int64_t>(record.count);
                result.numbers[record.table][record.number] = static_cast<std::int32_t>(term);
            }
        }
    });
}

inline Counted count_terms(const Strings& texts, const Analysis& how, const WordTables& rules,
                           bool keep_rows) {
    if (texts.size() >= std::numeric_limits<std::uint32_t>::max())
        throw std::invalid_argument("more than four billion texts; give them in batches");
    struct Worker {
        Analyzer analyzer;
        TermTable table;
    };
    Workers<Worker> workers(
        [&](std::size_t number) { return Worker{{how, rules}, {number, keep_rows}}; });
    Counted result;
    result.pieces.resize(piece_count(texts));
    each_piece(texts, [&](std::size_t piece, std::size_t begin, std::size_t end) {
        workers.lend([&](Worker& worker, std::size_t number) {
            std::vector<std::uint32_t> lengths;
            Pipeline pipeline(worker.table);
            worker.table.cells.clear();
            for (std::size_t row = begin; row < end; ++row) {
                worker.table.start_row(static_cast<std::uint32_t>(row));
                worker.analyzer(texts[row], pipeline);
                pipeline.drain();
                lengths.push_back(worker.table.row_length());
            }
            if (keep_rows)
                result.pieces[piece] = {{worker.table.cells.begin(), worker.table.cells.end()},
                                        std::move(lengths),
                                        number};
        });
    });
    std::vector<const TermTable*> tables;
    for (const auto& worker : workers.states()) tables.push_back(&worker->table);
    merge_tables(tables, result);
    return result;
}

// Terms in at least `fewest` and at most `most` texts, and of those the `limit` that occur most
// often, by texts or in all (0: no limit; ties to the earlier term).
struct Selection {
    double fewest, most;
    std::size_t limit;
    bool by_texts;
};

// The terms selected, and the new number of each term (-1: left out).
inline std::pair<Terms, std::vector<std::int32_t>> select_terms(TermsView terms, Selection wanted) {
    terms.check();
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < terms.size(); ++i) {
        auto texts = static_cast<double>(terms.text_counts[i]);
        if (texts >= wanted.fewest && texts <= wanted.most) chosen.push_back(i);
    }
    if (wanted.limit != 0 && chosen.size() > wanted.limit) {
        auto counts = wanted.by_texts ? terms.text_counts : terms.counts;
        auto cut = chosen.begin() + static_cast<std::ptrdiff_t>(wanted.limit);
        std::nth_element(chosen.begin(), cut, chosen.end(), [&](std::size_t a, std::size_t b) {
            return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
        });
        chosen.erase(cut, chosen.end());
        std::sort(chosen.begin(), chosen.end());
    }
    std::pair<Terms, std::vector<std::int32_t>> result;
    result.second.assign(terms.size(), -1);
    for (std::size_t i : chosen) {
        result.second[i] = static_cast<std::int32_t>(result.first.counts.size());
        result.first.add(terms.strings[i], terms.text_counts[i], terms.counts[i]);
    }
    return result;
}

// The terms of both, for streams: what has been learned so far joins what comes next.
inline Terms merge_terms(TermsView a, TermsView b) {
    a.check();
    b.check();
    Terms result;
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        int order = i == a.size() ? 1 : j == b.size() ? -1 : compare(a.strings[i], b.strings[j]);
        std::int64_t texts = 0, count = 0;
        auto term = order <= 0 ? a.strings[i] : b.strings[j];
        if (order <= 0) texts += a.text_counts[i], count += a.counts[i++];
        if (order >= 0) texts += b.text_counts[j], count += b.counts[j++];
        result.add(term, texts, count);
    }
    return result;
}

}  // namespace megalabel::text
