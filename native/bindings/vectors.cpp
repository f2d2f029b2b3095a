// Python's view of dense vectors in lists: vector_index.hpp.
#include <nanobind/stl/variant.h>

#include <stdexcept>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "float16.hpp"
#include "products.hpp"
#include "topics.hpp"
#include "vector_index.hpp"

namespace megalabel::bind {

namespace {

using VectorsIn = std::variant<In2<float>, In2<Half>>;

struct VectorSegment {
    VectorsIn vectors;
    In<std::int32_t> keys;
    In<std::int64_t> starts;
};

template <class T>
products::Rows<T> rows_of(const In2<T>& array) {
    return {array.data(), array.shape(0), array.shape(1)};
}

// The segments of an index, which hold numbers of one type.
template <class T>
std::vector<vectors::Segment<T>> segments_of(const std::vector<VectorSegment>& segments) {
    std::vector<vectors::Segment<T>> views;
    for (const VectorSegment& segment : segments) {
        const auto* rows = std::get_if<In2<T>>(&segment.vectors);
        if (rows == nullptr)
            throw std::invalid_argument("the vectors of an index differ in their type");
        views.push_back({rows_of(*rows), span(segment.keys), span(segment.starts)});
    }
    return views;
}

// Calls use<T>(), T being the type of the numbers of an index.
template <class Use>
auto with_type(const std::vector<VectorSegment>& segments, Use&& use) {
    if (!segments.empty() && std::holds_alternative<In2<Half>>(segments.front().vectors))
        return use.template operator()<Half>();
    return use.template operator()<float>();
}

}  // namespace

void bind_vectors(nb::module_& m) {
    m.attr("VECTOR_UNIT") = vectors::unit;
    bind_struct<VectorSegment>(
        m, "VectorSegment", "Vectors in lists, their keys, and where the lists start.",
        std::pair{"vectors", &VectorSegment::vectors}, std::pair{"keys", &VectorSegment::keys},
        std::pair{"starts", &VectorSegment::starts});
    m.def(
        "nearest_centres",
        [](const VectorsIn& vectors, In2<float> centres) {
            return std::visit(
                [&](const auto& given) {
                    return to_numpy(without_gil([&] {
                        return vectors::nearest_centres(rows_of(given), rows_of(centres));
                    }));
                },
                vectors);
        },
        "vectors"_a, "centres"_a);
    m.def(
        "count_allowed",
        [](const std::vector<VectorSegment>& segments, std::size_t lists,
           In<std::uint8_t> allowed) {
            return with_type(segments, [&]<class T>() {
                const auto views = segments_of<T>(segments);
                return to_numpy(without_gil(
                    [&] { return vectors::count_allowed(views, lists, {span(allowed)}); }));
            });
        },
        "segments"_a, "lists"_a, "allowed"_a);
    m.def(
        "search_vectors",
        [](const std::vector<VectorSegment>& segments, In2<float> centres, In2<float> queries,
           In<std::uint8_t> allowed, In<std::int64_t> counts, std::size_t probes,
           std::size_t candidates, std::size_t k) {
            return with_type(segments, [&]<class T>() {
                const auto views = segments_of<T>(segments);
                auto ranked = without_gil([&] {
                    return vectors::Search<T>(views, rows_of(centres), rows_of(queries),
                                              {span(allowed)}, span(counts), {probes, candidates},
                                              k)
                        .run();
                });
                return to_numpy(std::move(ranked), queries.shape(0), k);
            });
        },
        nb::kw_only(), "segments"_a, "centres"_a, "queries"_a, "allowed"_a, "counts"_a, "probes"_a,
        "candidates"_a, "k"_a);
}

}  // namespace megalabel::bind
