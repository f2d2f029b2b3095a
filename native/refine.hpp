// One label to the end in double precision.
//
// The blocks of newton.hpp are solved in single precision, which sees no progress once a step takes
// less than about 1e-7 off the objective. Large costs, long rows and tight tolerances ask for more:
// what is left there is done here, a label at a time, by Newton steps from conjugate gradients with
// a diagonal preconditioner.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "memory.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace megalabel::newton {

using Doubles = Paged<double>;

// <x_i, v>, without the bias.
template <class Columns>
double row_product(const Rows& x, Columns columns, std::size_t i, const double* v) {
    double sum = 0;
    const float* dense = x.dense_row(i);
    for (std::size_t j = 0; j < x.dense; ++j) sum += dense[j] * v[j];
    for (auto e = x.starts[i]; e < x.starts[i + 1]; ++e) sum += x.values[e] * v[columns[e]];
    return sum;
}

// Calls visit(column, value) for the row's values, the bias too.
template <class Columns, class Visit>
void for_row(const Rows& x, Columns columns, std::size_t i, double bias, Visit&& visit) {
    const float* dense = x.dense_row(i);
    for (std::size_t j = 0; j < x.dense; ++j) visit(j, double{dense[j]});
    for (auto e = x.starts[i]; e < x.starts[i + 1]; ++e)
        visit(static_cast<std::size_t>(columns[e]), double{x.values[e]});
    visit(x.width(), bias);
}

class Refiner {
  public:
    // Goes on from `w` (bias last) until the gradient is no longer than the tolerance, or until
    // double precision sees no progress either. `costs` are of each row, below zero where the label
    // is not its own.
    void refine(const Rows& x, std::span<const float> costs, bool logistic, double bias,
                double tolerance, Doubles& w) {
        const std::size_t n = x.size(), size = w.size();
        for (auto* v : {&gradient_, &step_, &direction_, &residual_, &product_, &diagonal_})
            v->resize(size);
        for (auto* v : {&margin_, &change_}) v->resize(n);
        double first = 0;  // the gradient's length where it began
        edge_ = 0;
        for (int iteration = 0; iteration < most_steps; ++iteration) {
            multiply(x, bias, w, margin_);
            const double value = 0.5 * dot(w, w) + slopes(x, costs, logistic, bias, w);
            const double length = std::sqrt(dot(gradient_, gradient_));
            if (length <= tolerance) return;
            if (iteration == 0) first = length;
            find_step(x, bias, std::min(0.1, std::sqrt(length / first)));
            multiply(x, bias, step_, change_);
            const double a = search(costs, logistic, value, w);
            // Steps end soon where they lead over the edges of rows that have no curvature yet:
            // then such rows are seen from afar.
            if (a == 0 && (logistic || edge_ >= 1)) return;
            if (a < 0.1)
                edge_ = std::max(1e-9, 10 * edge_);
            else if (a > 0.5)
                edge_ /= 10;
            for (std::size_t q = 0; q < size; ++q) w[q] += a * step_[q];
        }
    }

  private:
    static constexpr int most_steps = 1000;

    static double dot(const Doubles& a, const Doubles& b) {
        double sum = 0;
        for (std::size_t q = 0; q < a.size(); ++q) sum += a[q] * b[q];
        return sum;
    }

    static void multiply(const Rows& x, double bias, const Doubles& v, Doubles& out) {
        x.with_columns([&](auto columns) {
            for (std::size_t i = 0; i < x.size(); ++i)
                out[i] = row_product(x, columns, i, v.data()) + bias * v.back();
        });
    }

    struct Terms {
        double loss, slope, curvature;
    };
    // Of one row, as functions of <x_i, w>.
    Terms terms_of(double at, double signed_cost, bool logistic) const {
        const double cost = std::abs(signed_cost), margin = signed_cost > 0 ? at : -at;
        if (!logistic) {
            const double gap = std::max(0.0, 1 - margin);
            return {cost * gap * gap, -2 * signed_cost * gap, margin < 1 + edge_ ? 2 * cost : 0};
        }
        const double e = std::exp(-std::abs(margin)), near = 1 / (1 + e);
        return {cost * (std::max(0.0, -margin) + std::log1p(e)),
                -signed_cost * (margin > 0 ? e * near : near), cost * e * near * near};
    }

    // The sum of the losses at the margins; sets the gradient, the curvature of each row, and the
    // diagonal of the Hessian.
    double slopes(const Rows& x, std::span<const float> costs, bool logistic, double bias,
                  const Doubles& w) {
        double sum = 0;
        gradient_ = w;
        std::fill(diagonal_.begin(), diagonal_.end(), 1.0);
        active_.clear();
        curvature_.clear();
        x.with_columns([&](auto columns) {
            for (std::size_t i = 0; i < x.size(); ++i) {
                const Terms terms = terms_of(margin_[i], costs[i], logistic);
                sum += terms.loss;
                if (terms.slope == 0 && terms.curvature == 0) continue;
                active_.push_back(static_cast<std::int32_t>(i));
                curvature_.push_back(terms.curvature);
                for_row(x, columns, i, bias, [&](std::size_t q, double value) {
                    gradient_[q] += terms.slope * value;
                    diagonal_[q] += terms.curvature * value * value;
                });
            }
        });
        return sum;
    }

    // H s = -g, until the residual is a small enough share of the gradient; both are measured by
    // the inverse of the diagonal.
    void find_step(const Rows& x, double bias, double share) {
        const std::size_t size = gradient_.size();
        std::fill(step_.begin(), step_.end(), 0.0);
        double rho = 0;
        for (std::size_t q = 0; q < size; ++q) {
            residual_[q] = -gradient_[q];
            direction_[q] = residual_[q] / diagonal_[q];
            rho += residual_[q] * direction_[q];
        }
        const double enough = share * share * rho;
        // rounding may ask for more products than there are features
        for (std::size_t t = 0; t < 2 * size + 50 && rho > enough; ++t) {
            end_if_cancelled();
            product_ = direction_;
            x.with_columns([&](auto columns) {
                for (std::size_t a = 0; a < active_.size(); ++a) {
                    const auto i = static_cast<std::size_t>(active_[a]);
                    const double c =
                        curvature_[a] *
                        (row_product(x, columns, i, direction_.data()) + bias * direction_.back());
                    for_row(x, columns, i, bias,
                            [&](std::size_t q, double value) { product_[q] += c * value; });
                }
            });
            const double alpha = rho / dot(direction_, product_);
            double next = 0;
            for (std::size_t q = 0; q < size; ++q) {
                step_[q] += alpha * direction_[q];
                residual_[q] -= alpha * product_[q];
                next += residual_[q] * residual_[q] / diagonal_[q];
            }
            for (std::size_t q = 0; q < size; ++q)
                direction_[q] = residual_[q] / diagonal_[q] + next / rho * direction_[q];
            rho = next;
        }
    }

    // How far to go along the step: to where the objective is least, by Newton's method on the line
    // within a bracket that halves where that leads out. Steps over the edge of a row's margin may
    // be many times too long. 0 where there is nothing left to gain.
    double search(std::span<const float> costs, bool logistic, double value,
                  const Doubles& w) const {
        const double ww = dot(w, w), ws = dot(w, step_), ss = dot(step_, step_);
        const double fall = dot(gradient_, step_);
        double low = 0, high = std::numeric_limits<double>::infinity(), best = 0;
        double a = 1;
        for (int trial = 0; trial < 100; ++trial) {
            double f = 0.5 * (ww + 2 * a * ws + a * a * ss), slope = ws + a * ss, curvature = ss;
            for (std::size_t i = 0; i < costs.size(); ++i) {
                const double at = margin_[i] + a * change_[i];
                const Terms terms = terms_of(at, costs[i], logistic);
                f += terms.loss;
                slope += terms.slope * change_[i];
                curvature += terms.curvature * change_[i] * change_[i];
            }
            if (f < value - 1e-15 * value) {
                value = f;
                best = a;
            }
            if (std::abs(slope) <= 0.01 * std::abs(fall)) break;
            (slope < 0 ? low : high) = a;
            a -= slope / curvature;
            if (!(a > low && a < high)) a = high < 1e300 ? (low + high) / 2 : 2 * low;
        }
        return best;
    }

    Doubles gradient_, step_, direction_, residual_, product_, diagonal_;
    Doubles margin_, change_;     // of rows
    Paged<std::int32_t> active_;  // rows with a slope
    Doubles curvature_;           // of those
    double edge_ = 0;             // how far outside its margin a row has curvature
};

}  // namespace megalabel::newton
