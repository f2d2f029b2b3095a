// What makes one margin of what the members of a mix say of a label: means of their probabilities,
// a linear stack, or boosted trees (rankers/combining.py has the formulas and how they are learned).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <variant>

#include "boosting.hpp"

namespace megalabel::combining {

inline constexpr std::size_t OF_MEMBER = 3;  // columns of each member: logit, place, distance

// Means of probabilities, with weights by how frequent the label is.
struct Means {
    std::span<const float> edges;      // of the bins of frequency, rising
    std::span<const double> weights;   // (bins, members)
    std::span<const double> unlisted;  // what a member counts that does not list the label
};

// Logistic regression on columns brought to one scale.
struct Stack {
    std::size_t members;
    std::span<const double> weights;  // of the columns, of values missing from each, the constant
    std::span<const double> means, scales;
};

using Combiner = std::variant<const boosting::Forest*, Means, Stack>;

inline void check(const boosting::Rows& rows, std::span<float> out) {
    if (rows.values.size() != rows.count * rows.width || out.size() != rows.count)
        throw std::invalid_argument("there must be a margin for each row");
}

inline void margins_of(const Means& means, const boosting::Rows& rows, std::span<float> out) {
    check(rows, out);
    const std::size_t members = means.unlisted.size(), frequency = OF_MEMBER * members;
    if (rows.width <= frequency || means.weights.size() != (means.edges.size() + 1) * members)
        throw std::invalid_argument("the weights of means are not of these columns");
    for (std::size_t i = 0; i < rows.count; ++i) {
        const float* said = rows.values.data() + i * rows.width;
        const std::size_t bin =
            std::upper_bound(means.edges.begin(), means.edges.end(), said[frequency]) -
            means.edges.begin();
        double mean = 0;
        for (std::size_t m = 0; m < members; ++m) {
            const double logit = said[OF_MEMBER * m];
            const double p = std::isnan(logit) ? means.unlisted[m] : 1 / (1 + std::exp(-logit));
            mean += p * means.weights[bin * members + m];
        }
        mean = std::clamp(mean, 1e-6, 1 - 1e-6);
        out[i] = static_cast<float>(std::log(mean / (1 - mean)));
    }
}

inline void margins_of(const Stack& stack, const boosting::Rows& rows, std::span<float> out) {
    check(rows, out);
    const std::size_t width = rows.width, of_members = OF_MEMBER * stack.members;
    if (width < of_members || stack.means.size() != width || stack.scales.size() != width ||
        stack.weights.size() != 2 * width + 1)
        throw std::invalid_argument("the weights of a stack are not of these columns");
    for (std::size_t i = 0; i < rows.count; ++i) {
        const float* said = rows.values.data() + i * width;
        double sum = stack.weights[2 * width];
        for (std::size_t c = 0; c < width; ++c) {
            double value = said[c];
            if (c < of_members && c % OF_MEMBER == 1) value = std::log(value);  // a place
            value = (value - stack.means[c]) / stack.scales[c];
            sum += std::isnan(value) ? stack.weights[width + c] : stack.weights[c] * value;
        }
        out[i] = static_cast<float>(sum);
    }
}

inline void margins_of(const boosting::Forest* trees, const boosting::Rows& rows,
                       std::span<float> out) {
    boosting::margins_of(*trees, rows, out);
}

// The margin of each row. A row's does not depend on the rows beside it.
inline void margins_of(const Combiner& combiner, const boosting::Rows& rows, std::span<float> out) {
    std::visit([&](const auto& one) { margins_of(one, rows, out); }, combiner);
}

}  // namespace megalabel::combining
