// Python's view of words in texts and names: matching.hpp.
#include "matching.hpp"

#include "matching_arrays.hpp"
#include "text_arrays.hpp"
#include "topics.hpp"

namespace megalabel::bind {

void bind_matching(nb::module_& m) {
    nb::enum_<matching::Feature> feature(m, "MatchFeature", "The columns of `match_features`.");
    for (std::size_t i = 0; i < matching::kFeatures; ++i)
        feature.value(matching::kFeatureNames[i], static_cast<matching::Feature>(i));
    bind_struct<Names>(
        m, "Names", "The words of labels' names, by number, and what is known of words.",
        std::pair{"name_starts", &Names::name_starts},
        std::pair{"word_starts", &Names::word_starts}, std::pair{"words", &Names::words},
        std::pair{"stems", &Names::stems}, std::pair{"word_idf", &Names::word_idf},
        std::pair{"stem_idf", &Names::stem_idf}, std::pair{"unknown_idf", &Names::unknown_idf});
    m.def(
        "find_words",
        [](TextArrays texts, const Analysis& how, const Lookup& words, const Lookup& stems,
           const Stems& inflected, std::size_t stem_length) {
            auto rows = without_gil([&] {
                return matching::find_words(strings_of(texts), how.view(), how.tables(),
                                            words.view(),
                                            {stems.view(), inflected.view(), stem_length});
            });
            return std::tuple(to_numpy(std::move(rows.starts)), to_numpy(std::move(rows.ids)));
        },
        "texts"_a, "how"_a, nb::kw_only(), "words"_a, "stems"_a, "inflected"_a, "stem_length"_a);
    m.def(
        "match_features",
        [](const Names& names, In<std::int64_t> starts, In<std::int32_t> ids,
           In2<std::int32_t> candidates) {
            return to_numpy(without_gil([&] {
                return matching::match_features(names.view(), span(starts), span(ids),
                                                span(candidates), candidates.shape(0),
                                                candidates.shape(1));
            }));
        },
        "names"_a, nb::kw_only(), "starts"_a, "ids"_a, "candidates"_a);
}

}  // namespace megalabel::bind
