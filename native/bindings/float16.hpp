// How numbers in half precision cross between Python and the native core.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

#include "chunks.hpp"

// NumPy sees a Half as a float16.
namespace nanobind::detail {
template <>
struct dtype_traits<megalabel::Half> {
    static constexpr dlpack::dtype value{static_cast<std::uint8_t>(dlpack::dtype_code::Float), 16,
                                         1};
    static constexpr auto name = const_name("float16");
};
}  // namespace nanobind::detail
