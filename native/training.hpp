// Training of all classifiers of a one-versus-all model or of a tree's levels: where each label
// starts, which thread solves which with newton.hpp, and what is kept of its weights.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "groups.hpp"
#include "memory.hpp"
#include "newton.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

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

// Trains every label of every group. Where there is a bias, a label without positives needs no
// training; without one it is trained like the others, as a margin of 0 would put it before labels
// that are in use. Labels of like frequency are solved side by side, frequent ones first.
class GroupTrainer {
  public:
    GroupTrainer(const SparseRows& x, const LabelGroups& groups, const newton::Options& options)
        : x_(x),
          groups_(groups),
          options_(options),
          all_rows_(groups.row_starts.empty()),
          work_(groups.size()),
          trained_(groups.labels()) {
        order_.reserve(groups.labels());
        for (std::size_t g = 0; g < groups.size(); ++g) list_labels(g);
    }

    WeightRows train() {
        const auto shifts = share_out();
        auto pool = std::make_unique<ScratchPool<Scratch>>();
        parallel_for(shifts.size(), 1, [&](std::size_t begin, std::size_t end) {
            pool->with([&](Scratch& s) {
                for (std::size_t shift = begin; shift < end; ++shift) work_on(shifts[shift], s);
            });
        });
        pool.reset();
        give_back_memory();
        return joined();
    }

  private:
    using Weights = std::vector<std::pair<std::int32_t, float>>;  // by feature, bias last

    // One group, by one thread or by several that take the next label each.
    struct Work {
        std::size_t first = 0, last = 0;  // of its labels in the order they are trained in
        std::size_t cost = 0;             // of all its labels, by the values and biases of its rows
        std::size_t workers = 1;
        std::atomic<std::size_t> next{};  // label
        std::atomic<std::size_t> left{};  // workers
        // The rows are gathered once for each memory node that works on them, by a thread of that
        // node, so that they lie there.
        struct Copy {
            std::once_flag made;
            std::unique_ptr<Group> group;
        };
        std::unique_ptr<Copy[]> copies = std::make_unique<Copy[]>(memory_nodes());

        std::size_t labels() const { return last - first; }
    };

    struct Scratch {
        newton::Solver solver;
        std::vector<double> mean;
        Weights weights;
    };

    void list_labels(std::size_t g) {
        auto& work = work_[g];
        const auto count = [&](std::size_t label) {
            return groups_.positive_starts[label + 1] - groups_.positive_starts[label];
        };
        work.first = order_.size();
        for (auto label = groups_.label_starts[g]; label < groups_.label_starts[g + 1]; ++label)
            if (count(label) > 0 || options_.bias <= 0) order_.push_back(label);
        work.last = order_.size();
        std::stable_sort(order_.begin() + work.first, order_.end(),
                         [&](auto a, auto b) { return count(a) > count(b); });
        std::size_t pass = 0;
        const auto add = [&](std::size_t row) {
            const auto [begin, end] = x_.row(row);
            pass += end - begin + 1;
        };
        if (all_rows_)
            for (std::size_t row = 0; row < x_.size(); ++row) add(row);
        else
            for (auto row : groups_.rows_of(g)) add(static_cast<std::size_t>(row));
        work.cost = pass * ((work.labels() + newton::lanes - 1) / newton::lanes);
    }

    // The group of each worker. More than one thread works on a group that is much of all work, and
    // the largest are first, so that threads end together.
    std::vector<std::size_t> share_out() {
        const auto threads = static_cast<std::size_t>(ThreadPool::threads().load());
        std::size_t total = 1;
        for (auto& work : work_) total += work.cost;
        std::vector<std::size_t> shifts;
        for (std::size_t g = 0; g < work_.size(); ++g) {
            auto& work = work_[g];
            if (!work.labels()) continue;
            work.workers = std::clamp<std::size_t>(2 * threads * work.cost / total, 1,
                                                   std::min(threads, work.labels()));
            work.next = work.first;
            work.left = work.workers;
            shifts.insert(shifts.end(), work.workers, g);
        }
        const auto size = [&](std::size_t g) { return work_[g].cost / work_[g].workers; };
        std::stable_sort(shifts.begin(), shifts.end(),
                         [&](auto a, auto b) { return size(a) > size(b); });
        return shifts;
    }

    void work_on(std::size_t g, Scratch& s) {
        auto& work = work_[g];
        auto& copy = work.copies[memory_node()];
        std::call_once(copy.made, [&] {
            std::span<const std::int32_t> wanted;
            if (!all_rows_) wanted = groups_.rows_of(g);
            copy.group =
                std::make_unique<Group>(gather_group(x_, wanted, all_rows_, options_.bias));
        });
        const Group& group = *copy.group;
        const auto next = [&](newton::Problem& problem, std::span<float> start) {
            const std::size_t place = work.next++;
            if (place >= work.last) return false;
            read(order_[place], group, problem);
            if (problem.positives.empty())
                std::fill(start.begin(), start.end(), 0.f);
            else
                start_between_means(group, problem, options_.bias, s.mean, start);
            return true;
        };
        const auto done = [&](const newton::Problem& problem, std::span<const float> w) {
            keep(problem, group.rows, w, s.weights);
        };
        const std::size_t share = (work.labels() + work.workers - 1) / work.workers;
        s.solver.solve(group.rows, group.mean, options_, std::min(newton::lanes, share), next,
                       done);
        if (--work.left) return;
        const bool large = group.rows.values.size() > std::size_t{1} << 18;
        work.copies.reset();
        // The next group may be made by another thread, which could not use it again, and is
        // smaller.
        if (large) {
            s = {};
            give_back_memory();
        }
    }

    void read(std::size_t label, const Group& group, newton::Problem& problem) const {
        problem.label = label;
        problem.positive_cost = groups_.positive_costs[label];
        problem.negative_cost = groups_.negative_costs[label];
        const auto first = static_cast<std::size_t>(groups_.positive_starts[label]);
        const auto last = static_cast<std::size_t>(groups_.positive_starts[label + 1]);
        const auto rows = groups_.positives.subspan(first, last - first);
        problem.positives.assign(rows.begin(), rows.end());
        problem.factors.clear();
        if (!groups_.factors.empty())
            problem.factors.assign(groups_.factors.begin() + first, groups_.factors.begin() + last);
        if (group.rows.size() == x_.size()) return;
        for (auto& row : problem.positives) {
            const auto at = std::lower_bound(group.places.begin(), group.places.end(), row);
            if (at == group.places.end() || *at != row)
                throw std::invalid_argument("a positive row is not in its group");
            row = static_cast<std::int32_t>(at - group.places.begin());
        }
    }

    void keep(const newton::Problem& problem, const newton::Rows& rows, std::span<const float> w,
              Weights& weights) {
        weights.clear();
        for (std::size_t q = 0; q < rows.width(); ++q)
            if (std::abs(w[q]) > options_.prune) weights.push_back({rows.features[q], w[q]});
        std::sort(weights.begin(), weights.end());
        float bias = w.back();
        if (options_.bias > 0 && options_.prune > 0)  // what pruning takes, it gets
            bias +=
                static_cast<float>(pruned_margin(rows, problem, options_.prune, w) / options_.bias);
        weights.push_back({static_cast<std::int32_t>(x_.width), bias});
        trained_[problem.label] = weights;  // in no more memory than they need
    }

    WeightRows joined() {
        const auto bias = static_cast<std::int32_t>(x_.width);
        std::size_t entries = 0;
        for (auto& weights : trained_) {
            if (weights.empty()) weights = {{bias, never / options_.bias}};
            entries += weights.size();
        }
        WeightRows out;
        out.starts.reserve(trained_.size() + 1);
        out.columns.reserve(entries);
        out.values.reserve(entries);
        for (auto& weights : trained_) {
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

    const SparseRows& x_;
    const LabelGroups& groups_;
    const newton::Options& options_;
    const bool all_rows_;
    std::vector<Work> work_;          // of each group
    std::vector<std::size_t> order_;  // the labels to train
    std::vector<Weights> trained_;    // of each label
};

inline WeightRows train_groups(const SparseRows& x, const LabelGroups& groups,
                               const newton::Options& options) {
    x.check();
    groups.check(x.size());
    return GroupTrainer(x, groups, options).train();
}

}  // namespace megalabel
