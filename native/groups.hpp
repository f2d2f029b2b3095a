// Groups of labels that share their rows, those rows as newton.hpp takes them, and labels' weights.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"
#include "rows.hpp"

namespace megalabel {

// Groups of labels: the rows of each (none given: one group with all rows), its labels, and the
// rows where each label is positive, which are among those of its group.
struct LabelGroups {
    std::span<const std::int64_t> row_starts;
    std::span<const std::int32_t> rows;
    std::span<const std::int64_t> label_starts;
    std::span<const std::int64_t> positive_starts;
    std::span<const std::int32_t> positives;
    std::span<const float> positive_costs, negative_costs;
    std::span<const float> factors;  // of the cost of each of the positives; none: all 1

    std::size_t size() const { return label_starts.size() - 1; }
    std::size_t labels() const { return positive_starts.size() - 1; }

    std::span<const std::int32_t> rows_of(std::size_t group) const {
        return rows.subspan(row_starts[group], row_starts[group + 1] - row_starts[group]);
    }

    void check(std::size_t n) const {
        const auto fits = [](std::span<const std::int64_t> starts, std::size_t total) {
            return !starts.empty() && starts.front() == 0 &&
                   starts.back() == static_cast<std::int64_t>(total) &&
                   std::is_sorted(starts.begin(), starts.end());
        };
        const bool all_rows = row_starts.empty() && size() == 1;
        if (!fits(positive_starts, positives.size()) || !fits(label_starts, labels()) ||
            positive_costs.size() != labels() || negative_costs.size() != labels() ||
            !(factors.empty() || factors.size() == positives.size()) ||
            !(all_rows || (row_starts.size() == size() + 1 && fits(row_starts, rows.size()))))
            throw std::invalid_argument("the arrays of the label groups differ in their sizes");
        for (auto list : {rows, positives})
            for (auto row : list)
                if (row < 0 || static_cast<std::size_t>(row) >= n)
                    throw std::invalid_argument("a label group holds a row outside the matrix");
    }
};

// Sparse weights, a row each label; the bias is the column after the last feature.
struct WeightRows {
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> columns;
    std::vector<float> values;
};

// What all labels of a group share: rows without gaps, and their mean.
struct Group {
    newton::Rows rows;
    std::vector<std::int64_t> starts;  // of the rows, where they are not used in place
    std::vector<float> values;         // the same
    std::vector<std::int32_t> places;  // of the original rows, sorted, where they are not all
    std::vector<double> mean;          // bias last
    double mean_square = 0;
};

// Takes the first columns out of the rows and stores them as a block, zeros and all.
inline void store_dense(Group& group, std::size_t dense) {
    auto& r = group.rows;
    const std::size_t n = r.size();
    r.dense = dense;
    r.block.assign(n * dense, 0.f);
    std::vector<std::int64_t> starts{0};
    std::vector<float> values;
    starts.reserve(n + 1);
    const auto split = [&](auto& columns) {
        std::int64_t left = 0;
        for (std::size_t i = 0; i < n; ++i) {
            for (auto p = r.starts[i]; p < r.starts[i + 1]; ++p) {
                const auto column = static_cast<std::size_t>(columns[p]);
                if (column < dense) {
                    r.block[i * dense + column] = r.values[p];
                } else {
                    columns[left++] = columns[p];
                    values.push_back(r.values[p]);
                }
            }
            starts.push_back(left);
        }
        columns.resize(static_cast<std::size_t>(left));
    };
    if (r.columns.empty())
        split(r.narrow);
    else
        split(r.columns);
    group.starts = std::move(starts);
    group.values = std::move(values);
    r.starts = group.starts;
    r.values = group.values;
}

// The rows of a group with columns renumbered by falling frequency.
inline Group gather_group(const SparseRows& x, std::span<const std::int32_t> wanted, bool all,
                          float bias) {
    Group group;
    if (!all) group.places.assign(wanted.begin(), wanted.end());
    std::sort(group.places.begin(), group.places.end());
    group.places.erase(std::unique(group.places.begin(), group.places.end()), group.places.end());
    all |= group.places.size() == x.size();
    if (all) group.places = {};
    const std::size_t n = all ? x.size() : group.places.size();
    const auto row = [&](std::size_t i) { return x.row(all ? i : group.places[i]); };

    auto& r = group.rows;
    std::int64_t entries = 0;
    for (std::size_t i = 0; i < n; ++i) {
        auto [begin, end] = row(i);
        if (all && static_cast<std::int64_t>(begin) != entries)
            throw std::invalid_argument("rows must follow each other without gaps");
        entries += static_cast<std::int64_t>(end - begin);
    }
    // On a machine with one memory node all rows are used where they are.
    if (all && memory_nodes() == 1) {
        r.starts = x.starts;
        r.values = x.values.first(static_cast<std::size_t>(entries));
    } else {
        group.starts.reserve(n + 1);
        group.starts.push_back(0);
        group.values.reserve(static_cast<std::size_t>(entries));
        for (std::size_t i = 0; i < n; ++i) {
            auto [begin, end] = row(i);
            group.values.insert(group.values.end(), x.values.begin() + begin,
                                x.values.begin() + end);
            group.starts.push_back(static_cast<std::int64_t>(group.values.size()));
        }
        r.starts = group.starts;
        r.values = group.values;
    }
    const auto for_features = [&](auto&& visit) {  // of all values, in order
        for (std::size_t i = 0; i < n; ++i) {
            auto [begin, end] = row(i);
            for (std::size_t p = begin; p < end; ++p) visit(x.column(p));
        }
    };

    // A group of few rows has few features: sorting them beats an array of all features.
    std::vector<std::pair<std::int32_t, std::int32_t>> used;  // -frequency, feature
    const bool few = r.values.size() < x.width / 8;
    std::vector<std::int32_t> number(few ? 0 : x.width);
    if (few) {
        std::vector<std::int32_t> sorted;
        for_features([&](std::size_t f) { sorted.push_back(static_cast<std::int32_t>(f)); });
        std::sort(sorted.begin(), sorted.end());
        for (std::size_t p = 0; p < sorted.size();) {
            std::size_t q = p;
            while (q < sorted.size() && sorted[q] == sorted[p]) ++q;
            used.push_back({-static_cast<std::int32_t>(q - p), sorted[p]});
            p = q;
        }
    } else {
        for_features([&](std::size_t f) { ++number[f]; });
        for (std::size_t f = 0; f < x.width; ++f)
            if (number[f]) used.push_back({-number[f], static_cast<std::int32_t>(f)});
    }
    std::sort(used.begin(), used.end());
    for (auto& [frequency, feature] : used) r.features.push_back(feature);
    std::vector<std::pair<std::size_t, std::int32_t>> where;  // feature, number; sorted
    for (std::size_t j = 0; j < used.size(); ++j) {
        if (few)
            where.push_back({used[j].second, static_cast<std::int32_t>(j)});
        else
            number[used[j].second] = static_cast<std::int32_t>(j);
    }
    std::sort(where.begin(), where.end());
    const auto fill = [&](auto& columns) {
        using Column = std::decay_t<decltype(columns)>::value_type;
        columns.reserve(r.values.size());
        for_features([&](std::size_t f) {
            columns.push_back(static_cast<Column>(
                few ? std::lower_bound(where.begin(), where.end(), std::pair{f, -1})->second
                    : number[f]));
        });
    };
    if (r.width() <= 65536)
        fill(r.narrow);
    else
        fill(r.columns);

    // Columns that all but a few rows have are stored without numbers, if there are enough of them
    // to fill a register.
    const auto most = static_cast<std::int32_t>(n - n / 10);
    std::size_t dense = 0;
    while (dense < used.size() && -used[dense].first >= most) ++dense;
    if (dense >= newton::lanes) store_dense(group, dense);
    if (!r.columns.empty()) r.narrow_columns();

    group.mean.assign(r.width() + 1, 0);
    r.with_columns([&](auto columns) {
        for (std::size_t p = 0; p < r.values.size(); ++p) group.mean[columns[p]] += r.values[p];
    });
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < r.dense; ++j) group.mean[j] += r.dense_row(i)[j];
    for (auto& m : group.mean) m /= std::max<double>(1, n);
    group.mean.back() = bias;
    for (auto m : group.mean) group.mean_square += m * m;
    return group;
}

}  // namespace megalabel
