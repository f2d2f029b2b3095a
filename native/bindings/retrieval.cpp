// Python's view of nearest neighbours: inverted_index.hpp and voting.hpp.
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "inverted_index.hpp"
#include "topics.hpp"
#include "voting.hpp"

namespace megalabel::bind {

namespace {

struct Postings {
    In<std::int64_t> starts;
    In<std::int32_t> documents;
    In<float> weights;
    In<float> largest;
    In<std::uint8_t> common;
    double norm;
};

}  // namespace

void bind_retrieval(nb::module_& m) {
    m.attr("TIERS") = CommonTerms::tiers;
    bind_struct<Postings>(
        m, "Postings", "An inverted index: the documents of each term, and bounds.",
        std::pair{"starts", &Postings::starts}, std::pair{"documents", &Postings::documents},
        std::pair{"weights", &Postings::weights}, std::pair{"largest", &Postings::largest},
        std::pair{"common", &Postings::common}, std::pair{"norm", &Postings::norm});
    m.def(
        "build_postings",
        [](const SparseRows& rows) {
            auto postings = without_gil([&] { return build_postings(rows.view()); });
            return std::tuple(
                to_numpy(std::move(postings.starts)), to_numpy(std::move(postings.documents)),
                to_numpy(std::move(postings.weights)), to_numpy(std::move(postings.largest)),
                to_numpy(std::move(postings.common)), postings.norm);
        },
        "rows"_a);
    m.def(
        "search_postings",
        [](const Postings& postings, const SparseRows& rows, const SparseRows& queries,
           std::size_t k, In<std::int64_t> left_out, bool prune) {
            const megalabel::SparseRows by_term{span(postings.starts), span(postings.documents),
                                                span(postings.weights), rows.size()};
            const auto documents = rows.view(), asked = queries.view();
            auto ranked = without_gil([&] {
                return Search(by_term, span(postings.largest), span(postings.common), documents,
                              postings.norm, asked, k, span(left_out), prune)
                    .run();
            });
            return to_numpy(std::move(ranked), asked.size(), k);
        },
        nb::kw_only(), "postings"_a, "rows"_a, "queries"_a, "k"_a, "left_out"_a, "prune"_a);
    m.def(
        "rescore_dense",
        [](In2<float> queries, In2<float> documents, In<std::int64_t> starts,
           In<std::int32_t> candidates, std::size_t k) {
            if (queries.shape(1) != documents.shape(1))
                throw std::invalid_argument("queries and documents differ in width");
            std::vector<float> unused(candidates.size());  // candidates have no values
            megalabel::SparseRows rows{span(starts), span(candidates), unused, documents.shape(0)};
            auto ranked = without_gil([&] {
                return rescore_dense(span(queries), span(documents), queries.shape(1), rows, k);
            });
            return to_numpy(std::move(ranked), rows.size(), k);
        },
        nb::kw_only(), "queries"_a, "documents"_a, "starts"_a, "candidates"_a, "k"_a);
    m.def(
        "vote",
        [](In2<std::int32_t> ids, In2<float> similarities, double power, const SparseRows& labels,
           In<float> prior, In<std::int32_t> by_prior, In<std::uint8_t> allowed, std::size_t k) {
            const Neighbours neighbours{span(ids), span(similarities), ids.shape(0), ids.shape(1)};
            auto ranked = without_gil([&] {
                return vote(neighbours, power, labels.view(), span(prior), span(by_prior),
                            span(allowed), k);
            });
            return to_numpy(std::move(ranked), neighbours.n, k);
        },
        nb::kw_only(), "ids"_a, "similarities"_a, "power"_a, "labels"_a, "prior"_a, "by_prior"_a,
        "allowed"_a, "k"_a);
}

}  // namespace megalabel::bind
