// Training of all classifiers of a one-versus-all model or of a tree's levels: groups of labels
// that share their rows, each cut into blocks that newton.hpp solves.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory.hpp"
#include "newton.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

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

// What all blocks of a group share: rows without gaps, and their mean.
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

// Mean-separating start (Schultheis and Babbar 2022): w = u P + v A, with P the mean of the
// positive rows and A that of all, such that <w, P> = 1 and <w, N> = -2 for the negative mean N.
inline void start_between_means(const Group& group, const newton::Problem& problem, float bias,
                                std::vector<double>& mean, std::span<float> weights) {
    const auto& x = group.rows;
    mean.assign(x.width() + 1, 0);
    const double count = static_cast<double>(problem.positives.size());
    x.with_columns([&](auto columns) {
        for (auto i : problem.positives) {
            for (std::size_t j = 0; j < x.dense; ++j) mean[j] += x.dense_row(i)[j];
            for (auto p = x.starts[i]; p < x.starts[i + 1]; ++p) mean[columns[p]] += x.values[p];
        }
    });
    for (auto& m : mean) m /= count;
    mean.back() = bias;
    double square = 0, cross = 0;
    for (std::size_t q = 0; q < mean.size(); ++q) {
        square += mean[q] * mean[q];
        cross += mean[q] * group.mean[q];
    }
    constexpr double positive = 1, negative = -2;
    const double share = count / std::max<double>(1, x.size());
    const double average = share * (positive - negative) + negative;
    const double determinant = cross * cross - square * group.mean_square;
    double u = 0, v = -1;  // all negative, where the means are too alike to tell apart
    if (std::abs(determinant) > 1e-9 * square * group.mean_square) {
        u = (average * cross - positive * group.mean_square) / determinant;
        v = std::abs(cross) > 1e-12 ? (positive - u * square) / cross : average / group.mean_square;
    }
    for (std::size_t q = 0; q < mean.size(); ++q)
        weights[q] = static_cast<float>(u * mean[q] + v * group.mean[q]);
}

// What weights that are pruned add to the margin of another row like the label's own: their
// average, less what each of them owes to itself.
inline double pruned_margin(const newton::Rows& x, const newton::Problem& problem, float prune,
                            std::span<const float> weights) {
    double sum = 0;
    const auto add = [&](std::size_t column, float value) {
        if (std::abs(weights[column]) <= prune) sum += weights[column] * value;
    };
    x.with_columns([&](auto columns) {
        for (auto i : problem.positives) {
            for (std::size_t j = 0; j < x.dense; ++j) add(j, x.dense_row(i)[j]);
            for (auto p = x.starts[i]; p < x.starts[i + 1]; ++p) add(columns[p], x.values[p]);
        }
    });
    const auto count = static_cast<double>(problem.positives.size());
    return sum / count * (1 - 1 / count);
}

// The margin of a label without positives, which has no weight but the bias: below any that is met.
inline constexpr float never = -8;

// The work on one group of labels, by one thread or by several that take the next label each.
struct GroupWork {
    std::size_t first, last;          // of the labels in the order they are trained in
    std::size_t cost;                 // of a pass over the rows: their values and biases
    std::size_t blocks;               // of as many labels as there are lanes
    std::size_t workers = 0;          // how many threads work on it
    std::atomic<std::size_t> next{};  // label
    std::atomic<std::size_t> left{};  // workers
    // A group is gathered once for each memory node that works on it, by a thread of that node, so
    // that its rows lie there.
    struct Copy {
        std::once_flag made;
        std::unique_ptr<Group> group;
    };
    std::unique_ptr<Copy[]> copies = std::make_unique<Copy[]>(memory_nodes());
};

// Trains every label of every group. Where there is a bias, a label without positives needs no
// training; without one it is trained like the others, as a margin of 0 would put it before labels
// that are in use. Labels of like frequency are solved side by side, frequent ones first.
inline WeightRows train_groups(const SparseRows& x, const LabelGroups& groups,
                               const newton::Options& options) {
    x.check();
    groups.check(x.size());
    constexpr std::size_t lanes = newton::lanes;
    const bool all = groups.row_starts.empty();
    const auto count = [&](std::size_t label) {
        return groups.positive_starts[label + 1] - groups.positive_starts[label];
    };
    std::vector<GroupWork> works(groups.size());
    std::vector<std::size_t> order;  // the labels to train
    std::size_t total = 0;
    order.reserve(groups.labels());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        auto& work = works[g];
        work.first = order.size();
        for (auto label = groups.label_starts[g]; label < groups.label_starts[g + 1]; ++label)
            if (count(label) > 0 || options.bias <= 0) order.push_back(label);
        work.last = order.size();
        work.next = work.first;
        std::stable_sort(order.begin() + work.first, order.end(),
                         [&](auto a, auto b) { return count(a) > count(b); });
        const auto add = [&](std::size_t row) {
            const auto [begin, end] = x.row(row);
            work.cost += end - begin + 1;
        };
        if (all)
            for (std::size_t row = 0; row < x.size(); ++row) add(row);
        else
            for (auto row : groups.rows_of(g)) add(static_cast<std::size_t>(row));
        work.blocks = (work.last - work.first + lanes - 1) / lanes;
        total += work.cost * work.blocks;
    }
    // More than one thread works on a group that is much of all work. The largest are first, so
    // that threads end together.
    const auto threads = static_cast<std::size_t>(ThreadPool::threads().load());
    std::vector<std::size_t> shifts;  // the group of each worker
    for (std::size_t g = 0; g < groups.size(); ++g) {
        auto& work = works[g];
        if (work.first == work.last) continue;
        const std::size_t share =
            2 * threads * work.cost * work.blocks / std::max<std::size_t>(1, total);
        work.workers = std::clamp<std::size_t>(share, 1, std::min(threads, work.last - work.first));
        work.left = work.workers;
        shifts.insert(shifts.end(), work.workers, g);
    }
    const auto size = [&](std::size_t g) {
        return works[g].cost * works[g].blocks / works[g].workers;
    };
    std::stable_sort(shifts.begin(), shifts.end(),
                     [&](auto a, auto b) { return size(a) > size(b); });

    using Weights = std::vector<std::pair<std::int32_t, float>>;
    struct Scratch {
        newton::Solver solver;
        std::vector<double> mean;
        Weights weights;
    };
    std::vector<Weights> trained(groups.labels());  // features and their weights, bias last
    auto pool = std::make_unique<ScratchPool<Scratch>>();
    parallel_for(shifts.size(), 1, [&](std::size_t begin, std::size_t end) {
        pool->with([&](Scratch& s) {
            for (std::size_t shift = begin; shift < end; ++shift) {
                const std::size_t g = shifts[shift];
                auto& work = works[g];
                auto& copy = work.copies[memory_node()];
                std::call_once(copy.made, [&] {
                    std::span<const std::int32_t> wanted;
                    if (!all) wanted = groups.rows_of(g);
                    copy.group =
                        std::make_unique<Group>(gather_group(x, wanted, all, options.bias));
                });
                const Group& group = *copy.group;
                const auto& local = group.rows;
                const bool whole = local.size() == x.size();
                const auto next = [&](newton::Problem& problem, std::span<float> start) {
                    const std::size_t place = work.next++;
                    if (place >= work.last) return false;
                    const std::size_t label = problem.label = order[place];
                    problem.positives.clear();
                    problem.factors.clear();
                    for (auto p = groups.positive_starts[label];
                         p < groups.positive_starts[label + 1]; ++p) {
                        const auto row = groups.positives[p];
                        if (!groups.factors.empty()) problem.factors.push_back(groups.factors[p]);
                        if (whole) {
                            problem.positives.push_back(row);
                            continue;
                        }
                        auto at = std::lower_bound(group.places.begin(), group.places.end(), row);
                        if (at == group.places.end() || *at != row)
                            throw std::invalid_argument("a positive row is not in its group");
                        problem.positives.push_back(
                            static_cast<std::int32_t>(at - group.places.begin()));
                    }
                    problem.positive_cost = groups.positive_costs[label];
                    problem.negative_cost = groups.negative_costs[label];
                    if (problem.positives.empty())
                        std::fill(start.begin(), start.end(), 0.f);
                    else
                        start_between_means(group, problem, options.bias, s.mean, start);
                    return true;
                };
                const auto done = [&](const newton::Problem& problem, std::span<const float> w) {
                    s.weights.clear();
                    for (std::size_t q = 0; q < local.width(); ++q)
                        if (std::abs(w[q]) > options.prune)
                            s.weights.push_back({local.features[q], w[q]});
                    std::sort(s.weights.begin(), s.weights.end());
                    float bias = w.back();
                    if (options.bias > 0 && options.prune > 0)  // what pruning takes, it gets
                        bias += static_cast<float>(pruned_margin(local, problem, options.prune, w) /
                                                   options.bias);
                    s.weights.push_back({static_cast<std::int32_t>(x.width), bias});
                    trained[problem.label] = s.weights;
                };
                const std::size_t labels = work.last - work.first;
                const std::size_t at_once =
                    std::min(lanes, (labels + work.workers - 1) / work.workers);
                s.solver.solve(local, group.mean, options, at_once, next, done);
                if (--work.left == 0) {
                    const bool large = local.values.size() > std::size_t{1} << 18;
                    work.copies.reset();
                    // The next group may be made by another thread, which could not use it again,
                    // and is smaller.
                    if (large) {
                        s = {};
                        give_back_memory();
                    }
                }
            }
        });
    });
    pool.reset();
    give_back_memory();

    WeightRows out;
    out.starts.reserve(groups.labels() + 1);
    std::size_t entries = 0;
    for (auto& weights : trained) entries += std::max<std::size_t>(1, weights.size());
    out.columns.reserve(entries);
    out.values.reserve(entries);
    for (auto& weights : trained) {
        if (weights.empty()) weights = {{static_cast<std::int32_t>(x.width), never / options.bias}};
        for (auto [column, value] : weights) {
            out.columns.push_back(column);
            out.values.push_back(value);
        }
        out.starts.push_back(static_cast<std::int64_t>(out.columns.size()));
        weights = Weights();
    }
    give_back_memory();
    return out;
}

}  // namespace megalabel
