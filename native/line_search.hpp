// How long a step of a label is, by what the loss is along it.
#pragma once

namespace megalabel::newton {

// The loss at a length of the step, and its slope along the step.
struct Point {
    double length, value, slope;
};

struct Length {
    double length;  // to take; or the next to look at
    double value;   // foreseen there
    bool taken;
    bool below;  // in the lower half of the step
};

// The loss is known where the step starts, where it ends and halfway. The slopes say in which half
// of it the minimum is, and a straight line between two slopes about where. Where the loss there is
// not low enough (Armijo), a quarter of the step is to be looked at. `last`: there is no next look.
inline Length choose_length(const Point& start, const Point& half, const Point& whole, bool last) {
    const auto low_enough = [&](double length, double value) {
        return value - start.value <= 0.01 * length * start.slope;
    };
    const bool below = half.slope > 0;
    const Point &low = below ? start : half, &high = below ? half : whole;
    double share = high.slope > 0 ? low.slope / (low.slope - high.slope) : 1;
    // convex: between two points the loss is no higher than a straight line
    const auto at = [&](double from, double to) { return from + share * (to - from); };
    if (!low_enough(at(low.length, high.length), at(low.value, high.value))) share = 0;
    const double length = at(low.length, high.length);
    // where slopes are of other orders of magnitude, a straight line is no guide
    const bool guided = length >= whole.length / 8 || (length > 0 && last);
    if (!guided || !low_enough(length, at(low.value, high.value)))
        return {whole.length / 4, start.value, false, below};
    const double value = share < 1 ? low.value + low.slope * (length - low.length) / 2 : high.value;
    return {length, value, true, below};
}

}  // namespace megalabel::newton
