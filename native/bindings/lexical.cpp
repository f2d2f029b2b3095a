// Python's view of the labels that texts name: lexical.hpp.
#include "lexical.hpp"

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

struct RowsOfNumbers {
    In<std::int64_t> starts;
    In<std::int32_t> items;

    lexical::Pieces view() const { return {span(starts), span(items)}; }
};

struct NameIndex {
    RowsOfNumbers names, words;
    In<std::int32_t> owners, shared;
    RowsOfNumbers postings;
    In<float> idf;
    RowsOfNumbers broader, narrower, related, collections;
    double usual_words, share;
    std::size_t looked_at, candidates;

    lexical::Names view() const {
        return {names.view(),
                words.view(),
                span(owners),
                span(shared),
                postings.view(),
                span(idf),
                {broader.view(), narrower.view(), related.view()},
                collections.view(),
                usual_words,
                share,
                looked_at,
                candidates};
    }
};

}  // namespace

void bind_lexical(nb::module_& m) {
    nb::enum_<lexical::Feature> feature(m, "LexicalFeature", "The columns of `find_names`.");
    for (std::size_t i = 0; i < lexical::kFeatures; ++i)
        feature.value(lexical::kFeatureNames[i], static_cast<lexical::Feature>(i));
    bind_struct<RowsOfNumbers>(m, "RowsOfNumbers", "Where rows start, and the numbers of all rows.",
                               std::pair{"starts", &RowsOfNumbers::starts},
                               std::pair{"items", &RowsOfNumbers::items});
    bind_struct<NameIndex>(
        m, "NameIndex", "The names of labels, the index of them, and links of labels.",
        std::pair{"names", &NameIndex::names}, std::pair{"words", &NameIndex::words},
        std::pair{"owners", &NameIndex::owners}, std::pair{"shared", &NameIndex::shared},
        std::pair{"postings", &NameIndex::postings}, std::pair{"idf", &NameIndex::idf},
        std::pair{"broader", &NameIndex::broader}, std::pair{"narrower", &NameIndex::narrower},
        std::pair{"related", &NameIndex::related},
        std::pair{"collections", &NameIndex::collections},
        std::pair{"usual_words", &NameIndex::usual_words}, std::pair{"share", &NameIndex::share},
        std::pair{"looked_at", &NameIndex::looked_at},
        std::pair{"candidates", &NameIndex::candidates});
    m.def(
        "index_names",
        [](const RowsOfNumbers& words, In<std::int32_t> owners, In<float> idf, double share) {
            auto [index, shared] = without_gil([&] {
                return std::pair(lexical::index_names(words.view(), span(idf), share),
                                 lexical::sharing(words.view(), span(owners), span(idf)));
            });
            return std::tuple(to_numpy(std::move(index.starts)), to_numpy(std::move(index.names)),
                              to_numpy(std::move(shared)));
        },
        "words"_a, nb::kw_only(), "owners"_a, "idf"_a, "share"_a);
    m.def(
        "find_names",
        [](const NameIndex& index, const RowsOfNumbers& texts) {
            auto found =
                without_gil([&] { return lexical::find_names(index.view(), texts.view()); });
            const std::size_t pairs = found.labels.size();
            return std::tuple(to_numpy(std::move(found.starts)), to_numpy(std::move(found.labels)),
                              to_numpy(std::move(found.names)), to_numpy(std::move(found.rarest)),
                              to_numpy(std::move(found.features), pairs, lexical::kFeatures));
        },
        "index"_a, "texts"_a);
    m.def(
        "ranked_names",
        [](const RowsOfNumbers& found, In<float> scores, In<std::int32_t> others,
           In<float> other_scores, std::size_t labels, std::size_t k) {
            const std::size_t rows = found.view().size();
            auto ranked = without_gil([&] {
                return lexical::ranked_names(found.view(), span(scores), span(others),
                                             span(other_scores), labels, k);
            });
            return to_numpy(std::move(ranked), rows, k);
        },
        "found"_a, nb::kw_only(), "scores"_a, "others"_a, "other_scores"_a, "labels"_a, "k"_a);
}

}  // namespace megalabel::bind
