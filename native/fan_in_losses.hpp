// Losses of labels by their scores, in registers, and their gradients (losses/base.py, `Form`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fan_in.hpp"

namespace megalabel::fan_in {

enum class Form { logistic, squared_hinge, focal, softmax };

// What is to be learned: entries of a sparse matrix, rows by labels, and all that is not there.
// An entry costs `positive` times the loss of a label that applies and `negative` times that of one
// that does not; a label that is no entry costs the latter times its weight as a negative.
struct Truth {
    std::span<const std::int64_t> starts;  // of the rows
    std::span<const std::int32_t> labels;
    std::span<const float> positives, negatives;  // of entries
    std::span<const float> weights;               // of labels that are no entries; none: `weight`
    float weight;
    // Of softmax, by row: the logarithm of the sum of exponentials, and the weight of the row.
    std::span<const float> normalisers, masses;
};

// exp(x), to a few units in the last place: zero and infinity are not reached.
__attribute__((always_inline)) inline void exponential(Vector& x) {
    const Integers negative = x < 0.f;
    x = x > 87.f ? Vector{} + 87.f : x;
    Vector e = negative ? x : -x;
    newton::exp_negative(e);
    x = negative ? e : 1.f / e;
}

// log(1 + e) for e in [0, 1]: a series in e / (2 + e), as log((1 + z) / (1 - z)).
__attribute__((always_inline)) inline void log_of_more(const Vector& e, Vector& out) {
    const Vector z = e / (2.f + e), square = z * z;
    Vector p = square * (1.f / 15) + 1.f / 13;
    p = p * square + 1.f / 11;
    p = p * square + 1.f / 9;
    p = p * square + 1.f / 7;
    p = p * square + 1.f / 5;
    p = p * square + 1.f / 3;
    p = p * square + 1.f;
    out = 2.f * z * p;
}

// The sigmoid of s, and of -s.
__attribute__((always_inline)) inline void sigmoids(const Vector& s, Vector& of, Vector& of_less) {
    const Integers negative = s < 0.f;
    Vector e = negative ? s : -s;
    newton::exp_negative(e);
    const Vector large = 1.f / (1.f + e), small = e * large;
    of = negative ? small : large;
    of_less = negative ? large : small;
}

// log(1 + exp(s)).
__attribute__((always_inline)) inline void softplus(const Vector& s, Vector& out) {
    Vector e = s < 0.f ? s : -s;
    newton::exp_negative(e);
    log_of_more(e, out);
    out += s > 0.f ? s : Vector{};
}

// The loss of a label that does not apply, and its derivative, of 16 rows.
template <Form form>
struct Negative {
    __attribute__((always_inline)) static void slope(Vector& s, float number) {
        if constexpr (form == Form::logistic) {
            Vector less;
            const Vector score = s;
            sigmoids(score, s, less);
        } else if constexpr (form == Form::squared_hinge) {
            const Vector over = 1.f + s;
            s = over > 0.f ? 2.f * over : Vector{};
        } else {
            Vector rest, p, q;
            softplus(s, rest);  // -log(1 - p)
            sigmoids(s, p, q);
            Vector power = number * (s - rest);
            exponential(power);
            s = power * (number * q * rest + p);
        }
    }
    __attribute__((always_inline)) static void value(Vector& s, float number) {
        if constexpr (form == Form::squared_hinge) {
            const Vector over = 1.f + s;
            s = over > 0.f ? over * over : Vector{};
        } else {
            Vector rest;
            softplus(s, rest);
            if constexpr (form == Form::focal) {
                Vector power = number * (s - rest);
                exponential(power);
                rest *= power;
            }
            s = rest;
        }
    }
};

// The same of one label, and in double precision: of entries, which are few. For a label that
// applies, it is of -s, and the slope changes its sign.
struct One {
    Form form;
    double number;

    double value(double s) const {
        if (form == Form::squared_hinge) return std::pow(std::max(0.0, 1 + s), 2);
        const double rest = soft(s);
        return form == Form::focal ? std::exp(number * (s - rest)) * rest : rest;
    }
    double slope(double s) const {
        if (form == Form::squared_hinge) return 2 * std::max(0.0, 1 + s);
        const double p = 1 / (1 + std::exp(-s));
        if (form != Form::focal) return p;
        const double rest = soft(s);
        return std::exp(number * (s - rest)) * (number * (1 - p) * rest + p);
    }

  private:
    static double soft(double s) { return std::max(s, 0.0) + std::log1p(std::exp(-std::abs(s))); }
};

}  // namespace megalabel::fan_in
