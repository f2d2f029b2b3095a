// Label sets for metrics that are averages over labels: block coordinate ascent on shortlisted
// probabilities, mixtures of weighted top-k rules, and the online rule for streams.
//
// A metric is a function of a label's confusion entries. The entries are kept as sums in float64:
// of the probabilities (or truths) of the texts that were given the label, of those texts, and of
// the probabilities of all texts; all metrics here are ratios, for which sums do as well as means.
// Thread-safe: no state is kept but in the arrays that the caller hands in.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "metrics.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel::decision {

// The candidates of each row with their probabilities; numbers outside [0, labels) are padding.
struct Shortlist {
    std::span<const std::int32_t> ids;
    std::span<const float> probabilities;
    std::size_t rows, width, labels;

    void check() const {
        if (ids.size() != rows * width || probabilities.size() != ids.size())
            throw std::invalid_argument("ids and probabilities differ in shape");
    }

    // A negative number becomes a large one, and is padding too.
    std::uint32_t id(std::size_t row, std::size_t j) const {
        return static_cast<std::uint32_t>(ids[row * width + j]);
    }
    float probability(std::size_t row, std::size_t j) const {
        return probabilities[row * width + j];
    }

    // Row by row in a random order, memory is what takes the time: ask for it in good time.
    void prefetch(std::size_t row) const {
        constexpr std::size_t line = 64 / sizeof(float);
        for (std::size_t j = 0; j < width; j += line) {
            __builtin_prefetch(&ids[row * width + j]);
            __builtin_prefetch(&probabilities[row * width + j]);
        }
    }
};

// Which candidates are chosen: a bit each, lowest first, every row from a byte of its own.
struct Choices {
    std::span<std::uint8_t> bits;
    std::size_t stride;  // bytes a row

    static std::size_t bytes(std::size_t width) { return (width + 7) / 8; }
    void check(const Shortlist& shortlist) const {
        if (stride != bytes(shortlist.width) || bits.size() != shortlist.rows * stride)
            throw std::invalid_argument("choices differ from the shortlist in shape");
        if (const auto spare = static_cast<unsigned>(8 * stride - shortlist.width); spare > 0)
            for (std::size_t last = stride - 1; last < bits.size(); last += stride)
                if (bits[last] >> (8 - spare))
                    throw std::invalid_argument("choices are outside the shortlist");
    }
    std::span<std::uint8_t> of(std::size_t row) const { return bits.subspan(row * stride, stride); }
    bool hold(std::size_t row, std::size_t j) const {
        return bits[row * stride + j / 8] >> (j % 8) & 1;
    }
    void flip(std::size_t row, std::size_t j) const {
        bits[row * stride + j / 8] ^= static_cast<std::uint8_t>(1u << (j % 8));
    }
    // Calls use(j) for each that is held, in order.
    template <class Use>
    void each(std::size_t row, Use&& use) const {
        for (std::size_t byte = 0; byte < stride; ++byte)
            for (unsigned rest = bits[row * stride + byte]; rest; rest &= rest - 1)
                use(8 * byte + static_cast<std::size_t>(std::countr_zero(rest)));
    }
};

// What the decisions on a set of texts mean for one label; laid out as in a record array. Where
// labels are many, fetching them is what takes the time, so it is no larger than it must be.
struct Label {
    double hits;         // sum of the probabilities of the texts given the label
    std::int32_t given;  // how many those are
    float positives;     // sum of the probabilities of all texts, rounded
};
static_assert(sizeof(Label) == 16);

// Counts a text more or less that is given a label.
inline void count(std::int32_t& given, int sign) {
    if (__builtin_add_overflow(given, sign, &given)) [[unlikely]]
        throw std::invalid_argument("a label is given to more texts than 31 bits can count");
}
inline void count(double& given, int sign) { given += sign; }

// The same for a stream, which has no end; laid out as a row of a float64 (labels, 4) array.
struct StreamLabel {
    double hits, given, positives;
    double cap;  // so many texts may be given the label
};
static_assert(sizeof(StreamLabel) == 4 * sizeof(double));

// Which labels a row may be given: at most k, each of a gain above the floor.
struct Budget {
    std::size_t k;
    double floor;
};

// (1 - alpha) P@k + alpha metric, as a factor of the label's probability and one of its metric.
struct Objective {
    double linear, scale;
};

// A number and its derivative in some direction.
struct Dual {
    double value, slope;

    Dual(double v, double s = 0) : value(v), slope(s) {}
    friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
    friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
    friend Dual operator*(Dual a, Dual b) {
        return {a.value * b.value, a.slope * b.value + a.value * b.slope};
    }
    friend Dual operator/(Dual a, Dual b) {
        const double value = a.value / b.value;
        return {value, (a.slope - value * b.slope) / b.value};
    }
};
inline double value_of(double x) { return x; }
inline double value_of(Dual x) { return x.value; }

// a / b, and 0/0 = 0; written so that the compiler can take several at once
template <class T>
T ratio(T a, T b) {
    const bool some = value_of(b) > 0;
    const T value = a / (some ? b : T(1.0));
    return some ? value : T(0.0);
}
inline double root(double x) { return x > 0 ? std::sqrt(x) : 0; }
inline Dual root(Dual x) {
    const double value = root(x.value);
    return {value, value > 0 ? x.slope / (2 * value) : 0};
}

// Macro metrics of (hits, given, positives, rows): tp = hits, fp = given - hits,
// fn = positives - hits; some count true negatives. 0/0 is 0.
struct Precision {
    static constexpr bool negatives = false;
    template <class T>
    T operator()(T hits, T given, T, T) const {
        return ratio(hits, given);
    }
};
struct Recall {
    static constexpr bool negatives = false;
    template <class T>
    T operator()(T hits, T, T positives, T) const {
        return ratio(hits, positives);
    }
};
struct FBeta {
    static constexpr bool negatives = false;
    double beta;
    template <class T>
    T operator()(T hits, T given, T positives, T) const {
        const T square(beta * beta);
        return ratio((T(1.0) + square) * hits, square * positives + given);
    }
};
struct Jaccard {
    static constexpr bool negatives = false;
    template <class T>
    T operator()(T hits, T given, T positives, T) const {
        return ratio(hits, given + positives - hits);
    }
};
template <class T>
T true_negative_rate(T hits, T given, T positives, T rows) {
    return ratio(rows - positives - given + hits, rows - positives);
}
struct BalancedAccuracy {
    static constexpr bool negatives = true;
    template <class T>
    T operator()(T hits, T given, T positives, T rows) const {
        return T(0.5) * (ratio(hits, positives) + true_negative_rate(hits, given, positives, rows));
    }
};
struct GMean {
    static constexpr bool negatives = true;
    template <class T>
    T operator()(T hits, T given, T positives, T rows) const {
        return root(ratio(hits, positives) * true_negative_rate(hits, given, positives, rows));
    }
};
struct HMean {
    static constexpr bool negatives = true;
    template <class T>
    T operator()(T hits, T given, T positives, T rows) const {
        const T sensitivity = ratio(hits, positives);
        const T specificity = true_negative_rate(hits, given, positives, rows);
        return ratio(T(2.0) * sensitivity * specificity, sensitivity + specificity);
    }
};
struct FowlkesMallows {
    static constexpr bool negatives = false;
    template <class T>
    T operator()(T hits, T given, T positives, T) const {
        return root(ratio(hits, given) * ratio(hits, positives));
    }
};

enum class MacroMetric {
    precision,
    recall,
    f_beta,
    jaccard,
    balanced_accuracy,
    g_mean,
    h_mean,
    fowlkes_mallows,
    coverage
};

// Calls use(metric) with a metric that is a function of the confusion entries.
template <class Use>
void with_metric(std::optional<MacroMetric> metric, double beta, Use&& use) {
    if (metric) switch (*metric) {
            case MacroMetric::precision:
                return use(Precision{});
            case MacroMetric::recall:
                return use(Recall{});
            case MacroMetric::f_beta:
                return use(FBeta{beta});
            case MacroMetric::jaccard:
                return use(Jaccard{});
            case MacroMetric::balanced_accuracy:
                return use(BalancedAccuracy{});
            case MacroMetric::g_mean:
                return use(GMean{});
            case MacroMetric::h_mean:
                return use(HMean{});
            case MacroMetric::fowlkes_mallows:
                return use(FowlkesMallows{});
            case MacroMetric::coverage:
                break;
        }
    throw std::invalid_argument("expected a metric of the confusion entries");
}

// The candidates of one row: their places, probabilities, and what their labels have come to
// without this row's decision, side by side so that several can be taken at once.
struct Candidates {
    std::size_t row = 0, size = 0;
    std::vector<std::size_t> places;
    std::vector<double> probabilities, hits, given, positives, gains;

    explicit Candidates(std::size_t width)
        : places(width),
          probabilities(width),
          hits(width),
          given(width),
          positives(width),
          gains(width) {}

    std::span<const double> found() const { return {gains.data(), size}; }
    void start(std::size_t number) {
        row = number;
        size = 0;
    }
    template <class L>
    void add(std::size_t place, double probability, const L& label) {
        places[size] = place;
        probabilities[size] = probability;
        set(size++, label);
    }
    template <class L>
    void set(std::size_t at, const L& label) {
        hits[at] = label.hits;
        given[at] = label.given;
        positives[at] = label.positives;
    }
};

// Gains of giving labels to a row, by the difference that it makes to the metric.
template <class Metric>
struct MetricGains {
    static constexpr bool exact = Metric::negatives;
    Metric metric;
    Objective objective;
    double rows;

    static void put(Label& label, double probability, int sign) {
        label.hits += sign * probability;
        count(label.given, sign);
    }
    void operator()(Candidates& c) const {
        const double *p = c.probabilities.data(), *hits = c.hits.data(), *given = c.given.data(),
                     *positives = c.positives.data();
        double* gains = c.gains.data();
        for (std::size_t i = 0; i < c.size; ++i) {
            const double with = metric(hits[i] + p[i], given[i] + 1, positives[i], rows);
            const double without = metric(hits[i], given[i], positives[i], rows);
            gains[i] = objective.linear * p[i] + objective.scale * (with - without);
        }
    }
};

// The same for coverage, whose expectation is known exactly: 1 - prod(1 - p). A label's `hits` are
// the sum of log(1 - p) below p = 1, its `positives` the number of p = 1.
struct CoverageGains {
    static constexpr bool exact = false;
    Objective objective;

    static void put(Label& label, double probability, int sign) {
        if (probability >= 1)
            label.positives += static_cast<float>(sign);
        else
            label.hits += sign * std::log1p(-probability);
        count(label.given, sign);
    }
    void operator()(Candidates& c) const {
        for (std::size_t i = 0; i < c.size; ++i) {
            const double missed = c.positives[i] > 0 ? 0 : std::exp(c.hits[i]);
            c.gains[i] = (objective.linear + objective.scale * missed) * c.probabilities[i];
        }
    }
};

// The k best gains of one row, ties to the earlier candidate: the more probable.
class Selection {
  public:
    std::span<const std::pair<double, std::size_t>> best(std::span<const double> gains,
                                                         Budget budget) {
        const std::size_t most = std::min(budget.k, gains.size());
        if (best_.size() < most) best_.resize(most);
        std::size_t size = 0;
        double bar = most > 0 ? budget.floor : std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < gains.size(); ++i) {
            if (!(gains[i] > bar)) continue;
            std::size_t at = size < most ? size++ : most - 1;
            for (; at > 0 && gains[i] > best_[at - 1].first; --at) best_[at] = best_[at - 1];
            best_[at] = {gains[i], i};
            if (size == most) bar = best_[most - 1].first;
        }
        return {best_.data(), size};
    }

  private:
    std::vector<std::pair<double, std::size_t>> best_;
};

// What is known of all labels, and how many texts each may be given to, if that matters.
struct Labels {
    std::span<Label> all;
    std::span<const double> positives;  // as exact as they are known
    std::span<const std::int32_t> caps;

    void check(const Shortlist& shortlist) const {
        if (all.size() != shortlist.labels || positives.size() != all.size() ||
            (!caps.empty() && caps.size() != all.size()))
            throw std::invalid_argument("labels or caps differ from the shortlist in number");
    }
    bool full(std::uint32_t id) const { return !caps.empty() && all[id].given >= caps[id]; }
};

// The candidates of a row as they are without its own decision. Labels that are full are none, but
// for those that the row holds itself.
template <class Gains>
void gather(const Shortlist& shortlist, std::size_t row, const Labels& labels,
            const Choices& chosen, const Gains&, Candidates& c) {
    c.start(row);
    for (std::size_t j = 0; j < shortlist.width; ++j) {
        const std::uint32_t id = shortlist.id(row, j);
        if (id >= shortlist.labels) continue;
        if (labels.full(id) && !chosen.hold(row, j)) continue;
        c.add(j, shortlist.probability(row, j), labels.all[id]);
    }
    chosen.each(row, [&](std::size_t j) {
        const std::uint32_t id = shortlist.id(row, j);
        if (id >= shortlist.labels) return;
        Label label = labels.all[id];
        Gains::put(label, shortlist.probability(row, j), -1);
        std::size_t at = j;
        while (at >= c.size || c.places[at] > j) --at;
        c.set(at, label);
    });
    // true negatives are what is left of large numbers
    if constexpr (Gains::exact)
        for (std::size_t i = 0; i < c.size; ++i)
            c.positives[i] = labels.positives[shortlist.id(row, c.places[i])];
}

// Decides some rows anew, one after another in the given order, each with all the others as they
// are: block coordinate ascent on the expected confusion entries (Schultheis and others 2023).
// Changes `chosen` and `labels`.
template <class Gains>
void ascend(const Shortlist& shortlist, std::span<const std::int32_t> order, const Labels& labels,
            const Choices& chosen, Budget budget, Gains&& gains) {
    shortlist.check();
    labels.check(shortlist);
    chosen.check(shortlist);
    for (std::int32_t row : order)
        if (row < 0 || static_cast<std::size_t>(row) >= shortlist.rows)
            throw std::invalid_argument("a row's number is outside the shortlist");
    const std::size_t width = shortlist.width;
    Candidates candidates(width);
    Selection selection;
    std::vector<std::uint8_t> bits(chosen.stride);
    const Choices changed{bits, chosen.stride};
    for (std::size_t t = 0; t < order.size(); ++t) {
        if (t + 2 < order.size()) shortlist.prefetch(static_cast<std::size_t>(order[t + 2]));
        if (t + 1 < order.size()) {
            const auto next = static_cast<std::size_t>(order[t + 1]);
            for (std::size_t j = 0; j < width; ++j) {
                const std::uint32_t id = shortlist.id(next, j);
                if (id < shortlist.labels) __builtin_prefetch(&labels.all[id], 1);
            }
        }
        const auto row = static_cast<std::size_t>(order[t]);
        gather(shortlist, row, labels, chosen, gains, candidates);
        gains(candidates);
        std::ranges::copy(chosen.of(row), bits.begin());
        for (const auto& best : selection.best(candidates.found(), budget))
            changed.flip(0, candidates.places[best.second]);
        changed.each(0, [&](std::size_t j) {
            const std::uint32_t id = shortlist.id(row, j);
            if (id >= shortlist.labels) return;
            const int sign = chosen.hold(row, j) ? -1 : 1;
            std::decay_t<Gains>::put(labels.all[id], shortlist.probability(row, j), sign);
            chosen.flip(row, j);
        });
    }
}

// What giving each candidate would gain as the other rows are, -infinity for padding and labels
// that are full.
template <class Gains>
std::vector<float> all_gains(const Shortlist& shortlist, const Labels& labels,
                             const Choices& chosen, Gains&& gains, bool parallel) {
    shortlist.check();
    labels.check(shortlist);
    chosen.check(shortlist);
    std::vector<float> out(shortlist.ids.size(), -std::numeric_limits<float>::infinity());
    const auto some = [&](std::size_t begin, std::size_t end) {
        Candidates candidates(shortlist.width);
        for (std::size_t row = begin; row < end; ++row) {
            gather(shortlist, row, labels, chosen, gains, candidates);
            gains(candidates);
            for (std::size_t i = 0; i < candidates.size; ++i)
                out[row * shortlist.width + candidates.places[i]] =
                    static_cast<float>(candidates.gains[i]);
        }
    };
    if (parallel)
        parallel_for(shortlist.rows, 256, some);
    else
        some(0, shortlist.rows);
    return out;
}

// A label's sums over some candidates; laid out as a row of a float64 (labels, 2) array.
struct Sums {
    double hits, given;
};

// Adds to each label's sums, or to those of its record, what the chosen candidates (all, where
// there are no choices) bring: their values, and how many they are.
template <class Value, class Sum>
void add_sums(const Shortlist& shortlist, std::span<const Value> values, const Choices& chosen,
              std::span<Sum> sums) {
    if (values.size() != shortlist.ids.size() || sums.size() != shortlist.labels)
        throw std::invalid_argument("values or sums differ from the shortlist in shape");
    const bool all = chosen.bits.empty();
    if (!all) chosen.check(shortlist);
    const auto add = [&](std::size_t at) {
        const auto id = static_cast<std::uint32_t>(shortlist.ids[at]);
        if (id >= shortlist.labels) return;
        sums[id].hits += static_cast<double>(values[at]);
        count(sums[id].given, 1);
    };
    for (std::size_t row = 0; row < shortlist.rows; ++row) {
        const std::size_t first = row * shortlist.width;
        if (all) {
            for (std::size_t j = 0; j < shortlist.width; ++j) add(first + j);
            continue;
        }
        chosen.each(row, [&](std::size_t j) { add(first + j); });
    }
}

// Rules, each the k largest of weight * probability + offset, and how often each is followed.
struct Mixture {
    std::span<const float> weights, offsets;  // (labels, rules)
    std::span<const double> shares;           // (rules)
};

// A number in [0, 1) that depends on a row's candidates alone: the same text is answered alike in
// any batch (splitmix64 chained over the candidates).
inline double uniform_of_row(const Shortlist& shortlist, std::size_t row, std::uint64_t seed) {
    std::uint64_t state = seed;
    const auto mix = [&](std::uint64_t x) {
        x += state + 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        state = x ^ (x >> 31);
    };
    for (std::size_t j = 0; j < shortlist.width; ++j) {
        const std::uint32_t id = shortlist.id(row, j);
        if (id >= shortlist.labels) continue;
        const auto bits = std::bit_cast<std::uint32_t>(shortlist.probability(row, j));
        mix(static_cast<std::uint64_t>(id) << 32 | bits);
    }
    mix(0);
    return static_cast<double>(state >> 11) * 0x1p-53;
}

// weight * probability + offset of one row's candidates by one of several rules, as exact as
// float64 is, and alike on every machine: a product of two float32 needs no rounding. Padding comes
// last.
MEGALABEL_CLONES inline void score_row(const std::int32_t* ids, const float* probabilities,
                                       std::size_t width, const float* weights,
                                       const float* offsets, std::uint32_t labels,
                                       std::size_t rules, double* scores) {
    for (std::size_t j = 0; j < width; ++j) {
        const auto id = static_cast<std::uint32_t>(ids[j]);
        const bool known = id < labels;
        const std::size_t at = (known ? id : 0) * rules;
        const double score =
            static_cast<double>(weights[at]) * probabilities[j] + static_cast<double>(offsets[at]);
        scores[j] = known ? score : -std::numeric_limits<double>::infinity();
    }
}

// Which candidates a mixture of rules gives: one rule decides as it is; of several, each candidate
// is given with the joint share of the rules for it, by Madow's systematic sampling, which keeps
// the number of labels.
inline std::vector<std::uint8_t> choose(const Shortlist& shortlist, const Mixture& mixture,
                                        Budget budget, std::uint64_t seed) {
    shortlist.check();
    const std::size_t rules = mixture.shares.size();
    if (mixture.weights.size() != shortlist.labels * rules ||
        mixture.offsets.size() != mixture.weights.size())
        throw std::invalid_argument("weights and offsets differ from labels and rules in shape");
    struct Scratch {
        std::vector<double> scores, shares;
        Selection selection;
    };
    const std::size_t stride = Choices::bytes(shortlist.width), width = shortlist.width;
    std::vector<std::uint8_t> bits(shortlist.rows * stride);
    if (shortlist.labels == 0 || width == 0) return bits;
    const Choices chosen{bits, stride};
    ScratchPool<Scratch> pool;
    const auto decide = [&](std::size_t row, Scratch& s) {
        s.scores.resize(width);
        s.shares.assign(width, 0);
        for (std::size_t r = 0; r < rules; ++r) {
            score_row(&shortlist.ids[row * width], &shortlist.probabilities[row * width], width,
                      &mixture.weights[r], &mixture.offsets[r],
                      static_cast<std::uint32_t>(shortlist.labels), rules, s.scores.data());
            for (const auto& best : s.selection.best(s.scores, budget)) {
                if (rules == 1)
                    chosen.flip(row, best.second);
                else
                    s.shares[best.second] += mixture.shares[r];
            }
        }
        if (rules == 1) return;
        // points u, u + 1, …; sums of shares that miss a whole number by rounding must not cost
        // a label
        const double u = uniform_of_row(shortlist, row, seed);
        double sum = 0;
        double before = std::floor(1e-9 - u);
        for (std::size_t j = 0; j < width; ++j) {
            sum += s.shares[j];
            const double after = std::floor(sum - u + 1e-9);
            if (after > before) chosen.flip(row, j);
            before = after;
        }
    };
    parallel_for(shortlist.rows, 256, [&](std::size_t begin, std::size_t end) {
        pool.with([&](Scratch& scratch) {
            for (std::size_t row = begin; row < end; ++row) decide(row, scratch);
        });
    });
    return bits;
}

// Adds to each label's two sums what the candidates that one rule chooses bring. By blocks of rows,
// whose choices are soon forgotten; sums are taken in the order of rows, whoever chose.
template <class Value>
void add_rule_sums(const Shortlist& shortlist, std::span<const Value> values,
                   std::span<const float> weights, std::span<const float> offsets, Budget budget,
                   std::span<Sums> sums) {
    shortlist.check();
    if (values.size() != shortlist.ids.size())
        throw std::invalid_argument("values differ from the shortlist in shape");
    constexpr std::size_t at_once = 1 << 14;
    const std::size_t width = shortlist.width;
    const double always = 1;
    for (std::size_t begin = 0; begin < shortlist.rows; begin += at_once) {
        const std::size_t rows = std::min(at_once, shortlist.rows - begin);
        const std::size_t first = begin * width, cells = rows * width;
        const Shortlist block{shortlist.ids.subspan(first, cells),
                              shortlist.probabilities.subspan(first, cells), rows, width,
                              shortlist.labels};
        auto bits = choose(block, {weights, offsets, {&always, 1}}, budget, 0);
        add_sums(block, values.subspan(first, cells), {bits, Choices::bytes(width)}, sums);
    }
}

// How fast the objective rises when labels are given to a share of rows: the slope of the metric
// in the direction of giving.
template <class Metric>
struct MetricSlopes {
    Metric metric;
    Objective objective;

    void operator()(Candidates& c, double rows) const {
        for (std::size_t i = 0; i < c.size; ++i) {
            const double p = c.probabilities[i];
            const Dual slope =
                metric(Dual(c.hits[i], p), Dual(c.given[i], 1), Dual(c.positives[i]), Dual(rows));
            c.gains[i] = objective.linear * p + objective.scale * slope.slope * rows;
        }
    }
};

// Decides rows as they come, each by the slopes of the metric at what was decided before, then
// takes its truth in: the labels of `truth` where it has rows, else the probabilities. `labels`
// changes; `seen` rows came before, and count towards true negatives.
template <class Slopes>
std::vector<std::uint8_t> follow(const Shortlist& shortlist, const Truth& truth,
                                 std::span<StreamLabel> labels, Budget budget, double seen,
                                 Slopes&& slopes) {
    shortlist.check();
    if (labels.size() != shortlist.labels)
        throw std::invalid_argument("labels differ from the shortlist in number");
    const bool known = truth.rows() > 0;
    if (known) truth.check(shortlist.rows);
    const std::size_t stride = Choices::bytes(shortlist.width);
    std::vector<std::uint8_t> bits(shortlist.rows * stride);
    const Choices chosen{bits, stride};
    RowLabels right(truth);
    Candidates c(shortlist.width);
    Selection selection;
    for (std::size_t row = 0; row < shortlist.rows; ++row, seen += 1) {
        c.start(row);
        for (std::size_t j = 0; j < shortlist.width; ++j) {
            const std::uint32_t id = shortlist.id(row, j);
            if (id < labels.size()) c.add(j, shortlist.probability(row, j), labels[id]);
        }
        slopes(c, seen + 1);
        if (known) {
            right.load(row);
            for (std::int32_t label : right.labels())
                if (static_cast<std::uint32_t>(label) < labels.size())
                    labels[static_cast<std::size_t>(label)].positives += 1;
        } else {
            for (std::size_t i = 0; i < c.size; ++i)
                labels[shortlist.id(row, c.places[i])].positives += c.probabilities[i];
        }
        for (std::size_t i = 0; i < c.size; ++i) {
            const StreamLabel& label = labels[shortlist.id(row, c.places[i])];
            if (label.given + 1 > label.cap) c.gains[i] = -std::numeric_limits<double>::infinity();
        }
        for (const auto& best : selection.best(c.found(), budget)) {
            const std::size_t i = best.second;
            const std::uint32_t id = shortlist.id(row, c.places[i]);
            const bool hit = known && right.holds(static_cast<std::int32_t>(id));
            labels[id].hits += known ? hit : c.probabilities[i];
            labels[id].given += 1;
            chosen.flip(row, c.places[i]);
        }
    }
    return bits;
}

}  // namespace megalabel::decision
