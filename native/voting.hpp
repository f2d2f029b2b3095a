// Labels scored by the votes of a text's nearest neighbours.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// The neighbours of n rows, m each, best first; places with no neighbour hold -infinity.
struct Neighbours {
    std::span<const std::int32_t> ids;
    std::span<const float> similarities;
    std::size_t n, m;
};

// score(label) = sum of weight * relevance over the neighbours / sum of weights, where the weight
// of a neighbour is its similarity (in parts of the nearest one's, which cancels) to the given
// power. Places left over go to the labels that got no vote, by falling prior, with the prior times
// the lowest voted score: below every vote, and smaller the less certain the votes were. A row with
// no votes at all is given the prior itself. Where labels are marked, votes are counted as without
// marks, but only marked labels are answers.
inline Ranked vote(const Neighbours& neighbours, double power, const SparseRows& labels,
                   std::span<const float> prior, std::span<const std::int32_t> by_prior,
                   std::span<const std::uint8_t> allowed, std::size_t k) {
    labels.check();
    const std::size_t width = labels.width;
    if (prior.size() != width || by_prior.size() != width)
        throw std::invalid_argument("the prior differs from the labels in length");
    if (neighbours.ids.size() != neighbours.n * neighbours.m ||
        neighbours.similarities.size() != neighbours.ids.size())
        throw std::invalid_argument("neighbours and similarities differ in shape");
    if (k == 0) throw std::invalid_argument("k must be at least 1");
    if (!allowed.empty() && allowed.size() != width)
        throw std::invalid_argument("there must be a mark for each label");
    const auto may_answer = [&](std::size_t label) {
        return allowed.empty() || allowed[label] != 0;
    };

    struct Scratch {
        std::vector<double> votes;
        std::vector<std::int32_t> voted;
        Best best;
    };
    Ranked out(neighbours.n, k, width);
    ScratchPool<Scratch> pool;
    auto answer = [&](std::size_t i, Scratch& scratch) {
        const auto* ids = neighbours.ids.data() + i * neighbours.m;
        const auto* similarities = neighbours.similarities.data() + i * neighbours.m;
        double total = 0;
        for (std::size_t j = 0; j < neighbours.m && similarities[j] > 0; ++j) {
            auto id = static_cast<std::size_t>(static_cast<std::uint32_t>(ids[j]));
            if (id >= labels.size())
                throw std::invalid_argument("a neighbour's number is outside the rows of labels");
            double weight = std::pow(static_cast<double>(similarities[j]) / similarities[0], power);
            total += weight;
            auto [from, to] = labels.row(id);
            for (std::size_t p = from; p < to; ++p) {
                if (!(labels.values[p] > 0)) continue;
                std::size_t label = labels.column(p);
                if (scratch.votes[label] == 0)
                    scratch.voted.push_back(static_cast<std::int32_t>(label));
                scratch.votes[label] += weight * labels.values[p];
            }
        }
        scratch.best.reset(k);
        float lowest = std::numeric_limits<float>::infinity();
        for (std::int32_t label : scratch.voted) {
            double& votes = scratch.votes[static_cast<std::size_t>(label)];
            auto score = static_cast<float>(votes / total);
            if (score == 0) {
                votes = 0;  // too small to tell from none
                continue;
            }
            lowest = std::min(lowest, score);
            if (may_answer(static_cast<std::size_t>(label))) scratch.best.offer(score, label);
        }
        scratch.best.write(out, i);

        std::size_t place = scratch.best.sorted().size();
        const bool any = std::isfinite(lowest);
        if (!any) lowest = 1.0f;
        const float ceiling = any ? std::nextafter(lowest, 0.0f) : 1.0f;
        for (std::size_t r = 0; r < width && place < k; ++r) {
            auto label = static_cast<std::size_t>(static_cast<std::uint32_t>(by_prior[r]));
            if (label >= width) throw std::invalid_argument("a label's number is too large");
            if (scratch.votes[label] > 0 || !may_answer(label)) continue;
            out.ids[i * k + place] = static_cast<std::int32_t>(label);
            out.scores[i * k + place++] = std::min(lowest * prior[label], ceiling);
        }
        for (std::int32_t label : scratch.voted) scratch.votes[static_cast<std::size_t>(label)] = 0;
        scratch.voted.clear();
    };
    parallel_for(neighbours.n, 64, [&](std::size_t begin, std::size_t end) {
        pool.with([&](Scratch& scratch) {
            scratch.votes.resize(width);
            for (std::size_t i = begin; i < end; ++i) answer(i, scratch);
        });
    });
    return out;
}

}  // namespace megalabel
