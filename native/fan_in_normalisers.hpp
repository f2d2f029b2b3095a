// Of each row, the logarithm of the sum of the exponentials of all scores, for labels that look at
// a few features (fan_in.hpp): what a softmax over labels needs before its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "fan_in.hpp"
#include "fan_in_losses.hpp"
#include "ranked.hpp"

namespace megalabel::fan_in {

// Scores of some places, and of the rows of a tile the largest so far and the sum of
// exp(number * score - largest).
struct Summed {
    const float* scores;
    const std::uint8_t* there;  // by place: whether a label is there
    std::size_t places;
    float number;
    float *most, *sums;
};

__attribute__((always_inline)) inline void sum_up(const Summed& s) {
    for (std::size_t half = 0; half < 2; ++half) {
        Vector most = vectors(s.most)[half];
        for (std::size_t p = 0; p < s.places; ++p) {
            if (!s.there[p]) continue;
            const Vector score = s.number * vectors(s.scores + p * tile)[half];
            most = score > most ? score : most;
        }
        // as long as there is nothing, the sum is zero, whatever it is multiplied with
        Vector less = vectors(s.most)[half] - most;
        less = less < -87.f ? Vector{} - 87.f : less;
        exponential(less);
        Vector sum = vectors(s.sums)[half] * less;
        for (std::size_t p = 0; p < s.places; ++p) {
            if (!s.there[p]) continue;
            Vector part = s.number * vectors(s.scores + p * tile)[half] - most;
            exponential(part);
            sum += part;
        }
        vectors(s.most)[half] = most;
        vectors(s.sums)[half] = sum;
    }
}

using SumUp = void (*)(const Summed&);
inline const SumUp sum_exponentials = choose<SumUp>(
    [](const Summed& s) MEGALABEL_AVX512 { sum_up(s); },
    [](const Summed& s) MEGALABEL_AVX2 { sum_up(s); }, [](const Summed& s) { sum_up(s); });

// Slices of the groups are cut by the sizes alone and put together in their order.
inline std::vector<float> normalisers(const Layer& layer, products::Rows<float> rows,
                                      float number) {
    layer.check();
    if (rows.width != layer.width)
        throw std::invalid_argument("rows have " + std::to_string(rows.width) +
                                    " features, but a layer sees " + std::to_string(layer.width));
    struct Scratch {
        std::vector<std::uint32_t> offsets;
        std::vector<std::uint8_t> there;
        Paged<float> held, scores;
    };
    constexpr std::size_t slice_work = std::size_t{1} << 26;  // products
    constexpr float lowest = std::numeric_limits<float>::lowest();
    const Tiles tiles(rows, 0, rows.count);
    const std::size_t padded = tiles_of(rows.count) * tile;
    const std::size_t work = layer.groups * layer.connections() * padded;
    const std::size_t slices =
        std::clamp<std::size_t>(work / slice_work, 1, std::max<std::size_t>(layer.groups, 1));
    std::vector<Paged<float>> most(slices), sums(slices);
    ScratchPool<Scratch> pool;
    parallel_for(slices, 1, [&](std::size_t slice, std::size_t) {
        most[slice].assign(padded, lowest);
        sums[slice].assign(padded, 0.f);
        pool.with([&](Scratch& s) {
            s.offsets.resize(layer.fan_in);
            s.there.resize(layer.size);
            s.scores.resize(layer.size * tile);
            for (std::size_t group = layer.groups * slice / slices;
                 group < layer.groups * (slice + 1) / slices; ++group) {
                end_if_cancelled();
                layer.offsets(group, 1, tile, s.offsets.data());
                const float* weights = layer.widened(group, 1, s.held);
                for (std::size_t i = 0; i < layer.size; ++i)
                    s.there[i] = layer.label(group * layer.size + i) >= 0;
                for (std::size_t t = 0; t < tiles_of(rows.count); ++t) {
                    score_tile(
                        {tiles[t], 1, layer.fan_in, layer.size, s.offsets.data(), weights,
                         layer.bias.empty() ? nullptr : layer.bias.data() + group * layer.size,
                         s.scores.data()});
                    sum_exponentials({s.scores.data(), s.there.data(), layer.size, number,
                                      most[slice].data() + t * tile,
                                      sums[slice].data() + t * tile});
                }
            }
        });
    });
    std::vector<float> out(rows.count);
    for (std::size_t row = 0; row < rows.count; ++row) {
        float all = lowest;
        for (const auto& part : most) all = std::max(all, part[row]);
        double sum = 0;
        for (std::size_t slice = 0; slice < slices; ++slice)
            sum += static_cast<double>(sums[slice][row]) *
                   std::exp(static_cast<double>(most[slice][row]) - static_cast<double>(all));
        out[row] = static_cast<float>(static_cast<double>(all) + std::log(sum));
    }
    return out;
}

}  // namespace megalabel::fan_in
