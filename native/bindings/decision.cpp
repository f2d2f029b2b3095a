// Python's view of decisions (decision.hpp, capped.hpp).
#include "decision.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <type_traits>

#include "arrays.hpp"
#include "capped.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

using bind::to_numpy;  // else hidden by those below

struct Objective {
    std::optional<decision::MacroMetric> metric;  // none: one that is written in Python
    double beta, linear, scale, rows;
};

decision::Shortlist shortlist_of(const Ranked& ranked) {
    return {span(ranked.ids), span(ranked.scores), ranked.rows(), ranked.width(),
            static_cast<std::size_t>(ranked.labels)};
}
// Labels come as rows of float64, or of other numbers in as many bytes.
template <class Label>
std::span<Label> labels_of(const InOut2<double>& labels) {
    if (labels.shape(1) * sizeof(double) != sizeof(Label))
        throw std::invalid_argument("labels have another number of columns");
    return {reinterpret_cast<Label*>(labels.data()), labels.shape(0)};
}
decision::Choices choices_of(const InOut2<std::uint8_t>& chosen) {
    return {span(chosen), chosen.shape(1)};
}
Out2<std::uint8_t> to_numpy(std::vector<std::uint8_t>&& bits, const Ranked& ranked) {
    return to_numpy(std::move(bits), ranked.rows(), decision::Choices::bytes(ranked.width()));
}

// A metric written in Python: called with arrays (4, candidates) of tp, fp, fn, tn in parts of the
// rows. Gains come of one call with both outcomes of each candidate side by side and their labels,
// slopes of one with the entries and the direction in which giving moves them.
struct CustomMetric {
    static constexpr bool exact = true;
    nb::object function;
    const decision::Shortlist& shortlist;
    decision::Objective objective;
    double rows;

    static void put(decision::Label& label, double probability, int sign) {
        decision::MetricGains<decision::Precision>::put(label, probability, sign);
    }
    static void entries(std::vector<double>& out, std::size_t width, std::size_t column,
                        double hits, double given, double positives, double rows) {
        // What is left of sums may miss 0 by its last bits, which a ratio would make much of.
        hits = given > 0 ? std::clamp(hits, 0.0, given) : 0;
        const double values[] = {hits, given - hits, positives - hits,
                                 rows - given - positives + hits};
        for (std::size_t e = 0; e < 4; ++e)
            out[e * width + column] = std::max(0.0, values[e]) / rows;
    }
    template <class... Arguments>
    void call(decision::Candidates& c, Arguments&&... arguments) const {
        const auto result = nb::cast<In<double>>(function(std::forward<Arguments>(arguments)...));
        if (result.shape(0) != c.size)
            throw std::invalid_argument("the metric gave another number of values than of labels");
        std::copy_n(result.data(), c.size, c.gains.begin());
    }
    void operator()(decision::Candidates& c) const {
        const std::size_t size = c.size;
        std::vector<double> both(8 * size);
        for (std::size_t i = 0; i < size; ++i) {
            entries(both, 2 * size, i, c.hits[i] + c.probabilities[i], c.given[i] + 1,
                    c.positives[i], rows);
            entries(both, 2 * size, size + i, c.hits[i], c.given[i], c.positives[i], rows);
        }
        std::vector<std::int32_t> ids(size);
        for (std::size_t i = 0; i < size; ++i)
            ids[i] = static_cast<std::int32_t>(shortlist.id(c.row, c.places[i]));
        call(c, to_numpy(std::move(both), 4, 2 * size), to_numpy(std::move(ids)));
        for (std::size_t i = 0; i < size; ++i)
            c.gains[i] = objective.linear * c.probabilities[i] + objective.scale * c.gains[i];
    }
    void operator()(decision::Candidates& c, double seen) const {
        const std::size_t size = c.size;
        std::vector<double> at(4 * size), direction(4 * size);
        for (std::size_t i = 0; i < size; ++i) {
            const double p = c.probabilities[i];
            entries(at, size, i, c.hits[i], c.given[i], c.positives[i], seen);
            const double moves[] = {p, 1 - p, -p, p - 1};
            for (std::size_t e = 0; e < 4; ++e) direction[e * size + i] = moves[e];
        }
        call(c, to_numpy(std::move(at), 4, size), to_numpy(std::move(direction), 4, size));
        for (std::size_t i = 0; i < size; ++i)
            c.gains[i] = objective.linear * c.probabilities[i] + objective.scale * c.gains[i];
    }
};

// Calls use(gains) for a metric; the GIL is kept only for one that is written in Python.
template <class Use>
void with_gains(const Objective& wanted, const nb::object& custom,
                const decision::Shortlist& shortlist, Use&& use) {
    const decision::Objective objective{wanted.linear, wanted.scale};
    if (!custom.is_none()) return use(CustomMetric{custom, shortlist, objective, wanted.rows});
    nb::gil_scoped_release release;
    if (wanted.metric == decision::MacroMetric::coverage)
        return use(decision::CoverageGains{objective});
    decision::with_metric(wanted.metric, wanted.beta, [&](auto metric) {
        use(decision::MetricGains<decltype(metric)>{metric, objective, wanted.rows});
    });
}

template <class Sum>
void add_decision_sums(const Ranked& ranked, InOut2<std::uint8_t> chosen, InOut2<double> sums) {
    nb::gil_scoped_release release;
    decision::add_sums<float, Sum>(shortlist_of(ranked), span(ranked.scores), choices_of(chosen),
                                   labels_of<Sum>(sums));
}

template <class Value>
void add_decision_rule_sums(const Ranked& ranked, In2<Value> values, In<float> weights,
                            In<float> offsets, std::size_t k, double floor, InOut2<double> sums) {
    nb::gil_scoped_release release;
    decision::add_rule_sums<Value>(shortlist_of(ranked), span(values), span(weights), span(offsets),
                                   {k, floor}, labels_of<decision::Sums>(sums));
}

template <class Value>
void bind_rule_sums(nb::module_& m) {
    m.def("decision_rule_sums", &add_decision_rule_sums<Value>, "ranked"_a,
          nb::arg("values").noconvert(), nb::kw_only(), "weights"_a, "offsets"_a, "k"_a, "floor"_a,
          "sums"_a);
}

}  // namespace

void bind_decision(nb::module_& m) {
    using decision::MacroMetric;
    nb::enum_<MacroMetric>(m, "MacroMetric", "The macro metrics that the native core knows.")
        .value("precision", MacroMetric::precision)
        .value("recall", MacroMetric::recall)
        .value("f_beta", MacroMetric::f_beta)
        .value("jaccard", MacroMetric::jaccard)
        .value("balanced_accuracy", MacroMetric::balanced_accuracy)
        .value("g_mean", MacroMetric::g_mean)
        .value("h_mean", MacroMetric::h_mean)
        .value("fowlkes_mallows", MacroMetric::fowlkes_mallows)
        .value("coverage", MacroMetric::coverage);
    bind_struct<Objective>(
        m, "Objective",
        "`linear` times the probability plus `scale` times the metric of so many rows.",
        std::pair{"metric", &Objective::metric}, std::pair{"beta", &Objective::beta},
        std::pair{"linear", &Objective::linear}, std::pair{"scale", &Objective::scale},
        std::pair{"rows", &Objective::rows});
    m.def(
        "decision_ascend",
        [](const Ranked& ranked, InOut2<double> labels, In<double> positives, In<std::int32_t> caps,
           InOut2<std::uint8_t> chosen, In<std::int32_t> order, std::size_t k, double floor,
           const Objective& objective, nb::object custom) {
            const auto shortlist = shortlist_of(ranked);
            const decision::Labels known{labels_of<decision::Label>(labels), span(positives),
                                         span(caps)};
            with_gains(objective, custom, shortlist, [&](auto gains) {
                decision::ascend(shortlist, span(order), known, choices_of(chosen), {k, floor},
                                 gains);
            });
        },
        "ranked"_a, nb::kw_only(), "labels"_a, "positives"_a, "caps"_a, "chosen"_a, "order"_a,
        "k"_a, "floor"_a, "objective"_a, "custom"_a.none());
    m.def(
        "decision_gains",
        [](const Ranked& ranked, InOut2<double> labels, In<double> positives, In<std::int32_t> caps,
           InOut2<std::uint8_t> chosen, const Objective& objective, nb::object custom) {
            const auto shortlist = shortlist_of(ranked);
            const decision::Labels known{labels_of<decision::Label>(labels), span(positives),
                                         span(caps)};
            std::vector<float> out;
            with_gains(objective, custom, shortlist, [&](auto gains) {
                constexpr bool native = !std::is_same_v<decltype(gains), CustomMetric>;
                out = decision::all_gains(shortlist, known, choices_of(chosen), gains, native);
            });
            return to_numpy(std::move(out), ranked.rows(), ranked.width());
        },
        "ranked"_a, nb::kw_only(), "labels"_a, "positives"_a, "caps"_a, "chosen"_a, "objective"_a,
        "custom"_a.none());
    m.def(
        "decision_assign",
        [](const Ranked& ranked, In<float> weights, In<float> offsets, In<std::int32_t> caps,
           std::size_t k, double floor) {
            auto assigned = without_gil([&] {
                return decision::assign(shortlist_of(ranked), span(weights), span(offsets),
                                        span(caps), {k, floor});
            });
            return std::tuple(to_numpy(std::move(assigned.bits), ranked),
                              to_numpy(std::move(assigned.costs)));
        },
        "ranked"_a, nb::kw_only(), "weights"_a, "offsets"_a, "caps"_a, "k"_a, "floor"_a);
    m.def("decision_sums", &add_decision_sums<decision::Sums>, "ranked"_a, nb::kw_only(),
          "chosen"_a, "sums"_a);
    m.def("decision_recount", &add_decision_sums<decision::Label>, "ranked"_a, nb::kw_only(),
          "chosen"_a, "labels"_a);
    bind_rule_sums<float>(m);
    bind_rule_sums<std::uint8_t>(m);
    m.def(
        "decision_choose",
        [](const Ranked& ranked, In2<float> weights, In2<float> offsets, In<double> shares,
           std::size_t k, double floor, std::uint64_t seed) {
            const decision::Mixture mixture{span(weights), span(offsets), span(shares)};
            auto chosen = without_gil(
                [&] { return decision::choose(shortlist_of(ranked), mixture, {k, floor}, seed); });
            return to_numpy(std::move(chosen), ranked);
        },
        "ranked"_a, nb::kw_only(), "weights"_a, "offsets"_a, "shares"_a, "k"_a, "floor"_a,
        "seed"_a);
    m.def(
        "decision_follow",
        [](const Ranked& ranked, const Truth& given, InOut2<double> labels, std::size_t k,
           double floor, const Objective& wanted, nb::object custom) {
            const auto shortlist = shortlist_of(ranked);
            const auto truth = given.view();
            if (truth.indptr.empty()) throw std::invalid_argument("row pointers are empty");
            const decision::Objective objective{wanted.linear, wanted.scale};
            std::vector<std::uint8_t> chosen;
            const auto follow = [&](auto slopes) {
                chosen =
                    decision::follow(shortlist, truth, labels_of<decision::StreamLabel>(labels),
                                     {k, floor}, wanted.rows, slopes);
            };
            if (custom.is_none()) {
                nb::gil_scoped_release release;
                decision::with_metric(wanted.metric, wanted.beta, [&](auto metric) {
                    follow(decision::MetricSlopes<decltype(metric)>{metric, objective});
                });
            } else {
                follow(CustomMetric{custom, shortlist, objective, wanted.rows});
            }
            return to_numpy(std::move(chosen), ranked);
        },
        "ranked"_a, nb::kw_only(), "truth"_a, "labels"_a, "k"_a, "floor"_a, "objective"_a,
        "custom"_a.none());
}

}  // namespace megalabel::bind
