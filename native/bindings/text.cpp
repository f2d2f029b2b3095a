// Python's view of text to vectors: vectorizer.hpp, normal_forms.hpp.
#include <optional>
#include <utility>
#include <vector>

#include "normal_forms.hpp"
#include "parallel.hpp"
#include "text_arrays.hpp"
#include "topics.hpp"
#include "vectorizer.hpp"

namespace megalabel::bind {

namespace {

using bind::to_numpy;  // else hidden by those below

using NewTexts = std::tuple<Out<std::int64_t>, Out<std::uint8_t>>;
// A column of terms, and in how many texts and how often each occurs.
using TermArrays =
    std::tuple<In<std::int64_t>, In<std::uint8_t>, In<std::int64_t>, In<std::int64_t>>;
using NewTerms =
    std::tuple<Out<std::int64_t>, Out<std::uint8_t>, Out<std::int64_t>, Out<std::int64_t>>;
// Where rows start, their columns, and counts.
using NewCounts = std::tuple<Out<std::int64_t>, Out<std::int32_t>, Out<float>>;

text::TermsView terms_of(const TermArrays& arrays) {
    const auto& [offsets, data, text_counts, counts] = arrays;
    return {{span(offsets), span(data)}, span(text_counts), span(counts)};
}

NewTexts to_numpy(std::pair<std::vector<std::int64_t>, std::vector<std::uint8_t>>&& texts) {
    return {to_numpy(std::move(texts.first)), to_numpy(std::move(texts.second))};
}
NewTerms to_numpy(text::Terms&& terms) {
    return {to_numpy(std::move(terms.offsets)), to_numpy(std::move(terms.data)),
            to_numpy(std::move(terms.text_counts)), to_numpy(std::move(terms.counts))};
}
NewCounts to_numpy(text::CountRows&& rows) {
    return {to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)),
            to_numpy(std::move(rows.counts))};
}

// The UTF-8 of a list of strings, one after another, and where each begins.
NewTexts encode_texts(nb::typed<nb::sequence, nb::str> values) {
    auto items = nb::steal(PySequence_Fast(values.ptr(), "expected a list of strings"));
    if (!items.is_valid()) nb::raise_python_error();
    const auto n = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items.ptr()));
    std::vector<std::int64_t> offsets(n + 1);
    std::vector<std::uint8_t> data;
    for (std::size_t i = 0; i < n; ++i) {
        PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
        if (!PyUnicode_Check(item)) throw nb::type_error("expected a string");
        if (PyUnicode_IS_COMPACT_ASCII(item)) {
            const std::uint8_t* begin = PyUnicode_1BYTE_DATA(item);
            data.insert(data.end(), begin, begin + PyUnicode_GET_LENGTH(item));
        } else {  // not PyUnicode_AsUTF8, which would keep a copy in the string
            auto utf8 = nb::steal<nb::bytes>(PyUnicode_AsUTF8String(item));
            if (!utf8.is_valid()) nb::raise_python_error();
            data.insert(data.end(), utf8.c_str(), utf8.c_str() + utf8.size());
        }
        offsets[i + 1] = static_cast<std::int64_t>(data.size());
        if ((i + 1) % (1 << 16) == 0) check_signals();
    }
    return {to_numpy(std::move(offsets)), to_numpy(std::move(data))};
}

}  // namespace

void bind_text(nb::module_& m) {
    m.attr("UNICODE_VERSION") = unicode::kVersion;
    nb::enum_<text::Unit>(m, "Unit", "What n-grams are made of.")
        .value("word", text::Unit::kWord)
        .value("char", text::Unit::kCharacter)
        .value("char_wb", text::Unit::kCharacterInWord);
    nb::enum_<unicode::Case>(m, "Case", "What becomes of upper case.")
        .value("keep", unicode::Case::kKeep)
        .value("lower", unicode::Case::kLower)
        .value("fold", unicode::Case::kFold);
    nb::enum_<text::Norm>(m, "Norm", "What a row is divided by.")
        .value("none", text::Norm::kNone)
        .value("l1", text::Norm::kL1)
        .value("l2", text::Norm::kL2);
    bind_struct<Lookup>(m, "Lookup", "Terms, and the slots of `lookup_slots` to find them by.",
                        std::pair{"slots", &Lookup::slots}, std::pair{"offsets", &Lookup::offsets},
                        std::pair{"data", &Lookup::data});
    bind_struct<Stems>(m, "Stems", "The stems of words, and what becomes of the endings of others.",
                       std::pair{"words", &Stems::words}, std::pair{"stem_of", &Stems::stem_of},
                       std::pair{"offsets", &Stems::offsets}, std::pair{"data", &Stems::data},
                       std::pair{"endings", &Stems::endings}, std::pair{"cuts", &Stems::cuts},
                       std::pair{"appended_offsets", &Stems::appended_offsets},
                       std::pair{"appended_data", &Stems::appended_data});
    bind_struct<Analysis>(
        m, "Analysis", "How the terms of a text are made.", std::pair{"unit", &Analysis::unit},
        std::pair{"case", &Analysis::change}, std::pair{"strip_marks", &Analysis::strip_marks},
        std::pair{"shortest", &Analysis::shortest}, std::pair{"longest", &Analysis::longest},
        std::pair{"min_word_length", &Analysis::min_word_length}, std::pair{"cut", &Analysis::cut},
        std::pair{"stop_words", &Analysis::stop_words}, std::pair{"stems", &Analysis::stems});
    using text::Selection;
    bind_struct<Selection>(
        m, "Selection", "Which terms stay: by their texts, and at most so many (0: all).",
        std::pair{"fewest", &Selection::fewest}, std::pair{"most", &Selection::most},
        std::pair{"limit", &Selection::limit}, std::pair{"by_texts", &Selection::by_texts});

    m.def("encode_texts", &encode_texts, "values"_a);
    m.def(
        "hash_texts",
        [](TextArrays texts) {
            return to_numpy(without_gil([&] {
                text::Strings strings = strings_of(texts);
                std::vector<std::uint64_t> hashes(strings.size());
                std::size_t grain = text::rows_a_piece(strings.size(), strings.bytes() / 16);
                parallel_for(strings.size(), grain, [&](std::size_t first, std::size_t last) {
                    for (std::size_t i = first; i < last; ++i)
                        hashes[i] = text::text_hash(strings[i]);
                });
                return hashes;
            }));
        },
        "texts"_a);
    m.def(
        "normalise_texts",
        [](TextArrays texts, bool compose, bool compatible) -> std::optional<NewTexts> {
            auto changed = without_gil(
                [&] { return text::normalised(strings_of(texts), {compose, compatible}); });
            if (!changed) return std::nullopt;
            return to_numpy(std::move(*changed));
        },
        "texts"_a, nb::kw_only(), "compose"_a, "compatible"_a);
    m.def(
        "analyse",
        [](TextArrays texts, const Analysis& how) {
            return to_numpy(without_gil(
                [&] { return text::analyse(strings_of(texts), how.view(), how.tables()); }));
        },
        "texts"_a, "how"_a);
    m.def(
        "lookup_slots",
        [](TextArrays terms) {
            return to_numpy(without_gil([&] { return text::lookup_slots(strings_of(terms)); }));
        },
        "terms"_a);
    m.def(
        "count_terms",
        [](TextArrays texts, const Analysis& how) {
            return to_numpy(without_gil([&] {
                return text::count_terms(strings_of(texts), how.view(), how.tables(), false).terms;
            }));
        },
        "texts"_a, "how"_a);
    m.def(
        "merge_terms",
        [](TermArrays a, TermArrays b) {
            return to_numpy(
                without_gil([&] { return text::merge_terms(terms_of(a), terms_of(b)); }));
        },
        "a"_a, "b"_a);
    m.def(
        "select_terms",
        [](TermArrays terms, Selection wanted) {
            return to_numpy(
                without_gil([&] { return text::select_terms(terms_of(terms), wanted).first; }));
        },
        "terms"_a, "wanted"_a);
    m.def(
        "learn_rows",
        [](TextArrays texts, const Analysis& how, Selection wanted) {
            auto learned = without_gil([&] {
                return text::learn_rows(strings_of(texts), how.view(), how.tables(), wanted);
            });
            return std::tuple(to_numpy(std::move(learned.terms)), learned.found,
                              to_numpy(std::move(learned.rows)));
        },
        "texts"_a, "how"_a, "wanted"_a);
    m.def(
        "find_rows",
        [](TextArrays texts, const Analysis& how, const Lookup& terms) {
            return to_numpy(without_gil([&] {
                return text::find_rows(strings_of(texts), how.view(), how.tables(),
                                       text::TermFinder{terms.view()});
            }));
        },
        "texts"_a, "how"_a, "terms"_a);
    m.def(
        "hash_rows",
        [](TextArrays texts, const Analysis& how, std::uint32_t columns) {
            return to_numpy(without_gil([&] {
                return text::find_rows(strings_of(texts), how.view(), how.tables(),
                                       text::HashFinder(columns));
            }));
        },
        "texts"_a, "how"_a, "columns"_a);
    m.def(
        "weigh_rows",
        [](In<std::int64_t> indptr, In<std::int32_t> indices, InOut<float> values, In<float> idf,
           bool binary, bool sublinear, text::Norm norm, std::int64_t counted) {
            nb::gil_scoped_release release;
            text::weigh_rows(span(indptr), span(indices), span(values), span(idf), binary,
                             sublinear, norm, counted);
        },
        "indptr"_a, "indices"_a, "values"_a, nb::kw_only(), "idf"_a, "binary"_a, "sublinear"_a,
        "norm"_a, "counted"_a = std::numeric_limits<std::int64_t>::max());
}

}  // namespace megalabel::bind
