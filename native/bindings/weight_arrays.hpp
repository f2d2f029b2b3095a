// Rows of weights, as Python has them.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "groups.hpp"

namespace megalabel::bind {

using WeightArrays = std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>>;
inline WeightArrays to_numpy(WeightRows&& rows) {
    return {to_numpy(std::move(rows.starts)), to_numpy(std::move(rows.columns)),
            to_numpy(std::move(rows.values))};
}

}  // namespace megalabel::bind
