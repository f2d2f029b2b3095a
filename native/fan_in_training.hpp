// A step of training of labels that look at a few features (fan_in.hpp), group by group: scores,
// the gradient by them, what the rows get, and the weights moved, while all of it is near. There is
// nothing of rows by labels in memory.
//
// The groups are cut into slices by the sizes alone. What rows get is summed up in each slice, then
// over the slices in their order: so the number of threads does not matter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "fan_in.hpp"
#include "fan_in_backward.hpp"
#include "fan_in_losses.hpp"
#include "fan_in_update.hpp"
#include "ranked.hpp"

namespace megalabel::fan_in {

struct Loss {
    Form form;
    float number;
};

template <class T>
class Step {
  public:
    // places: of each label, -1 where it is not here. bias: moved, or empty.
    Step(Layer layer, std::span<const std::int32_t> places, Moving<T> moving, std::span<float> bias,
         products::Rows<float> rows, Truth truth, Loss loss, Optimiser optimiser, bool update,
         bool valued)
        : layer_(layer),
          moving_(moving),
          bias_(bias),
          rows_(rows),
          truth_(truth),
          loss_(loss),
          optimiser_(optimiser),
          update_(update),
          valued_(valued) {
        layer_.check();
        auto fit = [](const char* what, std::size_t found, std::size_t wanted, bool none) {
            if (found != wanted && !(none && found == 0))
                throw std::invalid_argument(std::string(what) + " are " + std::to_string(found) +
                                            ", not " + std::to_string(wanted));
        };
        fit("features of rows", rows.width, layer.width, false);
        fit("places", places.size(), layer.names, false);
        fit("row starts", truth.starts.size(), rows.count + 1, false);
        fit("positives", truth.positives.size(), truth.labels.size(), false);
        fit("negatives", truth.negatives.size(), truth.labels.size(), false);
        fit("weights of labels", truth.weights.size(), layer.names, true);
        if (layer.size > std::numeric_limits<std::uint16_t>::max())
            throw std::invalid_argument("a group of " + std::to_string(layer.size) +
                                        " labels is too large");
        if (loss.form == Form::softmax) {
            fit("normalisers", truth.normalisers.size(), rows.count, false);
            fit("masses", truth.masses.size(), rows.count, false);
        }
        gather(places);
    }

    // The value of the loss; `out` gets its gradient by the rows.
    double run(std::span<float> out) {
        if (out.size() != rows_.count * rows_.width)
            throw std::invalid_argument("the gradient by the rows differs from them in size");
        const Tiles tiles(rows_, 0, rows_.count);
        const std::size_t held = tiles_of(rows_.count) * tiles.size();
        const std::size_t each =
            std::max<std::size_t>(1, layer_.connections() * tiles_of(rows_.count) * tile);
        const std::size_t most =
            std::clamp<std::size_t>(most_held / std::max<std::size_t>(held, 1), 2, 64);
        const std::size_t slices =
            std::clamp<std::size_t>(layer_.groups * each / slice_work, 1, most);
        std::vector<Paged<float>> sums(slices);
        std::vector<double> values(slices, 0);
        ScratchPool<Scratch> pool;
        // In rounds, as signals are looked at between pieces.
        const std::size_t round = std::max<std::size_t>(1, piece / each);
        const std::size_t longest = (layer_.groups + slices - 1) / slices;
        for (std::size_t at = 0; at < std::max<std::size_t>(longest, 1); at += round)
            parallel_for(slices, 1, [&](std::size_t slice, std::size_t) {
                const std::size_t begin = layer_.groups * slice / slices + at;
                const std::size_t end =
                    std::min(layer_.groups * (slice + 1) / slices, begin + round);
                if (at == 0) sums[slice].assign(held, 0.f);
                pool.with([&](Scratch& scratch) {
                    for (std::size_t group = begin; group < end; ++group) {
                        end_if_cancelled();
                        values[slice] += learn(group, tiles, sums[slice].data(), scratch);
                    }
                });
            });
        add_up(sums, out);
        double value = 0;
        for (const double part : values) value += part;
        return value;
    }

  private:
    static constexpr std::size_t most_held = std::size_t{1} << 25;   // numbers, of all slices
    static constexpr std::size_t slice_work = std::size_t{1} << 25;  // products of a slice
    static constexpr std::size_t piece = std::size_t{1} << 29;       // of a piece of work

    static std::size_t rounded_up(std::size_t n) { return products::rounded_up(n, lanes); }

    struct Entry {
        std::size_t place;
        std::uint32_t row;
        std::size_t number;  // among the entries

        bool operator<(const Entry& other) const {
            return std::tie(place, row) < std::tie(other.place, other.row);
        }
    };

    struct Scratch {
        std::vector<std::uint32_t> offsets;
        std::vector<std::uint16_t> active, rows_active;
        Paged<float> held, scores, turned, label_weights, by_weights, by_bias, gradient;
        std::vector<std::pair<std::size_t, float>> slopes;
        Moving<T>::Scratch moments;
    };

    // The entries of labels that are here, by place.
    void gather(std::span<const std::int32_t> places) {
        for (std::size_t row = 0; row < rows_.count; ++row) {
            const std::int64_t begin = truth_.starts[row], end = truth_.starts[row + 1];
            if (begin < 0 || end < begin || static_cast<std::size_t>(end) > truth_.labels.size())
                throw std::invalid_argument("row " + std::to_string(row) +
                                            " of the truth lies outside the arrays");
            for (auto at = static_cast<std::size_t>(begin); at < static_cast<std::size_t>(end);
                 ++at) {
                const std::int32_t label = truth_.labels[at];
                if (label < 0 || static_cast<std::size_t>(label) >= layer_.names)
                    throw std::invalid_argument("the truth names label " + std::to_string(label) +
                                                " of " + std::to_string(layer_.names));
                const std::int32_t place = places[static_cast<std::size_t>(label)];
                if (place < 0) continue;
                if (static_cast<std::size_t>(place) >= layer_.places() ||
                    layer_.labels[static_cast<std::size_t>(place)] != label)
                    throw std::invalid_argument("label " + std::to_string(label) +
                                                " is not at its place");
                entries_.push_back(
                    {static_cast<std::size_t>(place), static_cast<std::uint32_t>(row), at});
            }
        }
        std::sort(entries_.begin(), entries_.end());
        for (std::size_t e = 1; e < entries_.size(); ++e)
            if (!(entries_[e - 1] < entries_[e]))
                throw std::invalid_argument("row " + std::to_string(entries_[e].row) +
                                            " has a label twice");
    }

    std::span<const Entry> entries_of(std::size_t group) const {
        auto from = [&](std::size_t place) {
            return std::lower_bound(entries_.begin(), entries_.end(), Entry{place, 0, 0});
        };
        return {from(group * layer_.size), from((group + 1) * layer_.size)};
    }

    // One group, all rows; gives the value of its loss.
    double learn(std::size_t group, const Tiles& tiles, float* by_rows, Scratch& s) const {
        const std::size_t size = layer_.size, connections = layer_.connections();
        const bool full = filled(size);
        s.offsets.resize(layer_.fan_in);
        layer_.offsets(group, 1, tile, s.offsets.data());
        const float* weights = layer_.widened(group, 1, s.held);
        s.scores.resize(size * tile);
        s.turned.resize(size * tile);
        s.active.resize(size);
        s.rows_active.resize(tile);
        s.label_weights.resize(size);
        const std::size_t sums = full ? connections : rounded_up(connections) * lanes;
        s.by_weights.assign(update_ ? sums : 0, 0.f);
        s.by_bias.assign(update_ && !bias_.empty() ? rounded_up(size) * lanes : 0, 0.f);
        for (std::size_t i = 0; i < size; ++i) {
            const std::int32_t label = layer_.label(group * size + i);
            s.label_weights[i] = label < 0 ? -1.f
                                 : truth_.weights.empty()
                                     ? truth_.weight
                                     : truth_.weights[static_cast<std::size_t>(label)];
        }
        const std::span<const Entry> entries = entries_of(group);
        Learning l{};
        l.fan_in = layer_.fan_in;
        l.size = size;
        l.offsets = s.offsets.data();
        l.weights = weights;
        l.scores = s.scores.data();
        l.turned = s.turned.data();
        l.label_weights = s.label_weights.data();
        l.number = loss_.number;
        l.active = s.active.data();
        l.rows_active = s.rows_active.data();
        l.by_weights = s.by_weights.data();
        l.by_bias = s.by_bias.empty() ? nullptr : s.by_bias.data();
        const float* bias = bias_.empty() ? nullptr : bias_.data() + group * size;
        bool moved = false;
        alignas(64) float normalisers[tile] = {}, masses[tile] = {};
        for (std::size_t t = 0; t < tiles_of(rows_.count); ++t) {
            const std::size_t first = t * tile;
            l.rows = tiles[t];
            l.row_count = std::min(tile, rows_.count - first);
            l.by_rows = by_rows + t * tiles.size();
            if (loss_.form == Form::softmax) {
                std::copy_n(truth_.normalisers.data() + first, l.row_count, normalisers);
                std::copy_n(truth_.masses.data() + first, l.row_count, masses);
                l.normalisers = normalisers;
                l.masses = masses;
            }
            score_tile({l.rows, 1, l.fan_in, size, l.offsets, weights, bias, l.scores});
            see_entries(entries, first, l, s);
            to_gradients(l, loss_.form, valued_);
            for (const auto& [at, slope] : s.slopes) l.scores[at] = slope;
            back(l, update_);
            moved |= l.active_count > 0;
        }
        if (update_) move(group, moved, const_cast<float*>(weights), s);
        return l.value;
    }

    // The gradients of entries in a tile, by their scores.
    void see_entries(std::span<const Entry> entries, std::size_t first, Learning& l,
                     Scratch& s) const {
        s.slopes.clear();
        const One one{loss_.form, static_cast<double>(loss_.number)};
        for (const Entry& entry : entries) {
            if (entry.row < first || entry.row >= first + tile) continue;
            const std::size_t i = entry.place % layer_.size, row = entry.row - first;
            const double score = static_cast<double>(l.scores[i * tile + row]);
            const auto a = static_cast<double>(truth_.positives[entry.number]);
            const auto b = static_cast<double>(truth_.negatives[entry.number]);
            double slope, value;
            if (loss_.form == Form::softmax) {
                const double logit = static_cast<double>(loss_.number) * score -
                                     static_cast<double>(truth_.normalisers[entry.row]);
                const auto mass = static_cast<double>(truth_.masses[entry.row]);
                slope = static_cast<double>(loss_.number) * (mass * std::exp(logit) - a);
                value = -a * logit;
            } else {
                slope = b * one.slope(score) - a * one.slope(-score);
                const auto usual = static_cast<double>(l.label_weights[i]);
                value = valued_ ? a * one.value(-score) + (b - usual) * one.value(score) : 0;
            }
            l.value += valued_ ? value : 0;
            s.slopes.emplace_back(i * tile + row, static_cast<float>(slope));
        }
    }

    void move(std::size_t group, bool moved, float* held, Scratch& s) const {
        const bool still =
            optimiser_.method == Method::sgd && moving_.first == nullptr && optimiser_.decay == 0;
        if (!moved && still) return;
        const float* gradient = s.by_weights.data();
        if (!filled(layer_.size)) {
            s.gradient.resize(rounded_up(layer_.connections()));
            sum_lanes(s.by_weights.data(), layer_.connections(), s.gradient.data());
            gradient = s.gradient.data();
        }
        moving_.move(group, held, gradient, optimiser_, s.moments);
        if (bias_.empty()) return;
        s.label_weights.resize(rounded_up(layer_.size));  // no longer needed for what they were
        sum_lanes(s.by_bias.data(), layer_.size, s.label_weights.data());
        for (std::size_t i = 0; i < layer_.size; ++i)
            bias_[group * layer_.size + i] -= optimiser_.rate * s.label_weights[i];
    }

    // The sums of all slices, row by row.
    void add_up(const std::vector<Paged<float>>& sums, std::span<float> out) const {
        const std::size_t width = rows_.width, step = 16;
        const std::size_t pieces = (width + step - 1) / step;
        parallel_for(tiles_of(rows_.count) * pieces, 4, [&](std::size_t begin, std::size_t end) {
            for (std::size_t p = begin; p < end; ++p) {
                const std::size_t t = p / pieces, first = p % pieces * step;
                for (std::size_t j = first; j < std::min(width, first + step); ++j) {
                    const std::size_t at = (t * width + j) * tile;
                    Vector total[2] = {};
                    for (const Paged<float>& part : sums) {
                        total[0] += vectors(part.data() + at)[0];
                        total[1] += vectors(part.data() + at)[1];
                    }
                    for (std::size_t r = 0; r < std::min(tile, rows_.count - t * tile); ++r)
                        out[(t * tile + r) * width + j] = total[r / lanes][r % lanes];
                }
            }
        });
    }

    Layer layer_;
    Moving<T> moving_;
    std::span<float> bias_;
    products::Rows<float> rows_;
    Truth truth_;
    Loss loss_;
    Optimiser optimiser_;
    bool update_, valued_;
    std::vector<Entry> entries_;
};

}  // namespace megalabel::fan_in
