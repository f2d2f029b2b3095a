// Python's view of mixes (mix.hpp).
#pragma once

#include "bind_arrays.hpp"
#include "mix.hpp"

namespace megalabel::bind {

template <class T>
using In3 = nb::ndarray<nb::numpy, const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

inline void bind_mix(nb::module_& m) {
    m.attr("MIX_OF_MEMBER") = mix::OF_MEMBER;
    m.attr("MIX_SHARED") = static_cast<std::size_t>(mix::SHARED);
    m.def(
        "mix_candidates",
        [](In3<std::int32_t> ids, In3<float> probabilities, In<std::int64_t> counts,
           std::size_t shortlist) {
            const std::size_t rows = ids.shape(1);
            const mix::Members members{span(ids), span(probabilities), ids.shape(0),
                                       rows,      ids.shape(2),        counts.size()};
            auto found =
                without_gil([&] { return mix::candidates(members, shortlist, span(counts)); });
            const std::size_t width = mix::width(members.members);
            return std::tuple(to_numpy(std::move(found.ids), rows, found.listed),
                              to_numpy(std::move(found.said), rows * found.listed, width),
                              to_numpy(std::move(found.others), rows, found.rest));
        },
        nb::kw_only(), "ids"_a, "probabilities"_a, "counts"_a, "shortlist"_a,
        "The labels that members list for each row, what is said of each, and labels further "
        "down.");
    m.def(
        "mix_ordered",
        [](In2<std::int32_t> ids, In2<float> scores, In2<std::int32_t> others, std::size_t labels,
           std::size_t k) {
            const std::size_t rows = ids.shape(0);
            if (scores.shape(0) != rows || others.shape(0) != rows)
                throw std::invalid_argument("candidates and scores differ in rows");
            auto ranked = without_gil([&] {
                return mix::ordered(span(ids), span(scores), span(others), rows, labels, k);
            });
            return to_numpy(std::move(ranked), rows, k);
        },
        nb::kw_only(), "ids"_a, "scores"_a, "others"_a, "labels"_a, "k"_a,
        "The k best labels of each row: listed ones by their scores, then the others.");
}

}  // namespace megalabel::bind
