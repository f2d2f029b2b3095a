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
                                std::size_t lane, std::vector<double>& mean,
                                newton::Buffer& weights) {
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
        weights[q * newton::lanes + lane] = static_cast<float>(u * mean[q] + v * group.mean[q]);
}

// What weights that are pruned add to the margin of another row like the label's own: their
// average, less what each of them owes to itself.
inline double pruned_margin(const newton::Rows& x, const newton::Problem& problem, float prune,
                            std::size_t lane, const newton::Buffer& weights) {
    double sum = 0;
    const auto add = [&](std::size_t column, float value) {
        const float w = weights[column * newton::lanes + lane];
        if (std::abs(w) <= prune) sum += w * value;
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

// Trains every label of every group. Where there is a bias, a label without positives needs no
// training; without one it is trained like the others, as a margin of 0 would put it before labels
// that are in use. Labels of like frequency share a block, as they take about as many steps.
inline WeightRows train_groups(const SparseRows& x, const LabelGroups& groups,
                               const newton::Options& options) {
    x.check();
    groups.check(x.size());
    constexpr std::size_t lanes = newton::lanes;
    struct Unit {
        std::size_t group, first, last;  // labels by their places in `order`
        std::size_t cost;
        WeightRows trained{};
    };
    // A group is gathered once for each memory node that works on it, by a thread of that node, so
    // that its rows lie there.
    struct Copy {
        std::once_flag made;
        std::unique_ptr<Group> group;
    };
    struct Shared {
        std::unique_ptr<Copy[]> copies = std::make_unique<Copy[]>(memory_nodes());
        std::atomic<std::size_t> left{0};
        std::size_t block = newton::lanes;  // how many labels are solved at once
    };
    const bool all = groups.row_starts.empty();
    const auto count = [&](std::size_t label) {
        return groups.positive_starts[label + 1] - groups.positive_starts[label];
    };
    std::vector<Shared> shared(groups.size());
    std::vector<std::size_t> order;      // the labels to train
    std::vector<std::size_t> starts{0};  // of each group in `order`
    std::vector<std::size_t> costs;      // of a block of each group: its values and biases
    std::size_t total = 0;
    order.reserve(groups.labels());
    for (std::size_t g = 0; g < groups.size(); ++g) {
        for (auto label = groups.label_starts[g]; label < groups.label_starts[g + 1]; ++label)
            if (count(label) > 0 || options.bias <= 0) order.push_back(label);
        std::stable_sort(order.begin() + starts[g], order.end(),
                         [&](auto a, auto b) { return count(a) > count(b); });
        std::size_t cost = 0;
        const auto add = [&](std::size_t row) {
            const auto [begin, end] = x.row(row);
            cost += end - begin + 1;
        };
        if (all)
            for (std::size_t row = 0; row < x.size(); ++row) add(row);
        else
            for (auto row : groups.rows_of(g)) add(static_cast<std::size_t>(row));
        total += cost * ((order.size() - starts[g] + lanes - 1) / lanes);
        starts.push_back(order.size());
        costs.push_back(cost);
    }
    // A block has as many labels as there are lanes, or fewer so that none is more than a thread's
    // share of all work.
    const auto threads = static_cast<std::size_t>(ThreadPool::threads().load());
    std::vector<Unit> units;
    for (std::size_t g = 0; g < groups.size(); ++g) {
        if (costs[g] * threads > total)
            shared[g].block = std::max<std::size_t>(1, lanes * total / (costs[g] * threads));
        for (std::size_t first = starts[g]; first < starts[g + 1]; first += shared[g].block) {
            const std::size_t last = std::min(first + shared[g].block, starts[g + 1]);
            units.push_back({g, first, last, costs[g]});
            ++shared[g].left;
        }
    }
    // the largest first, so that threads end together
    std::stable_sort(units.begin(), units.end(),
                     [](const Unit& a, const Unit& b) { return a.cost > b.cost; });

    struct Scratch {
        newton::Solver solver;
        newton::Buffer weights;
        std::vector<double> mean;
        std::vector<newton::Problem> problems;
        std::vector<std::pair<std::int32_t, float>> entries;
    };
    auto pool = std::make_unique<ScratchPool<Scratch>>();
    parallel_for(units.size(), 1, [&](std::size_t begin, std::size_t end) {
        pool->with([&](Scratch& s) {
            for (std::size_t u = begin; u < end; ++u) {
                Unit& unit = units[u];
                auto& common = shared[unit.group];
                auto& copy = common.copies[memory_node()];
                std::call_once(copy.made, [&] {
                    std::span<const std::int32_t> wanted;
                    if (!all) wanted = groups.rows_of(unit.group);
                    copy.group =
                        std::make_unique<Group>(gather_group(x, wanted, all, options.bias));
                });
                const Group& group = *copy.group;
                const auto& local = group.rows;
                const bool whole = local.size() == x.size();
                s.weights.assign((local.width() + 1) * lanes, 0.f);
                s.problems.resize(unit.last - unit.first);
                for (std::size_t place = unit.first; place < unit.last; ++place) {
                    const std::size_t label = order[place], lane = place - unit.first;
                    auto& problem = s.problems[lane];
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
                    if (!problem.positives.empty())
                        start_between_means(group, problem, options.bias, lane, s.mean, s.weights);
                }
                s.solver.solve(local, group.mean, s.problems, options, s.weights);
                s.entries.clear();
                for (std::size_t lane = 0; lane < s.problems.size(); ++lane) {
                    const auto before = static_cast<std::ptrdiff_t>(s.entries.size());
                    for (std::size_t q = 0; q < local.width(); ++q) {
                        const float w = s.weights[q * lanes + lane];
                        if (std::abs(w) > options.prune)
                            s.entries.push_back({local.features[q], w});
                    }
                    std::sort(s.entries.begin() + before, s.entries.end());
                    float bias = s.weights[local.width() * lanes + lane];
                    if (options.bias > 0 && options.prune > 0)  // what pruning takes, it gets
                        bias += static_cast<float>(
                            pruned_margin(local, s.problems[lane], options.prune, lane, s.weights) /
                            options.bias);
                    s.entries.push_back({static_cast<std::int32_t>(x.width), bias});
                    unit.trained.starts.push_back(static_cast<std::int64_t>(s.entries.size()));
                }
                unit.trained.columns.reserve(s.entries.size());  // no more than they need
                unit.trained.values.reserve(s.entries.size());
                for (auto [column, value] : s.entries) {
                    unit.trained.columns.push_back(column);
                    unit.trained.values.push_back(value);
                }
                if (--common.left == 0) {
                    const bool large = local.values.size() > std::size_t{1} << 18;
                    common.copies.reset();
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

    // The rows of the labels in their own order, a group after the other, whose parts are let go.
    std::sort(units.begin(), units.end(),
              [](const Unit& a, const Unit& b) { return a.first < b.first; });
    constexpr std::size_t untrained = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> places(groups.labels(), untrained);
    for (std::size_t place = 0; place < order.size(); ++place) places[order[place]] = place;
    std::size_t entries = groups.labels() - order.size();
    for (const Unit& unit : units) entries += unit.trained.columns.size();
    WeightRows out;
    out.starts.reserve(groups.labels() + 1);
    out.columns.reserve(entries);
    out.values.reserve(entries);
    auto first = units.begin();
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const std::size_t block = shared[g].block;
        const auto last = std::find_if(first, units.end(), [&](auto& u) { return u.group != g; });
        for (auto label = groups.label_starts[g]; label < groups.label_starts[g + 1]; ++label) {
            if (places[label] == untrained) {
                out.columns.push_back(static_cast<std::int32_t>(x.width));
                out.values.push_back(never / options.bias);
            } else {
                const std::size_t place = places[label] - first->first;
                const WeightRows& part = first[static_cast<std::ptrdiff_t>(place / block)].trained;
                const auto begin = part.starts[place % block], end = part.starts[place % block + 1];
                out.columns.insert(out.columns.end(), part.columns.begin() + begin,
                                   part.columns.begin() + end);
                out.values.insert(out.values.end(), part.values.begin() + begin,
                                  part.values.begin() + end);
            }
            out.starts.push_back(static_cast<std::int64_t>(out.columns.size()));
        }
        for (; first != last; ++first) first->trained = {};
    }
    give_back_memory();
    return out;
}

}  // namespace megalabel
