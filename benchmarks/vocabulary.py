"""Vocabularies: how long it takes to read, keep and open them, and in how much memory.

    python benchmarks/vocabulary.py --data DATA [--concepts 2000000] [--results FILE]

DATA holds stw-skos.ttl.gz and yso-en.tsv.gz, yso-fi.tsv.gz, yso-sv.tsv.gz. The synthetic
vocabulary is written in Turtle first: of each concept the type, the scheme, names in two languages,
another name for every second one, a notation, and the concept that it is narrower than, ten to
each. Every step runs in a process of its own; memory is the most that this process took.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel.data import read_vocabulary, write_vocabulary

RESULTS = Path(__file__).parent / "results" / "vocabulary.jsonl"
LANGUAGES = ("en", "fi", "sv")
BLOCK = 1 << 14
SYLLABLES = "ka lo mi ne ru ta so vi pe da hu ri go sa le mo".split()  # noqa: SIM905


def synthetic(concepts: int) -> Iterator[str]:
    """A vocabulary in Turtle, in pieces."""
    rng = np.random.default_rng(0)
    yield (
        "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
        "@prefix c: <http://example.org/concepts/> .\n"
        "<http://example.org/concepts> a skos:ConceptScheme .\n"
    )
    for start in range(0, concepts, BLOCK):
        pieces = []
        words = rng.integers(len(SYLLABLES), size=(BLOCK, 3, 2, 3)).tolist()
        for number, texts in zip(range(start, min(concepts, start + BLOCK)), words, strict=False):
            one, two, three = (
                " ".join("".join(SYLLABLES[i] for i in word) for word in text) for text in texts
            )
            other = f'    skos:altLabel "{three}"@en ;\n' if number % 2 else ""
            above = f"    skos:broader c:{number // 10} ;\n" if number else ""
            pieces.append(
                f"c:{number} a skos:Concept ;\n    skos:inScheme <http://example.org/concepts> ;\n"
                f'    skos:prefLabel "{one} {number}"@en, "{two} {number}"@fi ;\n{other}{above}'
                f'    skos:notation "{number:07}" .\n'
            )
        yield "".join(pieces)


def step(what: str, source: list[str], kept: str) -> None:
    """One step, in a process of its own; says what it found as JSON."""
    clock, busy = time.perf_counter(), time.process_time()
    found: dict[str, Any] = {}
    if what == "read":
        vocabulary = read_vocabulary(source if len(source) > 1 else source[0])
        found |= measured(clock, busy)
        clock, busy = time.perf_counter(), time.process_time()
        write_vocabulary(vocabulary, kept, "folder")
        found["keep"] = measured(clock, busy)
        found["concepts"], found["languages"] = len(vocabulary), list(vocabulary.languages)
        found["last"] = vocabulary.ids[len(vocabulary) - 1].as_py()
        files = Path(kept).iterdir()
        found["folder MB"] = round(sum(file.stat().st_size for file in files) / 1e6, 1)
        found["notes"] = {name: note.count for name, note in vocabulary.notes.items()}
    else:
        vocabulary = read_vocabulary(kept)
        found |= measured(clock, busy)
        for name, ask in (
            ("find identifier", lambda: vocabulary.find(source[0])),
            ("find name", lambda: vocabulary.matches("name", [vocabulary.name(source[0])])),
            ("find again", lambda: vocabulary.find(source[0])),
            ("whole concept", lambda: vocabulary[source[0]]),
        ):
            clock, busy = time.perf_counter(), time.process_time()
            ask()
            found[name] = measured(clock, busy)
    print(json.dumps(found))


def measured(clock: float, busy: float) -> dict[str, float]:
    """Seconds since, and the most memory so far."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": round(time.perf_counter() - clock, 4),
        "CPU": round(time.process_time() - busy, 4),
        "MB": round(memory),
    }


def run(what: str, source: list[str], kept: Path) -> dict[str, Any]:
    """A step by another process."""
    command = [sys.executable, __file__, "--step", what, str(kept), *source]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{answer.stderr}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        step(sys.argv[2], sys.argv[4:], sys.argv[3])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of real vocabularies")
    parser.add_argument("--concepts", type=int, default=2_000_000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    about = {
        "machine": f"{platform.machine()}, 2 cores",
        "version": megalabel.__version__,
        "command": f"python benchmarks/vocabulary.py --data DATA --concepts {given.concepts}",
    }
    with tempfile.TemporaryDirectory() as place:
        large = Path(place) / "synthetic.ttl"
        with open(large, "w") as file:
            file.writelines(synthetic(given.concepts))
        sources = {
            "STW (Turtle, gzip)": [given.data / "stw-skos.ttl.gz"],
            "YSO (3 TSV files, gzip)": [given.data / f"yso-{tag}.tsv.gz" for tag in LANGUAGES],
            "synthetic (Turtle)": [large],
        }
        lines = []
        for name, files in sources.items():
            kept = Path(place) / "kept"
            found = {"vocabulary": name, "MB": round(sum(f.stat().st_size for f in files) / 1e6, 1)}
            found["read"] = run("read", [str(file) for file in files], kept)
            found["open"] = run("open", [found["read"].pop("last")], kept)
            print(json.dumps(found))
            lines.append(json.dumps(found | about))
    given.results.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
