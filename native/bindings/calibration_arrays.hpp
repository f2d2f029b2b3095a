// A joint calibration, as Python has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arrays.hpp"
#include "joint.hpp"

namespace megalabel::bind {

struct Joint {
    double steps;
    In<double> knots, heights, ranks, frequencies;
    In2<double> constants, slopes;
    In<std::uint8_t> levels;
    std::size_t pooled;
    In<float> thresholds, values;

    joint::Calibration view() const {
        return {{span(knots), span(heights), span(ranks), span(frequencies), span(constants),
                 span(slopes), steps},
                span(levels),
                pooled,
                span(thresholds),
                span(values)};
    }
};

}  // namespace megalabel::bind
