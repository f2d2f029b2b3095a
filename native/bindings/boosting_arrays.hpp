// Boosted trees, as Python has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "arrays.hpp"
#include "boosting.hpp"

namespace megalabel::bind {

// Checked when it is made; `forest` is what other kernels apply.
struct BoostedTrees {
    In<std::int64_t> starts;
    In<std::int32_t> feature;
    In<float> threshold;
    In<std::int32_t> left, right;
    In<std::uint8_t> missing_left;
    In<float> value;
    float base;
    std::size_t features;
    boosting::Forest forest;

    BoostedTrees(In<std::int64_t> starts, In<std::int32_t> feature, In<float> threshold,
                 In<std::int32_t> left, In<std::int32_t> right, In<std::uint8_t> missing_left,
                 In<float> value, float base, std::size_t features)
        : starts(std::move(starts)),
          feature(std::move(feature)),
          threshold(std::move(threshold)),
          left(std::move(left)),
          right(std::move(right)),
          missing_left(std::move(missing_left)),
          value(std::move(value)),
          base(base),
          features(features),
          forest({span(this->starts), span(this->feature), span(this->threshold), span(this->left),
                  span(this->right), span(this->missing_left), span(this->value), base, features}) {
    }
};

}  // namespace megalabel::bind
