// Python's view of mixes (mix.hpp) and of what makes one margin of what is said (combining.hpp).
#include "mix.hpp"

#include <nanobind/stl/variant.h>

#include <optional>
#include <stdexcept>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "boosting_arrays.hpp"
#include "calibration_arrays.hpp"
#include "combining.hpp"
#include "matching_arrays.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

struct Means {
    In<float> edges;
    In2<double> weights;
    In<double> unlisted;
};

struct Stack {
    std::size_t members;
    In<double> weights, means, scales;
};

using Combiner = std::variant<BoostedTrees, Means, Stack>;

combining::Combiner view(const BoostedTrees& trees) { return &trees.forest; }
combining::Combiner view(const Means& means) {
    return combining::Means{span(means.edges), span(means.weights), span(means.unlisted)};
}
combining::Combiner view(const Stack& stack) {
    return combining::Stack{stack.members, span(stack.weights), span(stack.means),
                            span(stack.scales)};
}
combining::Combiner view(const Combiner& combiner) {
    return std::visit([](const auto& one) { return view(one); }, combiner);
}

struct Mixing {
    In<std::int64_t> counts;
    std::size_t shortlist;
    std::vector<std::optional<Joint>> calibrations;
    std::vector<In<std::int32_t>> numbers;
    std::optional<Names> names;
    Combiner combiner;
};

}  // namespace

void bind_mix(nb::module_& m) {
    m.attr("MIX_OF_MEMBER") = mix::OF_MEMBER;
    m.attr("MIX_SHARED") = static_cast<std::size_t>(mix::SHARED);
    m.attr("MIX_TIE") = mix::tie;
    bind_struct<Means>(m, "Means", "Weights of members by label frequency.",
                       std::pair{"edges", &Means::edges}, std::pair{"weights", &Means::weights},
                       std::pair{"unlisted", &Means::unlisted});
    bind_struct<Stack>(m, "Stack", "A logistic regression on what members say.",
                       std::pair{"members", &Stack::members}, std::pair{"weights", &Stack::weights},
                       std::pair{"means", &Stack::means}, std::pair{"scales", &Stack::scales});
    bind_struct<Mixing>(
        m, "Mixing",
        "What a mix knows beside its members.\n\nOf each of these it has the calibration, or None, "
        "and the numbers of its labels.",
        std::pair{"counts", &Mixing::counts}, std::pair{"shortlist", &Mixing::shortlist},
        std::pair{"calibrations", &Mixing::calibrations}, std::pair{"numbers", &Mixing::numbers},
        std::pair{"names", &Mixing::names}, std::pair{"combiner", &Mixing::combiner});
    m.def(
        "combined_margins",
        [](const Combiner& combiner, In2<float> said) {
            std::vector<float> margins(said.shape(0));
            without_gil([&] {
                combining::margins_of(view(combiner), {span(said), said.shape(0), said.shape(1)},
                                      margins);
            });
            return to_numpy(std::move(margins));
        },
        "combiner"_a, "said"_a, "One margin for each row of what is said.");
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
    m.def(
        "mix_rank",
        [](const Mixing& mixing, const std::vector<In2<std::int32_t>>& ids,
           const std::vector<In2<float>>& scores, const std::vector<std::size_t>& labels,
           In<std::int64_t> starts, In<std::int32_t> words, std::size_t depth, std::size_t k) {
            const std::size_t members = ids.size();
            if (members == 0 || scores.size() != members || labels.size() != members ||
                mixing.calibrations.size() != members || mixing.numbers.size() != members)
                throw std::invalid_argument("there must be a ranking of each member");
            const std::size_t rows = ids[0].shape(0);
            auto ranked = without_gil([&] {
                std::vector<std::optional<joint::Calibration>> calibrations(members);
                std::vector<mix::Ranking> rankings;
                for (std::size_t i = 0; i < members; ++i) {
                    if (mixing.calibrations[i]) calibrations[i] = mixing.calibrations[i]->view();
                    rankings.push_back({span(ids[i]), span(scores[i]), ids[i].shape(1), labels[i],
                                        calibrations[i] ? &*calibrations[i] : nullptr,
                                        span(mixing.numbers[i])});
                }
                std::optional<matching::Names> names;
                if (mixing.names) names = mixing.names->view();
                const mix::Mixing known{span(mixing.counts), mixing.shortlist,
                                        names ? &*names : nullptr, view(mixing.combiner)};
                return mix::rank(known, rankings, {span(starts), span(words)}, rows, depth, k);
            });
            return to_numpy(std::move(ranked), rows, k);
        },
        "mixing"_a, nb::kw_only(), "ids"_a, "scores"_a, "labels"_a, "starts"_a, "words"_a,
        "depth"_a, "k"_a,
        "The k best labels of each row, of the rankings of all members and the words of texts.");
}

}  // namespace megalabel::bind
