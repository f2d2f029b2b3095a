// The thread pool and kernels that share state between threads, to be run under the thread
// sanitizer (`make test-sanitize`). Ends with 1 if a result is wrong; a race ends it too.
#include "parallel.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "inverted_index.hpp"
#include "training.hpp"
#include "vectorizer.hpp"

namespace {

using megalabel::parallel_for;
using megalabel::ThreadPool;

void expect(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

// Plain numbers, each written by one piece and read after the loop.
void sum_squares(std::size_t n, std::size_t grain) {
    std::vector<std::size_t> squares(n);
    parallel_for(n, grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) squares[i] = i * i;
    });
    std::size_t sum = 0;
    for (std::size_t square : squares) sum += square;
    expect(n == 0 || sum == (n - 1) * n * (2 * n - 1) / 6, "a loop over all numbers");
}

void loop_in_loop() {
    std::vector<std::size_t> sums(50);
    parallel_for(sums.size(), 1, [&](std::size_t i, std::size_t) {
        parallel_for(100, 7, [&](std::size_t begin, std::size_t end) { sums[i] += end - begin; });
    });
    for (std::size_t sum : sums) expect(sum == 100, "a loop inside a loop");
}

void fail_and_cancel(std::size_t at) {
    std::atomic<std::size_t> run{0};
    bool failed = false;
    try {
        parallel_for(200, 1, [&](std::size_t i, std::size_t) {
            if (i == at) throw std::runtime_error("piece " + std::to_string(i));
            ++run;
            for (int turn = 0; turn < 100; ++turn) megalabel::end_if_cancelled();
        });
    } catch (const std::runtime_error&) {
        failed = true;
    }
    expect(failed && run < 200, "an error ends the loop");
}

// A sparse matrix with some numbers in each row.
struct Matrix {
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> columns;
    std::vector<float> values;
    std::size_t width;

    Matrix(std::size_t rows, std::size_t width_, unsigned seed) : width(width_) {
        std::mt19937 random(seed);
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t c = 0; c < width; ++c) {
                if (random() % 8 != 0) continue;
                columns.push_back(static_cast<std::int32_t>(c));
                values.push_back(static_cast<float>(1 + random() % 5));
            }
            starts.push_back(static_cast<std::int64_t>(columns.size()));
        }
    }
    megalabel::SparseRows rows() const { return {starts, columns, values, width}; }
};

std::vector<float> trained(const Matrix& x) {
    constexpr std::int64_t groups = 3, labels = 40;  // in each
    std::vector<std::int64_t> row_starts{0}, label_starts{0}, positive_starts{0};
    std::vector<std::int32_t> rows, positives;
    const auto n = static_cast<std::int32_t>(x.rows().size());
    for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int32_t row = 0; row < n; ++row) rows.push_back(row);
        row_starts.push_back(static_cast<std::int64_t>(rows.size()));
        label_starts.push_back((g + 1) * labels);
        for (std::int64_t label = 0; label < labels; ++label) {
            for (std::int32_t row = static_cast<std::int32_t>(label % 7); row < n;
                 row += static_cast<std::int32_t>(label) + 2)
                positives.push_back(row);
            positive_starts.push_back(static_cast<std::int64_t>(positives.size()));
        }
    }
    const std::vector<float> costs(groups * labels, 1);
    return megalabel::train_groups(
               x.rows(),
               {row_starts, rows, label_starts, positive_starts, positives, costs, costs, {}}, {})
        .values;
}

std::vector<float> neighbours(const Matrix& x) {
    const auto postings = megalabel::build_postings(x.rows());
    const megalabel::SparseRows terms{postings.starts, postings.documents, postings.weights,
                                      x.rows().size()};
    return megalabel::Search(terms, postings.largest, postings.common, x.rows(), postings.norm,
                             x.rows(), 5, {}, true)
        .run()
        .scores;
}

std::vector<std::int64_t> counted() {
    std::string texts;
    std::vector<std::int64_t> offsets{0};
    std::mt19937 random(3);
    for (int i = 0; i < 20000; ++i) {
        for (int word = 0; word < 8; ++word) texts += "word" + std::to_string(random() % 900) + " ";
        offsets.push_back(static_cast<std::int64_t>(texts.size()));
    }
    const std::vector<std::uint8_t> bytes(texts.begin(), texts.end());
    const megalabel::text::Analysis how{
        megalabel::text::Unit::kWord, megalabel::unicode::Case::kFold, false, 1, 1, 2};
    const megalabel::text::Lookup none{{}, {}};
    const megalabel::text::WordTables tables{none, {none, {}, {}, none, {}, {}}};
    auto learned = megalabel::text::learn_rows({offsets, bytes}, how, tables, {1, 1e9, 0, false});
    expect(learned.terms.counts.size() == 900, "the terms of texts");
    return std::move(learned.terms.counts);
}

// The same answer from one thread as from several.
template <class Compute>
void same_for_any_threads(const char* what, const Compute& compute) {
    ThreadPool::threads() = 1;
    const auto alone = compute();
    ThreadPool::threads() = 4;
    expect(compute() == alone, what);
}

}  // namespace

int main() {
    ThreadPool::threads() = 4;
    for (std::size_t n : {0, 1, 2, 63, 1000}) sum_squares(n, 3);
    loop_in_loop();
    for (std::size_t at : {0, 1, 100, 199}) fail_and_cancel(at);
    // Several threads start loops at once, while the number of threads changes.
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([caller] {
            for (int turn = 0; turn < 50; ++turn) {
                ThreadPool::threads() = 1 + (caller + turn) % 5;
                sum_squares(200 + static_cast<std::size_t>(turn), 7);
                if (turn % 10 == 0) fail_and_cancel(static_cast<std::size_t>(turn));
                loop_in_loop();
            }
        });
    for (auto& caller : callers) caller.join();
    const Matrix x(600, 80, 1);
    same_for_any_threads("weights of labels", [&] { return trained(x); });
    same_for_any_threads("nearest neighbours", [&] { return neighbours(x); });
    same_for_any_threads("terms", [] { return counted(); });
    std::puts("no race, and every result as expected");
}
