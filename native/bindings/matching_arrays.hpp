// The words of labels' names, as Python has them.
#pragma once

#include <cstdint>

#include "arrays.hpp"
#include "matching.hpp"

namespace megalabel::bind {

struct Names {
    In<std::int64_t> name_starts;
    In<std::int64_t> word_starts;
    In<std::int32_t> words;
    In<std::int32_t> stems;
    In<float> word_idf;
    In<float> stem_idf;
    float unknown_idf;

    matching::Names view() const {
        return {span(name_starts), span(word_starts), span(words), span(stems),
                span(word_idf),    span(stem_idf),    unknown_idf};
    }
};

}  // namespace megalabel::bind
