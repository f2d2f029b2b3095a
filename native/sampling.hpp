// Which of a label's rows with a slope go into its Hessian.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace megalabel::newton {

// One row of `stride` goes into the Hessian, for that many times its curvature (Byrd et al. 2011).
// Gradient, line search and stopping rule are those of all rows, so that only the way is another.
class Sample {
  public:
    Sample() = default;

    // Of so many rows with a slope, where there are `width` features. A sample of fewer rows than
    // a third of the features takes more steps than it saves, and as rows grow it must, though only
    // with their square root. What is left after many steps, where the tolerance is tight, all
    // rows do faster.
    Sample(std::size_t count, std::size_t width, int iteration) {
        if (iteration < 50) {
            const std::size_t least = std::max<std::size_t>(2048, width / 3);
            const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
            stride_ = std::max<std::size_t>(1, std::min(count / least, root / 16));
        }
        reach_ = ~std::uint64_t{0} / stride_;
        offset_ = golden * (1 + static_cast<std::uint64_t>(iteration) * 0x632BE59BD9B4E019u);
    }

    std::size_t stride() const { return stride_; }

    // Multiples of the golden ratio are spread evenly and have no period; each iteration has a
    // sample of its own.
    bool holds(std::int32_t row) const {
        return static_cast<std::uint64_t>(row) * golden + offset_ <= reach_;
    }

  private:
    static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15u;
    std::size_t stride_ = 1;
    std::uint64_t reach_ = ~std::uint64_t{0}, offset_ = 0;
};

}  // namespace megalabel::newton
