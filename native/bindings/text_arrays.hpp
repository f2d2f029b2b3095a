// Texts, and how they are analysed, as Python has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "arrays.hpp"
#include "vectorizer.hpp"

namespace megalabel::bind {

// A column of text: where each begins, and their UTF-8.
using TextArrays = std::tuple<In<std::int64_t>, In<std::uint8_t>>;

struct Lookup {
    In<std::uint64_t> slots;
    In<std::int64_t> offsets;
    In<std::uint8_t> data;

    text::Lookup view() const { return {span(slots), {span(offsets), span(data)}}; }
};

struct Stems {
    Lookup words;
    In<std::int32_t> stem_of;
    In<std::int64_t> offsets;
    In<std::uint8_t> data;
    Lookup endings;
    In<std::uint8_t> cuts;
    In<std::int64_t> appended_offsets;
    In<std::uint8_t> appended_data;

    text::Stems view() const {
        return {words.view(),   span(stem_of), {span(offsets), span(data)},
                endings.view(), span(cuts),    {span(appended_offsets), span(appended_data)}};
    }
};

struct Analysis {
    text::Unit unit;
    unicode::Case change;
    bool strip_marks;
    std::size_t shortest, longest, min_word_length, cut;
    Lookup stop_words;
    Stems stems;

    text::Analysis view() const {
        return {unit, change, strip_marks, shortest, longest, min_word_length, cut};
    }
    text::WordTables tables() const { return {stop_words.view(), stems.view()}; }
};

inline text::Strings strings_of(const TextArrays& arrays) {
    return {span(std::get<0>(arrays)), span(std::get<1>(arrays))};
}

template <class T>
Out<T> to_numpy(text::Buffer<T>&& values) {
    std::size_t size = values.size;
    T* data = values.data.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T>(data, {size}, owner);
}

}  // namespace megalabel::bind
