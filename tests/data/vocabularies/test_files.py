"""Tables and JSON lines of concepts, round trips of all formats, and files that are broken."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megalabel.data import Concept, Vocabulary, read_vocabulary, write_vocabulary
from megalabel.data.vocabularies.tables import language_of
from megalabel.errors import DataError, OutputError, ParameterError, StoreError

HAS_RDF = importlib.util.find_spec("pyoxigraph") is not None
FORMATS = [
    pytest.param(name, marks=pytest.mark.skipif(rdf and not HAS_RDF, reason="needs pyoxigraph"))
    for name, rdf in (("a.ttl", True), ("a.nt.gz", True), ("a.jsonl.zst", False), ("a", False))
]


def concept(number: int) -> str:
    return f"http://x.org/Q{number}"


# what is cut off at the ends does not come back
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).map(str.strip).filter(bool)
LANGUAGE = st.sampled_from(["en", "fi", "en-gb", ""])
BY_LANGUAGE = st.dictionaries(LANGUAGE, st.lists(TEXT, min_size=1, max_size=3, unique=True))
LINKS = st.lists(st.integers(0, 5).map(concept), max_size=3, unique=True)
GROUPS = st.lists(st.sampled_from(["http://x.org/t/a", "http://x.org/t/b"]), max_size=2)


@st.composite
def vocabularies(draw) -> Vocabulary:
    concepts = [
        Concept(
            concept(number),
            draw(st.dictionaries(LANGUAGE, TEXT, min_size=1)),
            draw(BY_LANGUAGE),
            draw(BY_LANGUAGE),
            draw(st.lists(TEXT, max_size=2, unique=True)),
            draw(BY_LANGUAGE),
            draw(LINKS),
            draw(LINKS),
            draw(LINKS),
            draw(GROUPS),
            [group.replace("/t/", "/c/") for group in draw(GROUPS)],
            draw(st.booleans()),
            draw(st.none() | st.integers(0, 5).map(concept)),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return Vocabulary.of(concepts)


def comparable(vocabulary: Vocabulary) -> dict:
    """Concepts, by identifier, without the order that a set of links has."""
    found = {}
    for one in vocabulary:
        for kind in ("broader", "narrower", "related", "types", "collections"):
            getattr(one, kind).sort()
        found[one.id] = one
    return found


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=vocabularies())
def test_what_is_written_is_read_back(tmp_path, name, some):
    write_vocabulary(some, tmp_path / name)
    again = read_vocabulary(tmp_path / name)
    assert again.ids.equals(some.ids)
    assert comparable(again) == comparable(some)
    assert sorted(again.languages) == sorted(some.languages)


@pytest.mark.skipif(not HAS_RDF, reason="needs pyoxigraph")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=vocabularies(), chance=st.randoms())
def test_statements_may_come_in_any_order(tmp_path, some, chance):
    write_vocabulary(some, tmp_path / "a.nt")
    lines = (tmp_path / "a.nt").read_bytes().removesuffix(b"\n").split(b"\n")
    chance.shuffle(lines)
    (tmp_path / "b.nt").write_bytes(b"\n".join(lines))
    found, expected = comparable(read_vocabulary(tmp_path / "b.nt")), comparable(some)
    for one in (*found.values(), *expected.values()):
        for texts in (one.others, one.hidden, one.descriptions):
            for listed in texts.values():
                listed.sort()
        one.notations.sort()
    assert found == expected


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(some=vocabularies())
def test_tables_bring_names_and_notations_back(tmp_path, some):
    write_vocabulary(some, tmp_path / "a.csv")
    again = read_vocabulary(tmp_path / "a.csv")
    assert again.ids.equals(some.ids)
    assert [one.names for one in again] == [one.names for one in some]
    assert [one.notations for one in again] == [one.notations[:1] for one in some]
    language = some.languages[0]
    write_vocabulary(some, tmp_path / "a.tsv", language=language)
    lines = read_vocabulary(tmp_path / "a.tsv", language=language)
    assert lines.ids.equals(some.ids)
    plain = [" ".join(one.names.get(language, "").split()) for one in some]
    assert [" ".join(one.names.get(language, "").split()) for one in lines] == plain


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=60), name=st.sampled_from(["a.tsv", "a.csv", "a.jsonl", "a.ttl"]))
def test_any_bytes_are_read_or_refused(tmp_path, data, name):
    if name == "a.ttl" and not HAS_RDF:
        return
    (tmp_path / name).write_bytes(data)
    try:
        read_vocabulary(tmp_path / name).names()
    except DataError as error:
        assert name in str(error)  # noqa: PT017


def test_files_of_several_languages_are_one_vocabulary(tmp_path):
    (tmp_path / "pets-en.tsv").write_text("<http://x/1>\tdog\n<http://x/2>\tcat\tC.2\n")
    (tmp_path / "pets-fi.tsv").write_text(
        "<http://x/2>\tkissa\n\n<http://x/3>\tkala\n<http://x/4>\n"
    )
    pets = read_vocabulary([tmp_path / "pets-en.tsv", tmp_path / "pets-fi.tsv"])
    assert [one.names for one in pets] == [
        {"en": "dog"},
        {"en": "cat", "fi": "kissa"},
        {"fi": "kala"},
        {},
    ]
    assert pets["2"].notations == ["C.2"]
    assert [one.deprecated for one in pets] == [False, False, False, True]
    assert read_vocabulary(tmp_path / "pets-fi.tsv", language="sv").languages == ("sv",)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("yso-fi.tsv.gz", "fi"),
        ("yso_sv.tsv", "sv"),
        ("a.pt-br.tsv", "pt-br"),
        ("lcsh.tsv", ""),
        ("my-own.tsv", ""),
    ],
)
def test_the_language_is_in_the_name_of_a_file(name, language):
    assert language_of(Path(name)) == language


def test_a_table_with_quotes_and_more_columns(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(
        '\ufeffnotation,label_en,uri,label_pt_BR,comment\r\n1,"dog, ""hound""",http://x/1,cão,x\r\n'
        "2,,<http://x/2>,,\r\n"
    )
    dog, two = read_vocabulary(file)
    assert dog == Concept("http://x/1", {"en": 'dog, "hound"', "pt-br": "cão"}, notations=["1"])
    assert two == Concept("http://x/2", notations=["2"], deprecated=True)


def test_json_lines_say_what_groups_are_called(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"group": "http://x/c", "names": ["Pets"]}\n'
        '{"id": "http://x/1", "names": {"en": "dog"}, "collections": ["http://x/c"]}\n'
    )
    some = read_vocabulary(tmp_path / "a.jsonl")
    assert some.collections[0].names == ("Pets",)
    write_vocabulary(some, tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_text() == (tmp_path / "a.jsonl").read_text()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "<http://x/1>\tdog\n\tcat\n", "a.tsv, line 2.*expected an identifier such as"),
        ("a.tsv", "<http://x/1>\tdog\t1\t2\n", "line 1: .*found 4 cells"),
        ("a.csv", "uri,label\nhttp://x/1,dog\n", "line 1: expected a header.*found uri, label"),
        ("a.csv", "uri,label_en\nhttp://x/1\n", "line 2: expected 2 cells.*found 1"),
        ("a.csv", 'uri,label_en\nhttp://x/1,"dog\n', "expected CSV"),
        ("a.csv", "uri,label_en\n,dog\n", "line 2.*expected an identifier"),
        ("a.csv", "uri,label_en\n", "expected concepts.*found no line"),
        ("a.jsonl", '{"id": "a"}\n{"id": 3}\n', "line 2: expected a concept with an id"),
        ("a.jsonl", '{"id": "a"\n', "line 1: expected JSON"),
        ("a.jsonl", '{"id": "a", "name": "b"}\n', "a concept has no 'name'"),
        ("a.jsonl", '{"id": "a", "names": ["b"]}\n', "strings by language as 'names'"),
        ("a.jsonl", '{"id": "a", "others": {"en": "b"}}\n', "lists of strings by language"),
        ("a.jsonl", '{"id": "a", "broader": "b"}\n', "list of strings as 'broader'"),
        ("a.jsonl", '{"id": "a", "deprecated": 1}\n', "true or false"),
        ("a.jsonl", '{"id": "a", "replaced_by": 1}\n', "expected an id"),
        ("a.jsonl", '{"id": "a"}\n{"id": "a"}\n', "line 2: the concept 'a' is there twice"),
        ("a.jsonl", '{"group": "a"}\n', "a group with its names"),
        ("a.tsv", "", "the file is empty"),
        ("a.csv", "\n \n", "the file is empty"),
        ("a.txt", "dogs and cats\n", r"expected SKOS in Turtle.*found 'dogs and cats'.*--from"),
    ],
)
def test_broken_files_say_what_is_wrong_and_where(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read_vocabulary(tmp_path / name)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_text_in_another_encoding_names_the_line(tmp_path, name):
    text = {"a.tsv": "<http://x/1>\tcafé\n", "a.csv": "uri,label_en\nhttp://x/1,café\n"}[name]
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"line .*expected UTF-8 text, found the byte 0xe9"):
        read_vocabulary(tmp_path / name)
    (tmp_path / name).write_bytes(text.encode("utf-16"))
    with pytest.raises(DataError, match=r"UTF-16"):
        read_vocabulary(tmp_path / name)


def test_what_is_not_there_says_so(tmp_path):
    with pytest.raises(DataError, match=r"none\.ttl: there is no such file"):
        read_vocabulary(tmp_path / "none.ttl")
    with pytest.raises(DataError, match="a folder, but not one of a vocabulary"):
        read_vocabulary(tmp_path)
    (tmp_path / "megalabel.json").touch()
    with pytest.raises(DataError, match="it is a model; the vocabulary of its labels"):
        read_vocabulary(tmp_path)
    with pytest.raises(ParameterError, match="an empty list"):
        read_vocabulary([])
    with pytest.raises(ParameterError, match="not 'xml'"):
        read_vocabulary(tmp_path, "xml")


def test_what_cannot_be_written_says_so(tmp_path):
    some = Vocabulary.of([Concept("a", {"en": "a"}), Concept("a b", {"en": "b"})])
    with pytest.raises(ParameterError, match=r"are written as folder, .*ending or by format"):
        write_vocabulary(some, tmp_path / "a.xls")
    with pytest.raises(ParameterError, match="not 'rdf/xml'"):
        write_vocabulary(some, tmp_path / "a.ttl", "rdf/xml")
    with pytest.raises(ParameterError, match=r"'a' is no IRI.*--base"):
        write_vocabulary(some, tmp_path / "a.ttl")
    with pytest.raises(ParameterError, match="base must be an IRI"):
        write_vocabulary(some, tmp_path / "a.ttl", base="x")
    with pytest.raises(OutputError):
        write_vocabulary(some, tmp_path / "none" / "a.tsv")
    with pytest.raises(ParameterError, match="'sv'; there are en"):
        write_vocabulary(some, tmp_path / "a.tsv", language="sv")
    odd = Vocabulary.of([Concept("http://x/a", {"in English": "a"})])
    with pytest.raises(ParameterError, match="no tag of a language"):
        write_vocabulary(odd, tmp_path / "a.ttl")
    assert not [*tmp_path.iterdir()]
    write_vocabulary(some, tmp_path / "a.ttl", base="http://x.org/")
    assert "<http://x.org/a%20b> a skos:Concept" in (tmp_path / "a.ttl").read_text()


def test_what_a_table_leaves_out_is_said(tmp_path, caplog):
    one = Concept("http://x/1", {"en": "dog"}, {"en": ["hound", "pooch"]}, notations=["1", "2"])
    some = Vocabulary.of([one, Concept("http://x/2", {"fi": "kissa"}, broader=[one.id])])
    with caplog.at_level(logging.WARNING):
        write_vocabulary(some, tmp_path / "a-en.tsv")
    assert "no place for 2 other names, 1 further notations, 2 links" in caplog.text
    assert "1 concepts have no name in 'en'" in caplog.text
    assert (tmp_path / "a-en.tsv").read_text() == "<http://x/1>\tdog\t1\n<http://x/2>\n"


def test_a_damaged_folder_is_refused(tmp_path):
    write_vocabulary(Vocabulary.of([Concept("a")]), tmp_path / "a")
    described = json.loads((tmp_path / "a" / "vocabulary.json").read_text())
    (tmp_path / "a" / "vocabulary.json").write_text(json.dumps(described | {"concepts": 2}))
    with pytest.raises(StoreError, match="own checksum"):
        read_vocabulary(tmp_path / "a")


def test_yso_in_three_languages(tmp_path, shared_data):
    files = [shared_data / f"vocabularies/yso-{language}.tsv.gz" for language in ("en", "fi", "sv")]
    yso = read_vocabulary(files)
    assert len(yso) == 27_760
    assert yso.languages == ("fi", "en", "sv")
    assert yso["koira"].names == {"en": "dog", "fi": "koira", "sv": "hund"}
    assert set(yso.notes) == {"shared name"}
    write_vocabulary(yso, tmp_path / "yso")
    assert read_vocabulary(tmp_path / "yso").find("hund") == yso.find("koira")


@pytest.mark.skipif(not HAS_RDF, reason="needs pyoxigraph")
def test_stw(shared_data):
    stw = read_vocabulary(shared_data / "vocabularies/stw-skos.ttl.gz")
    assert len(stw) == 7_394
    assert stw.languages == ("de", "en")
    assert stw["fiscal policy"].names == {"de": "Finanzpolitik", "en": "Fiscal policy"}
    assert stw.notes["deprecated"].count == int(stw.deprecated.sum()) == 1151
    assert stw.notes["about terms"].examples[1].endswith("skos/core#Collection")
    assert stw.collections[0].names[0] == "STW Thesaurus for Economics"
    assert "two preferred names" not in stw.notes
