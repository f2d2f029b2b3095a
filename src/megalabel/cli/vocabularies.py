"""vocabulary show, search, convert, check: what is done with a vocabulary by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from megalabel import store
from megalabel.cli import output
from megalabel.cli.shared import Json
from megalabel.data.oddities import ERROR, WARNING, told
from megalabel.data.vocabularies import read_vocabulary, write_vocabulary
from megalabel.data.vocabularies.summary import summary
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import ParameterError
from megalabel.outputs import check_file, check_folder

_BAD_DATA = 3
_SHOWN = 20  # languages, types, collections of a summary

app = typer.Typer(
    help="Show, search, convert and check a vocabulary: SKOS, TSV, CSV, JSON lines, or a folder.",
    no_args_is_help=True,
)

Source = Annotated[
    Path, typer.Argument(help="A file or folder of a vocabulary, or a model with one.")
]
From = Annotated[
    str | None,
    typer.Option("--from", help="turtle, rdf/xml, n-triples, tsv, csv or jsonl; else by looking."),
]
FromLanguage = Annotated[
    str | None, typer.Option(help="The language of TSV files; else by the ends of their names.")
]
MaxBytes = Annotated[
    int | None, typer.Option(help="Bytes that a packed file may unpack to, if it looks too small.")
]
Language = Annotated[str | None, typer.Option(help="The language of the names, such as en.")]


@app.command()
def show(
    path: Source,
    concept: Annotated[
        str | None,
        typer.Argument(help="An identifier, the last part of one, a notation or a name."),
    ] = None,
    language: Language = None,
    from_: From = None,
    from_language: FromLanguage = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Show what is in a vocabulary, or all that is known of one concept."""
    vocabulary = _read([path], from_, from_language, max_bytes)
    if concept is not None:
        _show_concept(vocabulary, vocabulary.number(concept), language, as_json)
        return
    found = summary(vocabulary)
    notes = _notes(vocabulary)
    if as_json:
        output.show_json(found | {"notes": notes})
        return
    facts = {name: value for name, value in found.items() if not isinstance(value, dict)}
    output.show_facts(f"Vocabulary {path.name}", facts)
    for name in ("languages", "types", "collections"):
        if found[name]:
            rows = [[what or "none", count] for what, count in found[name].items()]
            output.console.print()
            output.show_table("", [name, "concepts"], rows[:_SHOWN])
            if len(rows) > _SHOWN:
                output.console.print(f"[dim]and {len(rows) - _SHOWN:,} more[/]")
    if notes:
        output.console.print()
        _show_notes(notes, examples=False)


@app.command()
def search(
    path: Source,
    words: Annotated[str, typer.Argument(help="Words of a name, or their beginnings.")],
    language: Language = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many concepts, at most.")] = 10,
    from_: From = None,
    from_language: FromLanguage = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Find concepts by words of their names, or by the beginnings of words: best first."""
    vocabulary = _read([path], from_, from_language, max_bytes)
    numbers = vocabulary.search(words, k, language).tolist()
    found = [(vocabulary.name(number, language), vocabulary[number]) for number in numbers]
    if as_json:
        keys = ("id", "notations", "deprecated")
        answers = [{"name": name} | {key: getattr(one, key) for key in keys} for name, one in found]
        output.show_json(answers)
        return
    if not found:
        output.console.print("nothing found")
        return
    rows = [
        [name, ", ".join(one.notations), one.id, "deprecated" if one.deprecated else ""]
        for name, one in found
    ]
    output.show_table("", ["name", "notation", "identifier", ""], rows)


@app.command()
def convert(
    sources: Annotated[list[Path], typer.Argument(help="A vocabulary, of one or more files.")],
    out: Annotated[Path, typer.Argument(help="The file or folder to write.")],
    to: Annotated[
        str | None,
        typer.Option(help="folder, turtle, n-triples, tsv, csv or jsonl; else by OUT's name."),
    ] = None,
    language: Annotated[str | None, typer.Option(help="The language of a TSV file.")] = None,
    base: Annotated[
        str | None, typer.Option(help="In SKOS, what stands before identifiers that are no IRIs.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace OUT if it is there.")] = False,
    from_: From = None,
    from_language: FromLanguage = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Write a vocabulary in another format, or as a folder that opens at once."""
    if out.exists() and not overwrite:
        raise ParameterError(f"{out} is there already; --overwrite replaces it")
    check = check_folder if out.is_dir() or not out.suffix else check_file
    check(out)
    vocabulary = _read(sources, from_, from_language, max_bytes)
    write_vocabulary(vocabulary, out, to, language=language, base=base)
    if as_json:
        output.show_json({"concepts": len(vocabulary), "out": str(out)})
        return
    wrote = f"Wrote {len(vocabulary):,} concepts to {escape(str(out))}"
    output.console.print(wrote, soft_wrap=True)
    _show_notes(_notes(vocabulary), examples=False)


@app.command()
def check(
    sources: Annotated[list[Path], typer.Argument(help="A vocabulary, of one or more files.")],
    strict: Annotated[bool, typer.Option(help="Take warnings for errors.")] = False,
    from_: From = None,
    from_language: FromLanguage = None,
    max_bytes: MaxBytes = None,
    as_json: Json = False,
) -> None:
    """Say what is odd in a vocabulary, with examples. Ends with 3 if any of it is an error."""
    vocabulary = _read(sources, from_, from_language, max_bytes)
    notes = _notes(vocabulary)
    bad = {ERROR, WARNING} if strict else {ERROR}
    sound = not any(note["level"] in bad for note in notes.values())
    if as_json:
        output.show_json({"concepts": len(vocabulary), "sound": sound, "notes": notes})
    else:
        _show_notes(notes, examples=True)
        verdict = "sound" if sound else "there are errors"
        output.console.print(f"{len(vocabulary):,} concepts: {verdict}", soft_wrap=True)
    if not sound:
        raise typer.Exit(_BAD_DATA)


def _read(
    paths: list[Path], format: str | None, language: str | None, max_bytes: int | None
) -> Vocabulary:
    """The vocabulary of files, a folder, or the labels of a model."""
    if len(paths) == 1 and store.is_model(paths[0]):
        labels = store.load(paths[0]).labels
        if labels.vocabulary is None:
            raise ParameterError(f"the labels of the model {paths[0]} have no vocabulary")
        vocabulary: Vocabulary = labels.vocabulary
        return vocabulary
    path = paths[0] if len(paths) == 1 else paths
    return read_vocabulary(path, format, language=language, max_bytes=max_bytes)


def _show_concept(vocabulary: Vocabulary, number: int, language: str | None, as_json: bool) -> None:
    concept = vocabulary[number]
    name = vocabulary.name(number, language)
    linked = [*concept.broader, *concept.narrower, *concept.related]
    linked += [concept.replaced_by] if concept.replaced_by else []
    names = vocabulary.names(vocabulary.numbers(linked), language).to_pylist()
    named = dict(zip(linked, names, strict=True))
    if as_json:
        output.show_json({"name": name, **concept.to_dict(), "linked": named})
        return
    groups = {group.id: group.names for group in (*vocabulary.types, *vocabulary.collections)}

    def those(ids: list[str]) -> str:
        return "\n".join(f"{named[id_]} ({id_})" for id_ in ids)

    def spoken(texts: dict[str, list[str]]) -> str:
        return "\n".join(f"{', '.join(some)} [{tag or '–'}]" for tag, some in texts.items())

    def grouped(ids: list[str]) -> str:
        return "\n".join(" / ".join(groups[id_]) or id_ for id_ in ids)

    facts: dict[str, Any] = {
        "identifier": concept.id,
        "name": spoken({tag: [text] for tag, text in concept.names.items()}),
        "other names": spoken(concept.others),
        "hidden names": spoken(concept.hidden),
        "notation": ", ".join(concept.notations),
        "description": spoken(concept.descriptions),
        "broader": those(concept.broader),
        "narrower": those(concept.narrower),
        "related": those(concept.related),
        "type": grouped(concept.types),
        "collection": grouped(concept.collections),
        "deprecated": "yes" if concept.deprecated else "",
        "replaced by": those([concept.replaced_by] if concept.replaced_by else []),
    }
    output.show_facts(name, {what: value for what, value in facts.items() if value})


def _notes(vocabulary: Vocabulary) -> dict[str, dict[str, Any]]:
    """What is odd, by kind, with how bad it is."""
    kinds = {id(note): kind for kind, note in vocabulary.notes.items()}
    return {
        kinds[id(note)]: {
            "level": level,
            "count": note.count,
            "what": words,
            "examples": list(note.examples),
        }
        for level, words, note in told(vocabulary.notes)
    }


def _show_notes(notes: dict[str, dict[str, Any]], examples: bool) -> None:
    if not notes:
        return
    output.show_table(
        "What is odd" if examples else "",
        ["", "count", "what", *(["for example"] if examples else [])],
        [
            [note["level"], note["count"], note["what"]]
            + (["\n".join(note["examples"])] if examples else [])
            for note in notes.values()
        ],
    )
