// Many binary linear classifiers at once: truncated Newton for labels that share their rows.
//
// Up to `lanes` labels are solved in lockstep, so that each pass over the rows serves all of them:
// a feature value is read once and multiplied with their weights side by side, one vector
// instruction. A label that is done makes place for another. For each label the problem is
// (DiSMEC++; LIBLINEAR)
//     f(w) = 1/2 |w|^2 + sum_i C_i loss(t_i <x_i, w>),  t_i = 1 or -1,
// with the squared hinge max(0, 1 - m)^2 or the logistic loss log(1 + exp(-m)); the bias is a
// weight like the others. Newton steps come from conjugate gradients whose Hessian products touch
// only rows with curvature, for the squared hinge those inside some lane's margin. One thread
// solves a label, and nothing about it depends on its company: so results do not depend on the
// number of threads.
// A label with few rows inside its margin steps alone, over those, as hardly any other label has a
// slope in the same rows; of many it takes a sample for its Hessian, and steps alone as well. A
// label that single precision takes no further is finished by refine.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "conjugate_gradients.hpp"
#include "lanes.hpp"
#include "line_search.hpp"
#include "parallel.hpp"
#include "refine.hpp"
#include "rows.hpp"
#include "sampling.hpp"
#include "slopes.hpp"

namespace megalabel::newton {

struct Options {
    Loss loss = Loss::squared_hinge;
    double eps = 0.01;
    float bias = 1;
    float prune = 0.01f;
    int max_newton = 100;
    int max_products = 50;  // of conjugate gradients for one step
};

// A label's positives (places among the group's rows) and the costs of its two classes.
struct Problem {
    std::size_t label = 0;
    std::vector<std::int32_t> positives;
    std::vector<float> factors;  // of each positive's cost: for all problems of a solver, or none
    float positive_cost = 1, negative_cost = 1;
};

// Up to this many rows, their margins are kept from step to step and so is what a step changes.
// Those of more take more memory than all else, and computing them anew takes little longer than
// reading them.
inline constexpr std::size_t most_kept = std::size_t{1} << 17;

// The buffers of a solver, kept from group to group by each thread.
class Solver {
  public:
    // Solves problems over the rows, whose mean is given (bias last), up to `at_once` side by side.
    // `next(problem, weights)` gives another problem and where it starts, or returns false: there
    // is none left. `done(problem, weights)` takes the solution. (Bias last in both.)
    template <class Next, class Done>
    void solve(const Rows& x, std::span<const double> mean, const Options& options,
               std::size_t at_once, const Next& next, const Done& done) {
        const std::size_t n = x.size(), size = x.width() + 1;
        for (bool more = true; more;) {
            begin(x, options);
            for (;;) {
                std::fill(block_.step.begin(), block_.step.end(), 0.f);
                find_steps(x, options);
                for (std::size_t k = 0; k < at_once; ++k) {
                    if ((open_ | stuck_) >> k & 1) continue;
                    if (taken_ >> k & 1) leave(k, size, done);
                    more = more && next(problems_[k], std::span(alone_.step).first(size));
                    if (more) enter(x, mean, options, k);
                }
                if (!open_) break;
                if (keeps_) multiply_all(x, options.bias, block_.step.data(), sloped_.slopes);
                const auto [length, settled] = line_search(x, options);
                add_scaled(length.data(), block_.step.data(), weights_.data(), size);
                if (keeps_) add_scaled(length.data(), sloped_.slopes.data(), margin_.data(), n);
                for (std::size_t k = 0; k < lanes; ++k) {
                    if (++iteration_[k] >= options.max_newton) stuck_ |= open_ & 1u << k;
                    if (stuck_ >> k & 1) close(k);
                }
                list_slopes(x, options, settled);
            }
            if (stuck_) refine(x, options, done);
        }
    }

  private:
    void begin(const Rows& x, const Options& options) {
        const std::size_t n = x.size(), size = x.width() + 1;
        block_.resize(size * lanes);
        alone_.resize((size + lanes - 1) / lanes * lanes);
        weights_.assign(size * lanes, 0.f);
        keeps_ = n <= most_kept;
        if (keeps_) margin_.assign(n * lanes, 0.f);
        sloped_.resize(n, options.loss, !keeps_);
        sloped_.clear();
        reached_.resize(n);
        positive_.assign(n, 0);
        positive_cost_ = negative_cost_ = {};
        open_ = fresh_ = stuck_ = taken_ = 0;
        classes_ = {positive_.data(), positive_cost_.data(), negative_cost_.data(), nullptr};
    }

    // The problem of a lane begins.
    void enter(const Rows& x, std::span<const double> mean, const Options& options, std::size_t k) {
        const Problem& p = problems_[k];
        const std::size_t n = x.size();
        const unsigned bit = 1u << k;
        open_ |= bit, fresh_ |= bit, taken_ |= bit;
        iteration_[k] = -1;  // the first leads to the start
        positive_cost_[k] = p.positive_cost;
        negative_cost_[k] = p.negative_cost;
        for (auto row : p.positives) positive_[row] |= static_cast<std::uint16_t>(bit);
        if (!p.factors.empty()) {
            factors_.resize(n * lanes);  // read only where it is written
            classes_.factors = factors_.data();
        }
        for (std::size_t j = 0; j < p.factors.size(); ++j)
            factors_[p.positives[j] * lanes + k] = p.factors[j];
        const double rarer = std::min(p.positives.size(), n - p.positives.size());
        // dense columns alone are much like each other: as small a slope is farther from the end
        const double eps = options.eps / (x.dense == x.width() ? 10 : 1);
        tolerance_[k] = eps * std::max(1.0, rarer) / std::max<double>(1, n) *
                        slope_at_zero(x, mean, p, options);
        // margins that are kept are zero before a first step, which leads to the start
        Buffer& start = keeps_ ? block_.step : weights_;
        for (std::size_t q = 0; q <= x.width(); ++q) start[q * lanes + k] = alone_.step[q];
        for (std::size_t i = 0; keeps_ && i < n; ++i) margin_[i * lanes + k] = 0;
    }

    // The problem of a lane is done, whose weights are zero from then on.
    template <class Done>
    void leave(std::size_t k, std::size_t size, const Done& done) {
        close(k);
        taken_ &= ~(1u << k);
        for (auto row : problems_[k].positives)
            positive_[row] &= static_cast<std::uint16_t>(~(1u << k));
        for (std::size_t q = 0; q < size; ++q)
            alone_.step[q] = std::exchange(weights_[q * lanes + k], 0.f);
        done(problems_[k], std::span<const float>(alone_.step).first(size));
    }

    // A lane that is closed asks for no more rows.
    void close(std::size_t k) {
        open_ &= ~(1u << k);
        positive_cost_[k] = negative_cost_[k] = 0;
    }

    // Takes the stuck lanes on in double precision, each on its own, in memory that others need not
    // be in.
    template <class Done>
    void refine(const Rows& x, const Options& options, const Done& done) {
        const Buffer w = std::move(weights_);
        const auto problems = std::move(problems_);
        const Lanes tolerance = tolerance_;
        unsigned wanted = stuck_;
        *this = Solver();
        Refiner refiner;
        Doubles refined(x.width() + 1);
        std::vector<float> rounded(refined.size());
        Paged<float> costs;
        for (; wanted; wanted &= wanted - 1) {
            const auto lane = static_cast<std::size_t>(std::countr_zero(wanted));
            const auto& p = problems[lane];
            for (std::size_t q = 0; q < refined.size(); ++q) refined[q] = w[q * lanes + lane];
            costs.assign(x.size(), -p.negative_cost);
            for (std::size_t j = 0; j < p.positives.size(); ++j)
                costs[p.positives[j]] = p.positive_cost * (p.factors.empty() ? 1 : p.factors[j]);
            refiner.refine(x, costs, options.loss == Loss::logistic, options.bias, tolerance[lane],
                           refined);
            std::copy(refined.begin(), refined.end(), rounded.begin());
            done(p, rounded);
        }
    }

    static void multiply_all(const Rows& x, float bias, const float* v, Buffer& out) {
        x.with_columns([&](auto columns) {
            multiply<1>(x, columns, bias, {v}, x.size(), RowsFrom{0}, {out.data()});
        });
    }

    // Lists the rows with a slope, which are among those with a settled bit, and sums the losses.
    // By tiles of all rows, and for each lane by its own bits: no lane is summed in another order,
    // or finds a slope by another rounding, because of its company.
    void list_slopes(const Rows& x, const Options& options, std::uint32_t settled) {
        sloped_.clear();
        loss_ = {};
        alignas(64) float computed[tile * lanes];
        std::array<std::int32_t, tile> rows;
        std::array<std::uint32_t, tile> wanted;
        x.with_columns([&](auto columns) {
            for (std::size_t first = 0; first < x.size(); first += tile) {
                std::size_t found = 0;
                for (std::size_t i = first; i < std::min(x.size(), first + tile); ++i) {
                    rows[found] = static_cast<std::int32_t>(i);
                    wanted[found] = reached_[i] & settled;
                    wanted[found] |= wanted[found] >> lanes;
                    found += wanted[found] != 0;
                }
                if (!found) continue;
                const auto these = std::span(rows).first(found);
                const ListedRows row_of{rows.data()};
                if (keeps_) {
                    list_sloped(options.loss, classes_, these, wanted.data(), margin_.data(),
                                row_of, sloped_, loss_.data());
                } else {
                    multiply<1>(x, columns, options.bias, {weights_.data()}, found, row_of,
                                {computed});
                    list_sloped(options.loss, classes_, these, wanted.data(), computed, RowsFrom{0},
                                sloped_, loss_.data());
                }
            }
        });
    }

    // The norm of a label's gradient at zero, which the stopping rule measures against (not that at
    // the start).
    double slope_at_zero(const Rows& x, std::span<const double> mean, const Problem& problem,
                         const Options& options) {
        const float slope = options.loss == Loss::logistic ? 0.5f : 2.f;
        auto& g = alone_.residual;
        std::fill(g.begin(), g.end(), 0.f);
        const double all = slope * problem.negative_cost * static_cast<double>(x.size());
        for (std::size_t q = 0; q < mean.size(); ++q) g[q] = static_cast<float>(all * mean[q]);
        coefficients_.resize(problem.positives.size());
        for (std::size_t j = 0; j < coefficients_.size(); ++j) {
            const float factor = problem.factors.empty() ? 1.f : problem.factors[j];
            coefficients_[j] = -slope * (problem.positive_cost * factor + problem.negative_cost);
        }
        x.with_columns([&](auto columns) {
            add_alone(x, columns, options.bias, problem.positives, coefficients_.data(), g.data());
        });
        Lanes square{};
        dot(g.data(), g.data(), g.size() / lanes, square.data());
        return std::sqrt(std::reduce(square.begin(), square.end()));
    }

    // Lists the rows of the open lanes that find their step alone, as hardly any other lane needs
    // the same rows: lanes with a slope in few rows (`apart_`, a bit each), and those with few in
    // their sample (`thinned_`), which share the gradient with others. All that depends on nothing
    // but the label, so that its weights do not depend on its company.
    void list_rows(const Rows& x) {
        const std::size_t few = x.size() / 8;
        apart_ = thinned_ = 0;
        for (std::size_t k = 0; k < lanes; ++k) {
            lists_[k].clear();
            const auto count = static_cast<std::size_t>(sloped_.counts[k]);
            samples_[k] = Sample(count, x.width(), iteration_[k]);
            if (!(open_ >> k & 1) || count / samples_[k].stride() > few) continue;
            (count <= few ? apart_ : thinned_) |= 1u << k;
        }
        if (!apart_ && !thinned_) return;
        for (std::size_t r = 0; r < sloped_.size; ++r) {
            const unsigned all = sloped_.bits[r];
            for (unsigned bits = all & apart_; bits; bits &= bits - 1)
                lists_[std::countr_zero(bits)].push_back(static_cast<std::int32_t>(r));
            for (unsigned bits = all & thinned_; bits; bits &= bits - 1)
                if (const int k = std::countr_zero(bits); samples_[k].holds(sloped_.rows[r]))
                    lists_[k].push_back(static_cast<std::int32_t>(r));
        }
    }

    // The steps of all open lanes; one whose gradient is small enough is closed instead.
    void find_steps(const Rows& x, const Options& options) {
        if (!open_) return;
        const Curvatures curvatures{classes_, sloped_, options.loss};
        list_rows(x);
        for (unsigned bits = apart_; bits; bits &= bits - 1)
            step_alone(x, options, curvatures, static_cast<std::size_t>(std::countr_zero(bits)));
        step_together(x, options, curvatures);
    }

    // The step of one lane over its own rows.
    void step_alone(const Rows& x, const Options& options, const Curvatures& curvatures,
                    std::size_t lane) {
        picked_.clear();
        coefficients_.clear();
        for (auto r : lists_[lane]) {
            picked_.push_back(sloped_.rows[r]);
            coefficients_.push_back(sloped_.slopes[sloped_.place(r, lane)]);
        }
        auto& gradient = take_lane(weights_.data(), lane, x.width() + 1);
        x.with_columns([&](auto columns) {
            add_alone(x, columns, options.bias, picked_, coefficients_.data(), gradient.data());
        });
        Lanes square{};
        dot(gradient.data(), gradient.data(), gradient.size() / lanes, square.data());
        join(square);
        if (square[0] > tolerance_[lane] * tolerance_[lane])
            find_alone(x, options, curvatures, lane, square);
        else
            close(lane);
    }

    // One lane of a vector, to begin a gradient of its own with.
    Buffer& take_lane(const float* vector, std::size_t lane, std::size_t size) {
        auto& taken = alone_.residual;
        std::fill(taken.begin(), taken.end(), 0.f);
        for (std::size_t q = 0; q < size; ++q) taken[q] = vector[q * lanes + lane];
        return taken;
    }

    // The step of one lane from its gradient, by the Hessian of its sample.
    void find_alone(const Rows& x, const Options& options, const Curvatures& curvatures,
                    std::size_t lane, const Lanes& square) {
        picked_.clear();
        coefficients_.clear();
        const Sample& sample = samples_[lane];
        const auto times = static_cast<float>(sample.stride());
        for (auto r : lists_[lane]) {
            if (sample.stride() > 1 && !sample.holds(sloped_.rows[r])) continue;
            picked_.push_back(sloped_.rows[r]);
            coefficients_.push_back(times * curvatures.one(r, lane));
        }
        std::fill(alone_.step.begin(), alone_.step.end(), 0.f);
        std::array<bool, lanes> going;
        going.fill(true);
        const std::size_t places = alone_.residual.size() / lanes;
        const Lanes fall =
            find_step(alone_, places, options.max_products, going, square, true, [&](unsigned) {
                x.with_columns([&](auto columns) {
                    hessian_alone(x, columns, options.bias, picked_, coefficients_.data(),
                                  alone_.direction.data(), alone_.product.data());
                });
            });
        fall_[lane] = fall[0];
        for (std::size_t q = 0; q <= x.width(); ++q) block_.step[q * lanes + lane] = alone_.step[q];
    }

    // The gradients of all other lanes, over the rows where any of them has a slope, and the steps
    // of those that need all these rows for it. Gradients are made where the steps will be: few
    // corpora need the vectors of steps together, which memory then has room for.
    void step_together(const Rows& x, const Options& options, const Curvatures& curvatures) {
        const unsigned wanted = open_ & ~apart_;
        if (!wanted) return;
        const std::size_t size = x.width() + 1;
        float* gradient = block_.step.data();
        copy_lanes(wanted, weights_.data(), gradient, size);
        x.with_columns([&](auto columns) {
            add(x, columns, options.bias, sloped_.rows.data(), sloped_.size, sloped_.bits.data(),
                static_cast<std::uint16_t>(wanted), Slopes{sloped_, wanted}, gradient);
        });
        Lanes square{};
        dot(gradient, gradient, size, square.data());
        std::array<bool, lanes> going{};
        Factors taken{};  // -1: the gradient is not left there
        for (unsigned bits = wanted; bits; bits &= bits - 1) {
            const auto k = static_cast<std::size_t>(std::countr_zero(bits));
            taken[k] = -1;
            if (square[k] <= tolerance_[k] * tolerance_[k]) {
                close(k);
            } else if (thinned_ >> k & 1) {
                taken[k] = 0;
                take_lane(gradient, k, size);
                Lanes own;
                own.fill(square[k]);
                find_alone(x, options, curvatures, k, own);
            } else {
                going[k] = true;
            }
        }
        const bool any = std::find(going.begin(), going.end(), true) != going.end();
        if (any) std::memcpy(block_.residual.data(), gradient, size * lanes * sizeof(float));
        add_scaled(taken.data(), gradient, block_.step.data(), size);
        if (!any) return;
        const auto fall = find_step(
            block_, size, options.max_products, going, square, false, [&](unsigned lanes_going) {
                x.with_columns([&](auto columns) {
                    hessian(x, columns, options.bias, sloped_.rows.data(), sloped_.size,
                            sloped_.bits.data(), static_cast<std::uint16_t>(lanes_going),
                            curvatures, block_.direction.data(), block_.product.data());
                });
            });
        for (std::size_t k = 0; k < lanes; ++k)
            if (going[k]) fall_[k] = fall[k];
    }

    // How long a step every lane takes; 0 for closed lanes. One is stuck where single precision
    // sees no progress, or where the step takes off all but a thousandth of the weights, and so of
    // the margins. A first step is taken whole. Which rows have a slope there is among the bits of
    // `reached_`: also returns which of them to ask for.
    std::pair<Factors, std::uint32_t> line_search(const Rows& x, const Options& options) {
        const float *w = weights_.data(), *step = block_.step.data();
        const std::size_t size = x.width() + 1;
        Factors length{};
        for (std::size_t k = 0; k < lanes; ++k) length[k] = open_ >> k & 1 ? 1.f : 0.f;
        unsigned searching = open_ & ~fresh_;
        std::uint32_t settled = std::exchange(fresh_, 0) << upper_half;
        if (!searching) {  // any row may have one
            std::fill(reached_.begin(), reached_.end(), every_bit);
            return {length, settled};
        }
        Lanes ww{}, ws{}, ss{};
        dot(w, w, size, ww.data());
        dot(w, step, size, ws.data());
        dot(step, step, size, ss.data());
        constexpr int last_pass = 10;
        for (int pass = 0; searching; ++pass) {
            std::array<Along, tries> sums{};
            add_losses(x, options, length, sums);
            // lanes that settled in the pass before were looked at again where they did
            settled = (settled >> upper_half | settled >> lower_half) & 0xffff;
            for (std::size_t k = 0; k < lanes; ++k) {
                if (!(searching >> k & 1)) continue;
                const auto point = [&](double a, const Along& rows) {
                    return Point{a, rows.loss[k] + 0.5 * (ww[k] + 2 * a * ws[k] + a * a * ss[k]),
                                 rows.slope[k] + ws[k] + a * ss[k]};
                };
                // the value is not what the step before foresaw: where it took off most of |w|^2,
                // that is rounding
                const Point start{0, loss_[k] + 0.5 * ww[k], fall_[k]};
                const auto found = choose_length(start, point(length[k] / 2, sums[1]),
                                                 point(length[k], sums[0]), pass == last_pass);
                length[k] = static_cast<float>(found.length);
                if (found.taken) {
                    searching &= ~(1u << k);
                    const double a = found.length;
                    if (start.value - found.value <= 1e-7 * std::abs(found.value) ||
                        ww[k] + 2 * a * ws[k] + a * a * ss[k] <= 1e-6 * ww[k])
                        stuck_ |= 1u << k;
                    settled |=
                        1u << (static_cast<int>(k) + (found.below ? lower_half : upper_half));
                } else if (pass == last_pass) {
                    length[k] = 0;
                    stuck_ |= 1u << k;
                    searching &= ~(1u << k);
                }
            }
        }
        return {length, settled};
    }

    // The losses of all rows at each of the lengths, their slopes, and where there is one.
    void add_losses(const Rows& x, const Options& options, const Factors& length,
                    std::array<Along, tries>& sums) {
        alignas(64) float margin[tile * lanes], change[tile * lanes];
        x.with_columns([&](auto columns) {
            for (std::size_t first = 0; first < x.size(); first += tile) {
                const std::size_t last = std::min(x.size(), first + tile);
                if (!keeps_)
                    multiply<2>(x, columns, options.bias, {weights_.data(), block_.step.data()},
                                last - first, RowsFrom{first}, {margin, change});
                const float* at = keeps_ ? margin_.data() + first * lanes : margin;
                const float* by = keeps_ ? sloped_.slopes.data() + first * lanes : change;
                const auto add = options.loss == Loss::logistic
                                     ? newton::add_losses<Loss::logistic>
                                     : newton::add_losses<Loss::squared_hinge>;
                add(classes_, at, by, length.data(), first, last, sums, reached_.data());
            }
        });
    }

    // Of each lane: a bit that says whether its label is on the way (or before its first step, or
    // at the end of what single precision can do), or whether it has one at all; and its own.
    unsigned open_ = 0, fresh_ = 0, stuck_ = 0, taken_ = 0;
    std::array<Problem, lanes> problems_;
    std::array<int, lanes> iteration_{};
    Factors positive_cost_{}, negative_cost_{};
    Lanes tolerance_{};
    Lanes loss_{};  // at the margins
    Lanes fall_{};  // gradient times step

    Buffer weights_;
    Vectors block_, alone_;
    bool keeps_ = false;
    Buffer margin_;                 // of all rows, where they are kept
    Paged<std::uint32_t> reached_;  // lanes that have a slope at the lengths looked at
    Sloped sloped_;
    Paged<std::uint16_t> positive_;
    Buffer factors_;
    Classes classes_{};

    // How lanes find a step alone: their rows, and which of them are in a sample.
    unsigned apart_ = 0, thinned_ = 0;
    std::array<Paged<std::int32_t>, lanes> lists_;
    std::array<Sample, lanes> samples_;
    Paged<std::int32_t> picked_;
    Paged<float> coefficients_;
};

}  // namespace megalabel::newton
