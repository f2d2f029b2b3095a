"""Reading SKOS: what is known of concepts, and what is odd in files."""

from __future__ import annotations

import gzip
import subprocess
import sys
import textwrap

import pytest

from megalabel.data import Concept, read_vocabulary
from megalabel.data.oddities import ODDITIES, Note, told
from megalabel.errors import DataError, MissingExtraError

pytest.importorskip("pyoxigraph", reason="SKOS is read by pyoxigraph")

PREFIXES = """\
@prefix : <http://x.org/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix iso: <http://purl.org/iso25964/skos-thes#> .
@prefix dct: <http://purl.org/dc/terms/> .
"""


@pytest.fixture
def read(tmp_path):
    """Reads Turtle, with the usual prefixes."""

    def reading(text: str, **options):
        file = tmp_path / "a.ttl"
        file.write_text(PREFIXES + textwrap.dedent(text))
        return read_vocabulary(file, **options)

    return reading


def test_all_of_a_concept_is_read(read):
    some = read("""
        :dog a skos:Concept, :Animal ;
            skos:prefLabel "dog"@en, "koira"@fi ; skos:altLabel "hound"@en ;
            skos:hiddenLabel "dgo"@en ; skos:notation "D" ; skos:broader :pet ;
            skos:definition "It barks."@en ; skos:scopeNote "Not foxes."@en ;
            skos:related :cat ; skos:inScheme :scheme .
        :cat a skos:Concept ; skos:prefLabel "cat"@en .
        :pet a skos:Concept ; skos:prefLabel "pet"@en ; skos:narrower :cat .
        :old a skos:Concept ; skos:prefLabel "hound dog"@en ; owl:deprecated true ;
            dct:isReplacedBy :dog .
        :older a skos:Concept ; skos:prefLabel "whelp"@en ; owl:deprecated "TRUE" .
        :dog dct:replaces :older .
        :Animal rdfs:subClassOf skos:Concept ; rdfs:label "Animal" .
        :scheme a skos:ConceptScheme ; dct:title "Pets"@en ; rdfs:label "Pets"@en .
    """)
    assert some["dog"] == Concept(
        "http://x.org/dog",
        {"en": "dog", "fi": "koira"},
        {"en": ["hound"]},
        {"en": ["dgo"]},
        ["D"],
        {"en": ["It barks.", "Not foxes."]},
        ["http://x.org/pet"],
        [],
        ["http://x.org/cat"],
        ["http://x.org/Animal"],
        ["http://x.org/scheme"],
    )
    assert some["pet"].narrower == ["http://x.org/dog", "http://x.org/cat"]
    assert some["cat"].related == ["http://x.org/dog"]
    assert some["old"].deprecated
    assert some["old"].replaced_by == some["older"].replaced_by == "http://x.org/dog"
    names = ["dog", "cat", "pet", "old", "older"]  # in the order of the file
    assert some.ids.to_pylist() == [f"http://x.org/{name}" for name in names]
    assert [(group.id[-6:], group.names) for group in some.types] == [("Animal", ("Animal",))]
    assert some.collections[0].names == ("Pets",)
    assert some.notes["about the scheme"] == Note(3, ("http://x.org/scheme",))
    assert some.notes["link given one way"].count == 3
    assert some.source == {"files": ["a.ttl"], "formats": ["turtle"]}
    assert some.languages == ("en", "fi")


def test_names_by_nodes_count_once_beside_plain_ones(read):
    some = read("""
        :dog a skos:Concept ; xl:prefLabel :l1 ; xl:altLabel :l2, [ xl:literalForm "pooch"@en ] ;
            skos:prefLabel "dog"@en ; skos:definition [ rdf:value "It barks."@en ] .
        :l1 a xl:Label ; xl:literalForm "dog"@en .
        :l2 a xl:Label ; xl:literalForm "hound"@en ; dct:created "2001" .
        :cat a skos:Concept ; xl:prefLabel :l3, :l4 .
        :l3 xl:literalForm "cat"@en .
    """)
    assert some["dog"].names == {"en": "dog"}
    assert sorted(some["dog"].others["en"]) == ["hound", "pooch"]
    assert some["dog"].descriptions == {"en": ["It barks."]}
    assert some["cat"].names == {"en": "cat"}
    assert set(some.notes) == {"name without text"}
    assert some.notes["name without text"].examples == ("http://x.org/cat → http://x.org/l4",)


def test_rdfs_labels_stand_in_where_there_is_no_preferred_name(read):
    some = read("""
        :dog a skos:Concept ; rdfs:label "dog"@en .
        :cat a skos:Concept ; rdfs:label "moggy"@en ; skos:prefLabel "cat"@en .
    """)
    assert [concept.names for concept in some] == [{"en": "dog"}, {"en": "cat"}]
    assert some.notes["name by rdfs:label"] == Note(1, ("http://x.org/dog",))


def test_collections_hold_what_those_within_them_hold(read):
    some = read("""
        :a a skos:Concept ; skos:prefLabel "a"@en .
        :b a skos:Concept ; skos:prefLabel "b"@en .
        :in a skos:Collection ; skos:prefLabel "inner"@en ; skos:member :a, :nothing .
        :out a iso:ConceptGroup ; skos:member :in .
        :row a skos:OrderedCollection ; skos:memberList ( :b :a ) .
        :round skos:member :turn . :turn skos:member :round, :b .
    """)
    held = {name: {id_[13:] for id_ in some[name].collections} for name in "ab"}
    assert held == {"a": {"in", "out", "row"}, "b": {"row", "round", "turn"}}
    assert {group.names for group in some.collections} == {("inner",), ()}
    assert some.notes["members not read"].count == 1


def test_what_is_not_said_to_be_a_concept_is_known_by_its_use(read):
    some = read("""
        :a skos:prefLabel "a"@en . :b skos:inScheme :s ; rdfs:label "b"@en .
        :c skos:broader :a ; a :Thing .
        :s skos:hasTopConcept :a .
        :k a :Kind ; skos:prefLabel "k"@en . :Kind rdfs:subClassOf skos:Concept .
        :p a owl:ObjectProperty ; skos:prefLabel "p"@en .
        :who dct:title "Someone" .
    """)
    assert [id_[13:] for id_ in some.ids.to_pylist()] == ["a", "b", "c", "k"]
    assert some.notes["not said to be a concept"].count == 3
    assert some["a"].collections == ["http://x.org/s"]
    assert some.notes["about terms"] == Note(3, ("http://x.org/Kind", "http://x.org/p"))
    assert some.notes["about others"] == Note(1, ("http://x.org/who",))


def test_oddities_are_counted(read):
    some = read("""
        :a a skos:Concept ; skos:prefLabel "a", "b"@en, "c"@en ; skos:broader :b, :none, :a .
        :b a skos:Concept ; skos:broader :c ; skos:prefLabel "x"@en ; skos:altLabel "x"@en, "" .
        :c a skos:Concept ; skos:broader :b ; skos:prefLabel "x"@en ; skos:example "c" .
        :d a skos:Concept ; skos:broader "b" ; owl:deprecated true ; dct:isReplacedBy :none .
        :e a skos:Concept .
    """)
    counts = {kind: note.count for kind, note in some.notes.items()}
    assert counts == {
        "two preferred names": 1,
        "cycle": 1,
        "link to itself": 1,
        "dangling link": 1,
        "unknown replacement": 1,
        "no name": 1,
        "no language": 1,
        "shared name": 1,
        "name twice": 1,
        "blank text": 1,
        "wrong value": 1,
        "deprecated": 1,
        "deprecated without replacement": 1,
        "link given one way": 3,
        "property not read": 1,
    }
    assert set(counts) <= set(ODDITIES)
    assert next(told(some.notes))[0] == "error"
    assert some.notes["property not read"].examples == (
        "http://www.w3.org/2004/02/skos/core#example (1)",
    )


SAME = {
    "a.ttl": PREFIXES + ':a a skos:Concept ; skos:prefLabel "é"@en-GB .',
    "a.nt": "<http://x.org/a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
    "<http://www.w3.org/2004/02/skos/core#Concept> .\n<http://x.org/a> "
    '<http://www.w3.org/2004/02/skos/core#prefLabel> "é"@en-GB .\n',
    "a.rdf": '<?xml version="1.0"?>\n<rdf:RDF xmlns:skos="http://www.w3.org/2004/02/skos/core#" '
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n'
    '<skos:Concept rdf:about="http://x.org/a"><skos:prefLabel xml:lang="en-GB">é'
    "</skos:prefLabel></skos:Concept></rdf:RDF>",
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("form", ["plain", "gzip", "marked", "marked gzip", "other name"])
def test_all_formats_give_the_same(tmp_path, name, form):
    data = SAME[name].encode()
    if "marked" in form:
        data = b"\xef\xbb\xbf" + data
    file = tmp_path / name
    if "gzip" in form:
        file, data = tmp_path / f"{name}.gz", gzip.compress(data)
    if form == "other name":
        file = tmp_path / "vocabulary.txt"
    file.write_bytes(data)
    assert [*read_vocabulary(file)] == [Concept("http://x.org/a", {"en-gb": "é"})]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.ttl", PREFIXES + ":a :b ; .\n", "a.ttl, line 9, column 7: expected Turtle, found"),
        ("a.ttl", PREFIXES + ':a :b "x .\n', "a.ttl, line 9.*expected Turtle"),
        ("a.nt", SAME["a.nt"] + "<a> <b .\n", "a.nt, line 3.*expected N-Triples"),
        ("a.rdf", SAME["a.rdf"].replace("</skos:pref", "</skos:alt"), "a.rdf.*expected RDF/XML"),
        ("a.ttl", PREFIXES + ":a :b :c .", "expected concepts.*1 statements, none of them"),
        ("a.ttl", "", "the file is empty"),
        ("a.ttl", "# none\n", "expected concepts"),
    ],
)
def test_broken_files_name_the_place(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read_vocabulary(tmp_path / name)


def test_entities_of_xml_are_read_if_they_are_plain(tmp_path, monkeypatch):
    file = tmp_path / "a.rdf"
    entities = '<!DOCTYPE rdf:RDF [<!ENTITY x "http://x.org/"><!ENTITY y "é" >]>\n<rdf:RDF'
    text = SAME["a.rdf"].replace("<rdf:RDF", entities, 1).replace("http://x.org/a", "&x;a")
    file.write_text(text)
    for size in (7, 600, 1 << 20):  # wherever a file is cut
        monkeypatch.setattr("megalabel.data.formats.lines.BLOCK", size)
        assert read_vocabulary(file)[0].id == "http://x.org/a"
    large = '"' + "e" * 300 + '"'
    for worse in ('"&x;&x;"', large, '"%z;"', 'SYSTEM "file:///etc/passwd"'):
        file.write_text(text.replace('"é"', worse, 1))
        for size in (7, 1 << 20):
            monkeypatch.setattr("megalabel.data.formats.lines.BLOCK", size)
            with pytest.raises(DataError, match="entities that are short texts"):
                read_vocabulary(file)


def test_elements_of_xml_that_lie_too_deep_are_refused(tmp_path, monkeypatch):
    """Each takes the parser as long as it is deep: a file of 5 MB took it minutes."""
    head, tail = SAME["a.rdf"].split("<skos:Concept", 1)[0], "</rdf:RDF>"
    about = '<skos:Concept rdf:about="http://x.org/{}"><skos:narrower>'
    closing = "</skos:narrower></skos:Concept>"

    def nested(deep: int) -> str:
        opened = "".join(map(about.format, range(deep)))
        return f'{head}{opened}<skos:Concept rdf:about="u:last"/>{closing * deep}{tail}'

    file = tmp_path / "a.rdf"
    file.write_text(nested(127))
    assert len(read_vocabulary(file)) == 128
    # what looks like the ends of elements does not hide how deep these are
    hidden = "<!-- </a> --><![CDATA[</a>]]>"
    texts = [nested(100_000), nested(100_000)[: 1 << 20], about.join([head, *[hidden] * 300])]
    for size in (1 << 10, 1 << 20):
        monkeypatch.setattr("megalabel.data.formats.lines.BLOCK", size)
        for text in texts:
            file.write_text(text)
            with pytest.raises(DataError, match=r"a.rdf, line \d+: expected elements in at most"):
                read_vocabulary(file)
    # texts that XML does not allow are none of its business
    name = '<skos:prefLabel xml:lang="en">caf\xe9 \x0b</skos:prefLabel>'
    whole = f'{head}<skos:Concept rdf:about="u:1">{name}</skos:Concept>{tail}'
    file.write_bytes(b"\xef\xbb\xbf" + whole.encode())
    assert read_vocabulary(file)[0].names["en"].startswith("café")


def test_text_that_is_not_utf8_names_the_line(tmp_path):
    (tmp_path / "a.ttl").write_bytes((PREFIXES + ':a skos:prefLabel "caf\xe9"').encode("latin-1"))
    with pytest.raises(DataError, match=r"line 9.*Invalid UTF-8"):
        read_vocabulary(tmp_path / "a.ttl")


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path):
    file = tmp_path / "a.ttl.gz"
    file.write_bytes(gzip.compress(PREFIXES.encode() + b"\n" * (20 << 20)))
    with pytest.raises(DataError, match=r"unpack to more than .*max_bytes"):
        read_vocabulary(file)
    with pytest.raises(DataError, match="expected concepts"):
        read_vocabulary(file, max_bytes=30 << 20)


def test_several_files_are_one_vocabulary_and_their_nodes_are_apart(tmp_path):
    for name, language in (("a", "en"), ("b", "fi")):
        text = f':a xl:prefLabel _:l . _:l xl:literalForm "{name}"@{language} .'
        (tmp_path / f"{name}.ttl").write_text(PREFIXES + text)
    some = read_vocabulary([tmp_path / "a.ttl", tmp_path / "b.ttl"])
    assert some[0].names == {"en": "a", "fi": "b"}


def test_nodes_without_a_name_have_the_same_identifiers_at_each_read(read):
    text = """
        [ a skos:Concept ; skos:prefLabel "dog"@en ; skos:broader [ skos:prefLabel "pet"@en ] ] .
        _:b a skos:Concept ; skos:prefLabel "cat"@en .
    """
    first, second = read(text), read(text)
    assert first.ids.to_pylist() == second.ids.to_pylist()
    assert sorted(first.ids.to_pylist()) == ["_:1-0", "_:1-1", "_:1-2"]


@pytest.mark.parametrize(
    "said", ["skos:related", "skos:prefLabel", "skos:definition", "owl:deprecated", "skos:notation"]
)
def test_statements_as_values_are_counted(read, said):
    some = read(f':a a skos:Concept ; skos:prefLabel "a"@en ; {said} <<( :a :b :c )>> .')
    assert len(some) == 1
    assert some[0].names == {"en": "a"}
    assert not some[0].deprecated
    assert some.notes["wrong value"].count == 1


def test_without_pyoxigraph_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.ttl").write_text(SAME["a.ttl"])
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[skos\]"):
        read_vocabulary(tmp_path / "a.ttl")


def test_the_library_does_not_load_pyoxigraph():
    code = "import megalabel, megalabel.data, sys; assert 'pyoxigraph' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
