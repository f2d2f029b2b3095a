// Python's view of dense products: products.hpp.
#include "products.hpp"

#include <nanobind/stl/variant.h>

#include <stdexcept>
#include <string>
#include <variant>

#include "arrays.hpp"
#include "float16.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

template <class T>
void fill_products(const In2<float>& rows, const In2<T>& weights, const InOut2<float>& out) {
    const products::Rows<float> x{rows.data(), rows.shape(0), rows.shape(1)};
    const products::Rows<T> w{weights.data(), weights.shape(0), weights.shape(1)};
    if (x.width != w.width)
        throw std::invalid_argument("rows have " + std::to_string(x.width) +
                                    " columns but weights have " + std::to_string(w.width));
    if (out.shape(0) != x.count || out.shape(1) != w.count)
        throw std::invalid_argument(
            "out must be " + std::to_string(x.count) + " rows by " + std::to_string(w.count) +
            " labels, not " + std::to_string(out.shape(0)) + " by " + std::to_string(out.shape(1)));
    without_gil([&] { products::multiply_all(x, w, out.data()); });
}

}  // namespace

void bind_products(nb::module_& m) {
    m.def(
        "products",
        [](In2<float> rows, std::variant<In2<float>, In2<Half>> weights, InOut2<float> out) {
            std::visit([&](const auto& given) { fill_products(rows, given, out); }, weights);
        },
        nb::kw_only(), "rows"_a, "weights"_a, "out"_a,
        "Fill `out` with X W^T; a cell does not depend on the rows and labels beside it.");
}

}  // namespace megalabel::bind
