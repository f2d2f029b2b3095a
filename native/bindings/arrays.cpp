// Python's view of the structs of arrays that several topics share: arrays.hpp.
#include "arrays.hpp"

#include "topics.hpp"

namespace megalabel::bind {

void bind_arrays(nb::module_& m) {
    bind_struct<SparseRows>(
        m, "SparseRows", "A CSR matrix: where rows start, their columns and values, and the width.",
        std::pair{"starts", &SparseRows::starts}, std::pair{"columns", &SparseRows::columns},
        std::pair{"values", &SparseRows::values}, std::pair{"width", &SparseRows::width});
    bind_struct<Ranked>(m, "Ranked",
                        "The best labels of each row, their scores, and how many "
                        "labels there are.",
                        std::pair{"ids", &Ranked::ids}, std::pair{"scores", &Ranked::scores},
                        std::pair{"labels", &Ranked::labels});
    bind_struct<Truth>(m, "Truth",
                       "A CSR matrix of labels, of which those that are positive count.",
                       std::pair{"indptr", &Truth::indptr}, std::pair{"indices", &Truth::indices},
                       std::pair{"positive", &Truth::positive});
    m.def(
        "all_finite",
        [](In<float> values) {
            return without_gil([&] { return megalabel::all_finite(span(values)); });
        },
        "values"_a);
}

}  // namespace megalabel::bind
