// Python's view of sparse text formats: sparse_text.hpp.
#include "sparse_text.hpp"

#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "topics.hpp"

namespace megalabel::bind {

void bind_sparse_text(nb::module_& m) {
    m.def(
        "parse_sparse_text",
        [](In<std::uint8_t> text, bool svmlight, std::int64_t features, std::int64_t labels,
           std::int64_t first_line, std::size_t keep, std::size_t piece_bytes) {
            for (auto limit : {features, labels})
                if (limit < 0 || limit > std::numeric_limits<std::int32_t>::max())
                    throw std::invalid_argument("numbers of features and labels are 31 bits wide");
            auto rows = without_gil([&] {
                return sparse_text::parse(
                    {reinterpret_cast<const char*>(text.data()), text.size()},
                    {svmlight, features, labels, first_line, keep, piece_bytes});
            });
            std::vector<std::tuple<std::int64_t, std::int64_t, nb::bytes>> problems;
            for (auto& p : rows.problems)
                problems.emplace_back(p.line, p.column,
                                      nb::bytes(p.message.data(), p.message.size()));
            return std::tuple(
                to_numpy(std::move(rows.target_indptr)), to_numpy(std::move(rows.target_indices)),
                to_numpy(std::move(rows.feature_indptr)), to_numpy(std::move(rows.feature_indices)),
                to_numpy(std::move(rows.values)), rows.bad, std::move(problems));
        },
        "text"_a, nb::kw_only(), "svmlight"_a, "features"_a, "labels"_a, "first_line"_a, "keep"_a,
        "piece_bytes"_a = sparse_text::Options{}.piece_bytes);
    m.def(
        "format_sparse_text",
        [](In<std::int64_t> target_indptr, In<std::int32_t> target_indices,
           In<std::int64_t> feature_indptr, In<std::int32_t> feature_indices, In<float> values,
           std::size_t begin, std::size_t end) {
            const auto text = without_gil([&] {
                return sparse_text::format({span(target_indptr), span(target_indices)},
                                           {span(feature_indptr), span(feature_indices)},
                                           span(values), begin, end);
            });
            return nb::bytes(text.data(), text.size());
        },
        nb::kw_only(), "target_indptr"_a, "target_indices"_a, "feature_indptr"_a,
        "feature_indices"_a, "values"_a, "begin"_a, "end"_a);
}

}  // namespace megalabel::bind
