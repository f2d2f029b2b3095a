// How arrays cross between Python and the native core: their types, and structs of them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "metrics.hpp"
#include "ranked.hpp"

namespace megalabel::bind {

namespace nb = nanobind;
using namespace nb::literals;

template <class T>
using In = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<nb::numpy, const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using In3 = nb::ndarray<nb::numpy, const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using InOut = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InOut2 = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
template <class T>
using Out2 = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;

// All numbers of an array, row by row.
template <class T, class... Options>
std::span<T> span(const nb::ndarray<nb::numpy, T, Options...>& array) {
    return {array.data(), array.size()};
}

// Hands a vector's memory to NumPy without a copy.
template <class T, class Allocator>
Out<T> to_numpy(std::vector<T, Allocator>&& values) {
    using Vector = std::vector<T, Allocator>;
    auto* kept = new Vector(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Vector*>(p); });
    return Out<T>(kept->data(), {kept->size()}, owner);
}
template <class T>
Out2<T> to_numpy(std::vector<T>&& values, std::size_t rows, std::size_t columns) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Out2<T>(kept->data(), {rows, columns}, owner);
}

// Numbers and scores of what is ranked.
using RankedArrays = std::tuple<Out2<std::int32_t>, Out2<float>>;
inline RankedArrays to_numpy(megalabel::Ranked&& ranked, std::size_t rows, std::size_t columns) {
    return {to_numpy(std::move(ranked.ids), rows, columns),
            to_numpy(std::move(ranked.scores), rows, columns)};
}

template <class Compute>
auto without_gil(Compute&& compute) {
    nb::gil_scoped_release release;
    return compute();
}

// Binds a struct that Python makes by the names of its members, which are all given in order. A
// component may keep one, so that it can be pickled as its arrays can.
template <class T, class... Members>
void bind_struct(nb::module_& m, const char* name, const char* doc,
                 std::pair<const char*, Members T::*>... members) {
    nb::class_<T>(m, name, doc)
        .def(nb::init<Members...>(), nb::kw_only(), nb::arg(members.first)...)
        .def(
            "__getstate__",
            [members...](const T& value) {
                return std::tuple<Members...>(value.*(members.second)...);
            },
            nb::sig("def __getstate__(self) -> tuple[object, ...]"))
        .def(
            "__setstate__",
            [](T& value, const std::tuple<Members...>& state) {
                std::apply([&](const auto&... member) { new (&value) T{member...}; }, state);
            },
            nb::sig("def __setstate__(self, state: tuple[object, ...]) -> None"));
}

// --- structs that several topics share

struct SparseRows {
    In<std::int64_t> starts;
    In<std::int32_t> columns;
    In<float> values;
    std::size_t width;

    std::size_t size() const { return std::max<std::size_t>(starts.size(), 1) - 1; }
    megalabel::SparseRows view() const {
        return {span(starts), span(columns), span(values), width};
    }
};

struct Ranked {
    In2<std::int32_t> ids;
    In2<float> scores;
    std::int64_t labels;

    std::size_t rows() const { return ids.shape(0); }
    std::size_t width() const { return ids.shape(1); }
    RankedView view() const { return {span(ids), rows(), width(), labels}; }
};

struct Truth {
    In<std::int64_t> indptr;
    In<std::int32_t> indices;
    In<std::uint8_t> positive;

    megalabel::Truth view() const { return {span(indptr), span(indices), span(positive)}; }
};

}  // namespace megalabel::bind
