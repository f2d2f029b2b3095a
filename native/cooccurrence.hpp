// Which labels come together: for each label the others that a share of its texts carry as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "label_vectors.hpp"
#include "parallel.hpp"
#include "ranked.hpp"

namespace megalabel {

// The texts of one label, counted by the labels that they carry.
class Companions {
  public:
    // Counts the labels of a text.
    void add(const SparseRows& texts, std::size_t text) {
        if (counts_.size() < texts.width) counts_.resize(texts.width);
        const auto [begin, end] = texts.row(text);
        for (std::size_t p = begin; p < end; ++p) {
            const std::size_t label = texts.column(p);
            if (counts_[label]++ == 0) touched_.push_back(static_cast<std::int32_t>(label));
        }
    }

    // Adds to a line of the result, by label: the share of each in `texts` texts, where it is above
    // the threshold; 1 for the label itself. What was counted is forgotten.
    void take(std::size_t self, std::size_t texts, double threshold,
              std::vector<std::int32_t>& columns, std::vector<float>& values) {
        kept_.clear();
        for (std::int32_t label : touched_) {
            const double share = counts_[static_cast<std::size_t>(label)] / double(texts);
            const bool own = static_cast<std::size_t>(label) == self;
            if (!own && share > threshold) kept_.push_back({label, static_cast<float>(share)});
            counts_[static_cast<std::size_t>(label)] = 0;
        }
        touched_.clear();
        kept_.push_back({static_cast<std::int32_t>(self), 1.f});
        std::sort(kept_.begin(), kept_.end());
        for (const auto& [label, share] : kept_) {
            columns.push_back(label);
            values.push_back(share);
        }
    }

  private:
    std::vector<std::uint32_t> counts_;
    std::vector<std::int32_t> touched_;
    std::vector<std::pair<std::int32_t, float>> kept_;
};

// For each label, the share of its texts that carry each other label, where that is above a
// threshold; 1 for itself. `texts` are the labels of each text, each once; `labels` the texts of
// each label: the same cells. What is below the threshold is dropped label by label.
inline SparseVectors cooccurrence(const SparseRows& texts, const SparseRows& labels,
                                  double threshold) {
    texts.check();
    labels.check();
    if (labels.width != texts.size() || texts.width != labels.size())
        throw std::invalid_argument("texts by label are of another shape than labels by text");
    constexpr std::size_t often = 4096;  // texts between two looks at whether all is cancelled
    return made_by_rows<Companions>(
        labels.size(),
        [&](Companions& companions, std::size_t label, auto& columns, auto& values) {
            const auto [begin, end] = labels.row(label);
            for (std::size_t p = begin; p < end; ++p) {
                companions.add(texts, labels.column(p));
                if ((p - begin) % often == often - 1) end_if_cancelled();
            }
            companions.take(label, end - begin, threshold, columns, values);
        });
}

}  // namespace megalabel
