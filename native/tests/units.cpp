// The small pieces that kernels are made of, each by itself. Ends with 1 at a result that is wrong.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "boosting.hpp"
#include "boosting_bins.hpp"
#include "boosting_training.hpp"
#include "chunks.hpp"
#include "conjugate_gradients.hpp"
#include "lanes.hpp"
#include "line_search.hpp"
#include "matching.hpp"
#include "sampling.hpp"

namespace {

#define CHECK(what)                                                         \
    do {                                                                    \
        if (what) break;                                                    \
        std::fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #what); \
        std::exit(1);                                                       \
    } while (false)

bool near(double a, double b, double tolerance) {
    return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
}

// --- lanes

using namespace megalabel::newton;

// Numbers of `places` places, another in every lane.
Buffer numbers(std::size_t places, float step) {
    Buffer values(places * lanes);
    for (std::size_t j = 0; j < values.size(); ++j)
        values[j] = std::sin(step * static_cast<float>(j + 1));
    return values;
}

void test_lanes_are_chosen_by_their_bits() {
    for (const std::uint32_t bits : {0u, 1u, 0x8001u, 0xa5a5u, 0xffffu}) {
        Vector v = Vector{} + 2.f;
        keep_lanes(bits, v);
        Integers marked = {};
        mark(v, 0, marked);
        CHECK(all_bits(marked) == bits);
        Integers shifted = {};
        mark(v, static_cast<int>(lanes), shifted);
        CHECK(all_bits(shifted) == bits << lanes);
        const Buffer from = numbers(3, 0.3f);
        Buffer to(from.size(), 9.f);
        copy_lanes(bits, from.data(), to.data(), 3);
        for (std::size_t j = 0; j < to.size(); ++j)
            CHECK(to[j] == (bits >> j % lanes & 1 ? from[j] : 9.f));
    }
}

void test_sums_are_those_of_each_lane() {
    for (const std::size_t places : {0, 1, 63, 64, 65, 200}) {
        const Buffer a = numbers(places, 0.7f), b = numbers(places, 1.1f);
        Lanes found, expected{};
        dot(a.data(), b.data(), places, found.data());
        for (std::size_t j = 0; j < a.size(); ++j) expected[j % lanes] += double{a[j]} * b[j];
        for (std::size_t k = 0; k < lanes; ++k) CHECK(near(found[k], expected[k], 1e-5));
    }
}

void test_a_step_of_conjugate_gradients() {
    const std::size_t places = 70;
    const Buffer d = numbers(places, 0.2f), p = numbers(places, 0.9f);
    Buffer s(d.size(), 0.f), r = numbers(places, 0.5f), next = d, product(d.size());
    const Buffer before = r;
    Factors alpha{}, beta{};
    for (std::size_t k = 0; k < lanes; ++k) alpha[k] = 0.25f * static_cast<float>(k), beta[k] = 2;
    Lanes square;
    advance(alpha.data(), d.data(), p.data(), s.data(), r.data(), places, square.data());
    turn(r.data(), beta.data(), next.data(), product.data(), places);
    Lanes expected{};
    for (std::size_t j = 0; j < s.size(); ++j) {
        const float a = alpha[j % lanes];
        CHECK(near(s[j], a * d[j], 1e-6));
        CHECK(near(r[j], before[j] - a * p[j], 1e-6));
        CHECK(near(next[j], r[j] + 2 * d[j], 1e-6));
        CHECK(product[j] == next[j]);
        expected[j % lanes] += double{r[j]} * r[j];
    }
    for (std::size_t k = 0; k < lanes; ++k) CHECK(near(square[k], expected[k], 1e-5));
}

void test_exponentials() {
    for (const float x : {0.f, -1e-6f, -0.3f, -1.f, -20.f, -86.f, -1000.f}) {
        Vector v = Vector{} + x;
        exp_negative(v);
        const double expected = std::exp(std::max(-87.0, double{x}));
        for (std::size_t k = 0; k < lanes; ++k) CHECK(std::abs(v[k] - expected) <= 1e-6 * expected);
    }
}

// (1 + c) s = -g in every lane, where c is another one: the first direction leads to the end.
void test_steps_of_lanes_do_not_depend_on_each_other() {
    const std::size_t places = 5;
    const Buffer gradient = numbers(places, 0.4f);
    Lanes square;
    dot(gradient.data(), gradient.data(), places, square.data());
    const auto solve = [&](unsigned wanted) {
        Vectors v;
        v.resize(places * lanes);
        v.residual = gradient;
        std::fill(v.step.begin(), v.step.end(), 0.f);
        std::array<bool, lanes> going;
        for (std::size_t k = 0; k < lanes; ++k) going[k] = wanted >> k & 1;
        find_step(v, places, 50, going, square, false, [&](unsigned) {
            for (std::size_t j = 0; j < v.product.size(); ++j)
                v.product[j] += static_cast<float>(j % lanes) * v.direction[j];
        });
        return v.step;
    };
    const Buffer all = solve(0xffff), some = solve(0x00f0);
    for (std::size_t j = 0; j < all.size(); ++j) {
        const auto c = static_cast<float>(j % lanes);
        CHECK(near(all[j], -gradient[j] / (1 + c), 1e-5));
        CHECK(some[j] == (0x00f0 >> j % lanes & 1 ? all[j] : 0.f));
    }
}

// --- line search

// Points of f(a) = (a - best)^2 at the start, halfway, and at a length.
Length search_parabola(double best, double length) {
    const auto at = [&](double a) { return Point{a, (a - best) * (a - best), 2 * (a - best)}; };
    return choose_length(at(0), at(length / 2), at(length), false);
}

void test_a_parabola_is_searched_to_its_minimum() {
    for (const double best : {0.001, 0.01, 0.2, 0.4, 0.5, 0.7, 1.0}) {
        double length = 1;
        auto found = search_parabola(best, length);
        while (!found.taken) {
            CHECK(found.length == length / 4);
            found = search_parabola(best, length = found.length);
        }
        CHECK(near(found.length, best, 1e-12));
        CHECK(found.below == (best < length / 2));
    }
    const auto whole = search_parabola(3, 1);  // still falling at the end
    CHECK(whole.taken && whole.length == 1 && whole.value == 4);
}

// Where the slope at one end is of another order of magnitude, a line between slopes leads to a
// tiny step, which is taken only if there is no other look.
void test_a_tiny_step_is_the_last_resort() {
    const Point start{0, 1, -0.1}, half{0.5, 0.5, 10}, whole{1, 6, 12};
    CHECK(!choose_length(start, half, whole, false).taken);
    const auto last = choose_length(start, half, whole, true);
    CHECK(last.taken && last.below && last.length < 0.01);
}

void test_a_loss_that_does_not_fall_is_not_taken() {
    const Point start{0, 1, -1}, half{0.5, 1.5, 2}, whole{1, 3, 4};
    for (const bool last : {false, true}) CHECK(!choose_length(start, half, whole, last).taken);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(!choose_length(start, {0.5, nan, nan}, {1, nan, nan}, true).taken);
}

// --- samples

void test_few_rows_and_late_steps_take_all_rows() {
    for (const auto& sample : {Sample(0, 10, 0), Sample(4000, 10, 0), Sample(1 << 24, 10, 50),
                               Sample(100'000, 300'000, 0), Sample()}) {
        CHECK(sample.stride() == 1);
        for (const std::int32_t row : {0, 1, 12345}) CHECK(sample.holds(row));
    }
}

void test_a_sample_is_even_and_another_in_each_iteration() {
    const std::size_t rows = 1 << 20;
    const Sample first(rows, 1000, 0), second(rows, 1000, 1);
    CHECK(first.stride() == 64);  // the root of the rows, by 16
    std::size_t in_first = 0, in_both = 0, in_a_tenth = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        const auto number = static_cast<std::int32_t>(row);
        in_first += first.holds(number);
        in_a_tenth += row < rows / 10 && first.holds(number);
        in_both += first.holds(number) && second.holds(number);
    }
    const double expected = static_cast<double>(rows) / 64;
    CHECK(near(static_cast<double>(in_first), expected, 0.01));
    CHECK(near(static_cast<double>(in_a_tenth), expected / 10, 0.05));
    CHECK(in_both < in_first / 2);
}

// --- chunks

using megalabel::BuiltChunks;
using megalabel::ChunkedWeights;
using megalabel::Half;

struct Nodes {
    std::vector<std::int64_t> starts{0};
    std::vector<std::int32_t> columns;
    std::vector<float> values;
    std::size_t width;

    explicit Nodes(std::size_t columns_count) : width(columns_count) {}
    void add(const std::vector<std::pair<std::int32_t, float>>& weights) {
        for (const auto& [column, value] : weights)
            columns.push_back(column), values.push_back(value);
        starts.push_back(static_cast<std::int64_t>(columns.size()));
    }
    template <class Weight>
    BuiltChunks<Weight> build(const std::vector<std::int64_t>& child_starts) const {
        return megalabel::build_chunks<Weight>(starts, columns, values, width, child_starts);
    }
};

template <class Weight>
ChunkedWeights view(const BuiltChunks<Weight>& built, const std::vector<std::int64_t>& child_starts,
                    std::size_t width) {
    return {child_starts,       built.section_starts,
            built.row_features, built.row_starts,
            built.block_starts, built.block_bits,
            built.gaps,         std::span<const Weight>(built.weights),
            built.scales,       built.biases,
            width - 1};
}

// The weight of each node and feature that the chunks say, read entry by entry.
template <class Weight>
std::vector<float> read_back(const BuiltChunks<Weight>& built,
                             const std::vector<std::int64_t>& child_starts, std::size_t width) {
    const auto level = view(built, child_starts, width);
    level.check();
    std::vector<float> dense(level.nodes() * width);
    for (std::size_t parent = 0; parent < level.parents(); ++parent) {
        const auto chunk = level.chunk(parent);
        for (std::size_t section = 0; section < level.sections(); ++section) {
            const auto first = static_cast<std::size_t>(chunk.section_starts[section]);
            const auto last = static_cast<std::size_t>(chunk.section_starts[section + 1]);
            for (std::size_t row = first; row < last; ++row) {
                const std::size_t feature =
                    section * megalabel::section_features + built.row_features[row];
                const auto [begin, end] = level.row(row);
                std::size_t child = 0;
                for (std::size_t e = begin; e < end; ++e) {
                    child += megalabel::step(built.gaps[e], built.weights[e]);
                    CHECK(child < chunk.children);
                    if (!megalabel::is_zero(built.weights[e]))
                        dense[(chunk.first_child + child) * width + feature] =
                            megalabel::widen(built.weights[e]);
                }
            }
        }
    }
    return dense;
}

void test_chunks_hold_the_weights_of_each_node() {
    Nodes nodes(5);
    nodes.add({{0, 1.f}, {4, 0.5f}});
    nodes.add({{1, 2.f}});
    nodes.add({});
    nodes.add({{0, -3.f}, {3, 0.25f}});
    const std::vector<std::int64_t> child_starts{0, 2, 2, 4};  // the second parent has no child
    const std::vector<float> expected{1, 0, 0, 0, 0.5f, 0,  2, 0, 0,     0,
                                      0, 0, 0, 0, 0,    -3, 0, 0, 0.25f, 0};
    const auto single = nodes.build<float>(child_starts);
    CHECK(read_back(single, child_starts, nodes.width) == expected);
    CHECK(single.row_features.size() == 5 && single.scales.empty());
    CHECK(read_back(nodes.build<Half>(child_starts), child_starts, nodes.width) == expected);
}

void test_weights_of_eight_bits_are_shares_of_the_largest() {
    Nodes nodes(3);
    nodes.add(
        {{0, 2.f}, {1, 0.001f}, {2, 7.f}});  // the second comes to zero, the third is the bias
    const std::vector<std::int64_t> child_starts{0, 1};
    const auto built = nodes.build<std::int8_t>(child_starts);
    CHECK(built.weights == std::vector<std::int8_t>{127});
    CHECK(near(built.scales[0], 2.0 / 127, 1e-6) && built.biases[0] == 7.f);
    CHECK(read_back(built, child_starts, nodes.width) == (std::vector<float>{127, 0, 0}));
}

void test_wide_gaps_are_bridged() {
    const std::size_t children = 70'000;
    Nodes nodes(2);
    for (std::size_t c = 0; c < children; ++c)
        nodes.add(c == 300 || c == 300 + 65'600 ? std::vector{std::pair{0, 1.f}}
                                                : std::vector<std::pair<std::int32_t, float>>{});
    const std::vector<std::int64_t> child_starts{0, static_cast<std::int64_t>(children)};
    const auto built = nodes.build<float>(child_starts);
    const auto dense = read_back(built, child_starts, nodes.width);
    for (std::size_t c = 0; c < children; ++c)
        if (dense[2 * c] != (c == 300 || c == 300 + 65'600 ? 1.f : 0.f)) CHECK(false);
    CHECK(built.weights.size() > 2);  // entries of weight zero lead there
}

void test_features_are_counted_within_their_section() {
    const auto last = static_cast<std::int32_t>(3 * megalabel::section_features);
    Nodes nodes(static_cast<std::size_t>(last) + 1);
    nodes.add({{0, 1.f}, {65'535, 2.f}, {65'536, 3.f}, {last, 4.f}});
    const std::vector<std::int64_t> child_starts{0, 1};
    const auto built = nodes.build<float>(child_starts);
    CHECK(built.section_starts == (std::vector<std::int64_t>{0, 2, 3, 3, 4}));
    CHECK(built.row_features == (std::vector<std::uint16_t>{0, 65'535, 0, 0}));
    const auto dense = read_back(built, child_starts, nodes.width);
    CHECK(dense[65'535] == 2.f && dense[65'536] == 3.f && dense.back() == 4.f);
}

void test_rows_of_many_entries_begin_in_smaller_blocks() {
    const std::size_t children = 3000;
    Nodes nodes(65);
    std::vector<std::pair<std::int32_t, float>> all;
    for (std::int32_t f = 0; f < 65; ++f) all.push_back({f, 1.f});
    for (std::size_t c = 0; c < children; ++c) nodes.add(all);
    const std::vector<std::int64_t> child_starts{0, static_cast<std::int64_t>(children)};
    const auto built = nodes.build<float>(child_starts);
    CHECK(built.block_bits < 6);  // 64 rows have more entries than 16 bits count
    for (const float weight : read_back(built, child_starts, nodes.width))
        if (weight != 1.f) CHECK(false);
}

void test_damaged_chunks_are_refused() {
    Nodes nodes(3);
    nodes.add({{0, 1.f}, {1, 2.f}});
    const std::vector<std::int64_t> child_starts{0, 1};
    const auto refused = [&](auto&& damage) {
        auto built = nodes.build<float>(child_starts);
        damage(built);
        try {
            const auto level = view(built, child_starts, nodes.width);
            level.check();
            const auto chunk = level.chunk(0);
            for (std::size_t r = 0; r < chunk.rows; ++r) level.row(chunk.first_row + r);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    CHECK(!refused([](auto&) {}));
    CHECK(refused([](auto& b) { b.section_starts.back() = 9; }));
    CHECK(refused([](auto& b) { b.section_starts.front() = -1; }));
    CHECK(refused([](auto& b) { b.row_starts[1] = 9; }));
    CHECK(refused([](auto& b) { b.block_starts[0] = -5; }));
    CHECK(refused([](auto& b) { b.weights.pop_back(); }));
    CHECK(refused([](auto& b) { b.block_bits = 17; }));
}

// --- matching

// Two labels: one with the names "0 1" and "2", one with the name "1 0 1"; words 0 and 1 have stem
// 0, word 2 has stem 1.
struct MatchedNames {
    std::vector<std::int64_t> name_starts{0, 2, 3}, word_starts{0, 2, 3, 6};
    std::vector<std::int32_t> words{0, 1, 2, 1, 0, 1}, stems{0, 0, 1};
    std::vector<float> word_idf{1.f, 2.f, 4.f}, stem_idf{1.f, 3.f};

    std::array<float, megalabel::matching::kFeatures> features(std::span<const std::int32_t> text,
                                                               std::int32_t label) const {
        megalabel::matching::Matcher matcher(
            {name_starts, word_starts, words, stems, word_idf, stem_idf, 5.f});
        std::array<float, megalabel::matching::kFeatures> out;
        matcher.read(text);
        matcher.features(std::span(&label, 1), out.data());
        return out;
    }
};

void test_names_are_matched_word_by_word() {
    using namespace megalabel::matching;
    const MatchedNames names;
    const std::vector<std::int32_t> text{1, 1, 0, 1, -1, -3};  // the last: unknown, with stem 1
    auto found = names.features(text, 1);
    CHECK(found[kPhrase] == 1 && found[kWhole] == 1 && found[kNameWords] == 3);
    CHECK(found[kFirstPosition] == 0 && found[kRarestFound] == 2 && found[kRarestMissing] == 0);
    CHECK(near(found[kTextShare], 3. / 13, 1e-6));
    found = names.features(std::span(text).first(2), 0);
    CHECK(near(found[kWeightedShare], 2. / 3, 1e-6) && found[kStemShare] == 1);
    found = names.features(std::span(text).last(2), 0);  // the second name, by its stem
    CHECK(found[kNameWords] == 1 && found[kStemShare] == 1 && found[kShare] == 0);
    CHECK(std::isnan(found[kFirstPosition]));
    found = names.features({}, 0);
    CHECK(found[kNameWords] == 2 && found[kTextShare] == 0);
    for (const std::int32_t none : {-1, 2})
        for (const float value : names.features(text, none)) CHECK(std::isnan(value));
}

void test_damaged_names_are_refused() {
    const auto refused = [](auto&& damage, std::vector<std::int32_t> text = {0, 1, 2, -2},
                            std::int32_t label = 0) {
        MatchedNames names;
        damage(names);
        try {
            names.features(text, label);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    constexpr auto least = std::numeric_limits<std::int32_t>::min();
    const auto nothing = [](auto&) {};
    CHECK(!refused(nothing));
    CHECK(refused(nothing, {3}) && refused(nothing, {-4}) && refused(nothing, {least}));
    CHECK(refused(nothing, {}, 3) && refused(nothing, {}, -2) && refused(nothing, {}, least));
    CHECK(refused([](auto& n) { n.name_starts[1] = 9; }));
    CHECK(refused([](auto& n) { n.name_starts[0] = -1; }));
    CHECK(refused([](auto& n) { n.word_starts[1] = 7; }));
    CHECK(refused([](auto& n) { n.words[0] = 3; }));
    CHECK(refused([](auto& n) { n.stems[0] = -1; }));
    CHECK(refused([](auto& n) { n.stems.pop_back(); }));
    CHECK(refused([](auto& n) { n.name_starts.clear(); }));
}

// --- boosted trees

namespace boosting = megalabel::boosting;

void test_values_share_bins_evenly_and_frequent_ones_have_their_own() {
    std::vector<float> values(100, 7.f);  // half of all
    for (int i = 0; i < 100; ++i) values.push_back(static_cast<float>(i) / 100);
    std::sort(values.begin(), values.end());
    const auto edges = boosting::edges_of(values, 5);
    CHECK(edges.size() == 4);
    CHECK(std::is_sorted(edges.begin(), edges.end()));
    CHECK(edges.back() > 0.99f && edges.back() < 7.f);
    for (std::size_t e = 0; e + 1 < edges.size(); ++e)
        CHECK(near(edges[e], 0.25 * static_cast<double>(e + 1), 0.03));
    CHECK(boosting::edges_of(std::vector<float>(9, 1.f), 5).empty());
    const std::vector<float> few{1.f, 1.f, 2.f, std::nextafter(2.f, 3.f)};
    const auto between = boosting::edges_of(few, 255);
    CHECK(between.size() == 2 && between[0] == 1.5f && between[1] == 2.f);
}

void test_leaves_are_those_that_rows_are_led_to() {
    // a chain of 100 leaves: a row goes right until its value is at most the threshold
    const std::size_t leaves = 100, nodes = 2 * leaves - 1;
    std::vector<std::int32_t> feature(nodes, -1), left(nodes), right(nodes);
    std::vector<float> threshold(nodes), value(nodes);
    std::vector<std::uint8_t> missing_left(nodes);
    for (std::size_t leaf = 0; leaf + 1 < leaves; ++leaf) {
        const std::size_t node = 2 * leaf;
        feature[node] = 0;
        threshold[node] = static_cast<float>(leaf);
        left[node] = static_cast<std::int32_t>(node + 1);
        right[node] = static_cast<std::int32_t>(node + 2);
        missing_left[node] = leaf == 60;
        value[node + 1] = static_cast<float>(leaf);
    }
    value[nodes - 1] = 1000;
    const std::vector<std::int64_t> starts{0, static_cast<std::int64_t>(nodes)};
    const boosting::Forest forest(
        {starts, feature, threshold, left, right, missing_left, value, 0.5f, 1});
    const std::vector<float> rows{-1.f, 0.f, 0.5f, 31.f, 31.5f, 98.f, 98.5f, std::nanf("")};
    std::vector<float> margins(rows.size());
    boosting::margins_of(forest, {rows, rows.size(), 1}, margins);
    const std::vector<float> expected{0.5f, 0.5f, 1.5f, 31.5f, 32.5f, 98.5f, 1000.5f, 60.5f};
    CHECK(margins == expected);
}

void test_trees_learn_what_two_features_say_together() {
    const std::size_t n = 4000;
    std::vector<float> values(2 * n);
    std::vector<std::uint8_t> targets(n);
    for (std::size_t i = 0; i < n; ++i) {
        values[2 * i] = i % 3 == 0 ? std::nanf("") : std::sin(static_cast<float>(i));
        values[2 * i + 1] = std::cos(1.7f * static_cast<float>(i));
        targets[i] = (i % 3 == 0) != (values[2 * i + 1] > 0.3f);
    }
    const boosting::Options options{30, 5, 0, 64, 0.3, 5, 1e-3, 0, 0, 1, 0.9, 5, 0};
    const auto grown = boosting::train({{values, n, 2}, targets, {}, {}}, options);
    const boosting::Forest forest({grown.starts, grown.feature, grown.threshold, grown.left,
                                   grown.right, grown.missing_left, grown.value,
                                   static_cast<float>(grown.base), 2});
    std::vector<float> margins(n);
    boosting::margins_of(forest, {values, n, 2}, margins);
    std::size_t right = 0;
    for (std::size_t i = 0; i < n; ++i) right += (margins[i] > 0) == (targets[i] != 0);
    CHECK(right > n * 98 / 100);
}

}  // namespace

int main() {
    test_lanes_are_chosen_by_their_bits();
    test_sums_are_those_of_each_lane();
    test_a_step_of_conjugate_gradients();
    test_exponentials();
    test_steps_of_lanes_do_not_depend_on_each_other();
    test_a_parabola_is_searched_to_its_minimum();
    test_a_tiny_step_is_the_last_resort();
    test_a_loss_that_does_not_fall_is_not_taken();
    test_few_rows_and_late_steps_take_all_rows();
    test_a_sample_is_even_and_another_in_each_iteration();
    test_chunks_hold_the_weights_of_each_node();
    test_weights_of_eight_bits_are_shares_of_the_largest();
    test_wide_gaps_are_bridged();
    test_features_are_counted_within_their_section();
    test_rows_of_many_entries_begin_in_smaller_blocks();
    test_damaged_chunks_are_refused();
    test_names_are_matched_word_by_word();
    test_damaged_names_are_refused();
    test_values_share_bins_evenly_and_frequent_ones_have_their_own();
    test_leaves_are_those_that_rows_are_led_to();
    test_trees_learn_what_two_features_say_together();
    return 0;
}
