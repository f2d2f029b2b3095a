// The best labels of a tree: by beam search, or exactly by best-first search.
//
// Scores along a path are combined as sums of logarithms, which are never positive, so a node's
// score is at most its parent's; "noop" keeps the last level's score alone. Both searches answer
// one query at a time, parent by parent, leaving out parents that cannot reach the best; beam
// search also takes many queries at once, level by level, the queries of a parent together. All
// select by score, then by the lower number: the answers are the same.
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
#include <string>
#include <vector>

#include "chunk_scores.hpp"
#include "chunks.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// How a margin becomes the logarithm of a node's score given its parent's, as XR-Linear has
// it (Yu et al. 2022).
enum class Post { hinge1, hinge2, hinge3, hinge4, sigmoid, noop };

inline double log_score(Post post, float margin) {
    const double value = margin, lack = std::max(0.0, 1 - value);
    switch (post) {
        case Post::hinge1:
            return -lack;
        case Post::hinge2:
            return -lack * lack;
        case Post::hinge3:
            return -lack * lack * lack;
        case Post::hinge4:
            return -(lack * lack) * (lack * lack);
        case Post::sigmoid:
            return std::min(0.0, value) - std::log1p(std::exp(-std::abs(value)));
        case Post::noop:
            break;
    }
    return value;
}

// No lower margin gives a score of at least `floor` below a parent whose score is `above`. A little
// too low, for what is lost by rounding.
inline float least_margin(Post post, double above, double floor) {
    if (!std::isfinite(floor)) return -std::numeric_limits<float>::infinity();
    const double room = above - floor + 1e-6 * (std::abs(above) + std::abs(floor)) + 1e-30;
    if (post != Post::noop && room < 0) return std::numeric_limits<float>::infinity();
    double lack = room;
    switch (post) {
        case Post::hinge1:
            break;
        case Post::hinge2:
            lack = std::sqrt(room);
            break;
        case Post::hinge3:
            lack = std::cbrt(room);
            break;
        case Post::hinge4:
            lack = std::sqrt(std::sqrt(room));
            break;
        case Post::sigmoid:
            return static_cast<float>(-room);  // a score's logarithm is below its margin
        case Post::noop:
            return static_cast<float>(floor);
    }
    return static_cast<float>(1 - lack - 1e-6 * (1 + lack));
}

// The k best of what is offered: the highest score, then the lowest number. Unlike Best it takes
// scores of any sign. Scores and numbers are one integer each, the smaller the better.
class Leaders {
  public:
    struct Entry {
        float score;
        std::uint32_t number;
    };

    void reset(std::size_t k) {
        k_ = k;
        bar_ = ~std::uint64_t{0};
        floor_ = -std::numeric_limits<float>::infinity();
        keys_.clear();
    }

    void offer(float score, std::uint32_t number) {
        const std::uint64_t key = key_of(score, number);
        if (key > bar_) return;
        keys_.push_back(key);
        if (keys_.size() >= 4 * k_ + 32) select();
    }

    // A score below this cannot be among the best any more.
    float floor() const { return floor_; }

    // Looks for a higher floor.
    void raise() {
        if (keys_.size() >= k_) select();
    }

    template <class Visit>
    void sorted(Visit&& visit) {
        if (keys_.size() > k_) select();
        std::sort(keys_.begin(), keys_.end());
        for (std::uint64_t key : keys_) visit(entry_of(key));
    }

  private:
    static std::uint64_t key_of(float score, std::uint32_t number) {
        if (!(score > -std::numeric_limits<float>::infinity()))
            score = -std::numeric_limits<float>::infinity();     // not a number is the worst
        auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // no minus zero
        // Falling scores rise as integers once positive ones have their lower bits turned.
        bits = bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
        return std::uint64_t{bits} << 32 | number;
    }
    static Entry entry_of(std::uint64_t key) {
        auto bits = static_cast<std::uint32_t>(key >> 32);
        bits = bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
        return {std::bit_cast<float>(bits), static_cast<std::uint32_t>(key)};
    }

    void select() {
        auto last = keys_.begin() + static_cast<std::ptrdiff_t>(k_) - 1;
        std::nth_element(keys_.begin(), last, keys_.end());
        keys_.resize(k_);
        bar_ = keys_.back();
        floor_ = entry_of(bar_).score;
    }

    std::size_t k_ = 1;
    std::uint64_t bar_ = 0;
    float floor_ = 0;
    std::vector<std::uint64_t> keys_;
};

// A tree: its levels from the top, the label of each leaf (a node of the last level), and how far
// to look.
struct Tree {
    std::span<const ChunkedWeights> levels;
    std::span<const std::int32_t> labels;
    std::size_t label_count;
    Post post;
    // Of each level, which nodes have a label below them that may be an answer; empty: all.
    std::span<const std::vector<std::uint8_t>> open = {};

    void check(const Queries& queries) const {
        if (levels.empty()) throw std::invalid_argument("a tree has at least one level");
        for (std::size_t t = 0; t < levels.size(); ++t) {
            levels[t].check();
            if (levels[t].width != queries.width())
                throw std::invalid_argument(
                    "level " + std::to_string(t) + " has " + std::to_string(levels[t].width) +
                    " features but the queries " + std::to_string(queries.width()));
            if (t > 0 && levels[t].parents() != levels[t - 1].nodes())
                throw std::invalid_argument("level " + std::to_string(t) + " has " +
                                            std::to_string(levels[t].parents()) +
                                            " parents but the level above " +
                                            std::to_string(levels[t - 1].nodes()) + " nodes");
        }
        if (levels.back().nodes() != labels.size())
            throw std::invalid_argument("the last level has " +
                                        std::to_string(levels.back().nodes()) + " nodes but " +
                                        std::to_string(labels.size()) + " have a label");
        if (label_count > 0x7fffffff)
            throw std::invalid_argument("the number of labels is outside 31 bits");
    }

    bool last(std::size_t level) const { return level + 1 == levels.size(); }

    // A node's number among the answers: that of its label at the last level.
    std::uint32_t number(std::size_t level, std::size_t node) const {
        if (!last(level)) return static_cast<std::uint32_t>(node);
        const auto label = static_cast<std::uint32_t>(labels[node]);
        if (label >= label_count) [[unlikely]]
            throw std::invalid_argument("the label of leaf " + std::to_string(node) +
                                        " is outside the " + std::to_string(label_count) +
                                        " labels");
        return label;
    }

    // Which nodes of each level have one of the allowed labels below them.
    std::vector<std::vector<std::uint8_t>> nodes_above(
        std::span<const std::uint8_t> allowed) const {
        if (allowed.size() != label_count)
            throw std::invalid_argument("there must be a mark for each label");
        std::vector<std::vector<std::uint8_t>> marks(levels.size());
        for (std::size_t t = levels.size(); t-- > 0;) {
            marks[t].resize(levels[t].nodes());
            if (last(t)) {
                for (std::size_t node = 0; node < marks[t].size(); ++node)
                    marks[t][node] = allowed[number(t, node)] != 0;
                continue;
            }
            for (std::size_t node = 0; node < marks[t].size(); ++node) {
                const Chunk below = levels[t + 1].chunk(node);
                const auto first = marks[t + 1].begin() + below.first_child;
                marks[t][node] = std::find(first, first + below.children, 1) != first + below.children;
            }
        }
        return marks;
    }

    bool may_answer(std::size_t level, std::size_t node) const {
        return open.empty() || open[level][node] != 0;
    }

    // Offers the children of a parent, given their margins.
    void offer(std::size_t level, const Chunk& chunk, float parent, const float* margins,
               Leaders& leaders) const {
        const double above = post == Post::noop ? 0 : parent;
        // Saves most of the scores: nearly all margins are too low.
        const float least = least_margin(post, above, leaders.floor());
        for (std::size_t c = 0; c < chunk.children; ++c) {
            if (margins[c] < least || !may_answer(level, chunk.first_child + c)) continue;
            leaders.offer(static_cast<float>(above + log_score(post, margins[c])),
                          number(level, chunk.first_child + c));
        }
    }

    float answer(float score) const {
        return post == Post::noop ? score : static_cast<float>(std::exp(double{score}));
    }

    void write(Leaders& leaders, Ranked& out, std::size_t place) const {
        leaders.sorted([&](const Leaders::Entry& entry) {
            out.ids[place] = static_cast<std::int32_t>(entry.number);
            out.scores[place++] = answer(entry.score);
        });
    }
};

class BeamSearch {
  public:
    BeamSearch(const Tree& tree, const Queries& queries, std::size_t k, std::size_t beam)
        : tree_(tree), queries_(queries), k_(k), beam_(beam) {
        tree.check(queries);
        if (k == 0 || beam == 0) throw std::invalid_argument("k and beam must be at least 1");
    }

    // How many queries to answer together: enough that parents are met often, few enough that their
    // beams stay small.
    std::size_t at_once() const {
        std::size_t widest = tree_.levels.front().parents();
        for (const auto& level : tree_.levels.first(tree_.levels.size() - 1))
            widest = std::max(widest, std::min(beam_, level.nodes()));
        return std::max<std::size_t>(1, most_scores / std::max<std::size_t>(widest, 64));
    }

    // Answers query i, which the scratch holds by feature where it is sparse.
    void answer(std::size_t i, Ranked& out, std::size_t row) const {
        Scratch& scratch = Scratch::mine();
        ScoreScratch& scoring = ScoreScratch::mine();
        start(scratch.beam);
        for (std::size_t t = 0; t < tree_.levels.size(); ++t) {
            scratch.leaders.reset(kept(t));
            for (const auto& node : scratch.beam) {
                scratch.leaders.raise();
                // Those that follow are no better.
                if (tree_.post != Post::noop && node.score < scratch.leaders.floor()) break;
                ParentScorer scorer(tree_.levels[t], node.number, queries_, scoring);
                scratch.margins.resize(scorer.chunk().children);
                scorer.score(i, true, scratch.margins.data());
                tree_.offer(t, scorer.chunk(), node.score, scratch.margins.data(), scratch.leaders);
            }
            finish_level(t, row, scratch.leaders, scratch.beam, out);
        }
    }

    // Answers some queries, level by level; the first one's answer goes to `row`.
    void answer_block(std::size_t begin, std::size_t end, Ranked& out, std::size_t row) const {
        std::vector<Beam> beams(end - begin);
        for (Beam& beam : beams) start(beam);
        std::vector<Pair> pairs;
        std::vector<std::size_t> first;  // the first pair of each query
        std::vector<float> margins;
        for (std::size_t t = 0; t < tree_.levels.size(); ++t) {
            const ChunkedWeights& level = tree_.levels[t];
            for (std::size_t from = begin, to; from < end; from = to) {
                pairs.clear();
                first.clear();
                std::size_t place = 0;
                for (to = from; to < end && (place < most_scores || to == from); ++to) {
                    first.push_back(pairs.size());
                    for (const auto& node : beams[to - begin]) {
                        pairs.push_back({static_cast<std::uint32_t>(to), node.number, place});
                        place += level.chunk(node.number).children;
                    }
                }
                if (margins.size() < place) margins.resize(place);
                score_pairs(level, queries_, pairs, margins.data());
                parallel_for(to - from, 64, [&](std::size_t low, std::size_t high) {
                    Leaders& leaders = Scratch::mine().leaders;
                    for (std::size_t q = low; q < high; ++q) {
                        const std::size_t number = from + q - begin;
                        Beam& beam = beams[number];
                        leaders.reset(kept(t));
                        for (std::size_t j = 0; j < beam.size(); ++j)
                            tree_.offer(t, level.chunk(beam[j].number), beam[j].score,
                                        margins.data() + pairs[first[q] + j].place, leaders);
                        finish_level(t, row + number, leaders, beam, out);
                    }
                });
            }
        }
    }

  private:
    using Beam = std::vector<Leaders::Entry>;

    struct Scratch {
        Leaders leaders;
        Beam beam;
        std::vector<float> margins;
        static Scratch& mine() {
            thread_local Scratch scratch;
            return scratch;
        }
    };

    std::size_t kept(std::size_t level) const { return tree_.last(level) ? k_ : beam_; }

    void start(Beam& beam) const {
        beam.clear();
        for (std::size_t p = 0; p < tree_.levels.front().parents(); ++p)
            beam.push_back({0, static_cast<std::uint32_t>(p)});
    }

    void finish_level(std::size_t level, std::size_t row, Leaders& leaders, Beam& beam,
                      Ranked& out) const {
        if (tree_.last(level)) {
            tree_.write(leaders, out, row * k_);
        } else {
            beam.clear();
            leaders.sorted([&](const Leaders::Entry& entry) { beam.push_back(entry); });
        }
    }

    static constexpr std::size_t most_scores = std::size_t{1} << 22;  // held at once

    const Tree& tree_;
    const Queries& queries_;
    std::size_t k_, beam_;
};

// The exact best labels by best-first search: the node whose labels may have the highest score is
// opened next, until that is below the k-th best label (Jasinska et al. 2016). With weights the
// score of a label is multiplied by its own; a node's is the largest of its labels, as a logarithm.
class BestFirstSearch {
  public:
    BestFirstSearch(const Tree& tree, const Queries& queries, std::size_t k,
                    std::span<const std::span<const float>> log_weights)
        : tree_(tree), queries_(queries), k_(k), log_weights_(log_weights) {
        tree.check(queries);
        if (k == 0) throw std::invalid_argument("k must be at least 1");
        if (tree.post == Post::noop)
            throw std::invalid_argument("best-first search needs scores that fall along a path");
        if (!log_weights.empty()) {
            if (log_weights.size() != tree.levels.size())
                throw std::invalid_argument("weights must be given for each level");
            for (std::size_t t = 0; t < tree.levels.size(); ++t)
                if (log_weights[t].size() != tree.levels[t].nodes())
                    throw std::invalid_argument("weights must be given for each node");
        }
    }

    // Answers query i, which the scratch holds by feature where it is sparse.
    void answer(std::size_t i, Ranked& out, std::size_t row) const {
        Scratch& scratch = Scratch::mine();
        ScoreScratch& scoring = ScoreScratch::mine();
        auto& [leaders, heap, margins] = scratch;
        leaders.reset(k_);
        heap.clear();
        for (std::size_t p = 0; p < tree_.levels.front().parents(); ++p)
            heap.push_back(
                {std::numeric_limits<float>::infinity(), 0, 0, static_cast<std::uint32_t>(p)});
        while (!heap.empty()) {
            std::pop_heap(heap.begin(), heap.end());
            const Node node = heap.back();
            heap.pop_back();
            leaders.raise();
            if (node.key < leaders.floor()) break;
            ParentScorer scorer(tree_.levels[node.level], node.number, queries_, scoring);
            const Chunk& chunk = scorer.chunk();
            margins.resize(chunk.children);
            scorer.score(i, true, margins.data());
            for (std::size_t c = 0; c < chunk.children; ++c) {
                const std::size_t child = chunk.first_child + c;
                if (!tree_.may_answer(node.level, child)) continue;
                const auto score =
                    static_cast<float>(node.score + log_score(tree_.post, margins[c]));
                const float key =
                    log_weights_.empty() ? score : score + log_weights_[node.level][child];
                if (tree_.last(node.level)) {
                    leaders.offer(key, tree_.number(node.level, child));
                } else if (!(key < leaders.floor())) {
                    heap.push_back({key, score, node.level + 1, static_cast<std::uint32_t>(child)});
                    std::push_heap(heap.begin(), heap.end());
                }
            }
        }
        tree_.write(leaders, out, row * k_);
    }

    // How many queries to answer before the next tree is searched: few enough that their answers
    // stay small.
    std::size_t at_once() const { return std::size_t{1} << 16; }

    // Answers some queries, one at a time; the first one's answer goes to `row`.
    void answer_block(std::size_t begin, std::size_t end, Ranked& out, std::size_t row) const {
        parallel_for(end - begin, 1, [&](std::size_t q, std::size_t) {
            std::optional<SpreadQuery> spread;
            if (!queries_.is_dense()) spread.emplace(queries_, begin + q, ScoreScratch::mine());
            answer(begin + q, out, row + q);
        });
    }

  private:
    struct Node {
        float key;    // with the largest weight of its labels
        float score;  // without
        std::uint32_t level, number;
        bool operator<(const Node& other) const {  // for a heap with the best at its top
            if (key != other.key) return key < other.key;
            return level != other.level ? level > other.level : number > other.number;
        }
    };
    struct Scratch {
        Leaders leaders;
        std::vector<Node> heap;
        std::vector<float> margins;
        static Scratch& mine() {
            thread_local Scratch scratch;
            return scratch;
        }
    };

    const Tree& tree_;
    const Queries& queries_;
    std::size_t k_;
    std::span<const std::span<const float>> log_weights_;
};

}  // namespace megalabel
