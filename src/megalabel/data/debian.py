"""A real corpus from the machine's own Debian package lists: packages to tags or dependencies."""

from __future__ import annotations

import bz2
import gzip
import logging
import lzma
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa

from megalabel.data.corpus import Corpus
from megalabel.data.labelset import LabelSet
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError

log = logging.getLogger(__name__)

LISTS = Path("/var/lib/apt/lists")
STATUS = Path("/var/lib/dpkg/status")

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Package:
    """What is used of a package's entry."""

    name: str
    version: str
    short: str
    long: str
    tags: tuple[str, ...]
    needs: tuple[str, ...]


def read_debian(
    what: Literal["tags", "depends"] = "tags",
    lists: Paths | None = None,
    status: str | os.PathLike[str] | None = None,
    *,
    skip_bad: bool = False,
    problems: Problems | None = None,
) -> Corpus:
    """Build a corpus from Debian package lists.

    Where several lists or versions have a package, its newest version counts, with an older one's
    tags if it has none. Packages that have no label are left out, and so are dependencies on
    packages that the lists do not describe (virtual packages); both are counted in the corpus'
    `source`.

    Parameters
    ----------
    what : "tags" or "depends"
        "tags": descriptions with their debtags. "depends": "name : short description" with the
        packages that it depends on or recommends, all alternatives included; label texts have
        the same form.
    lists : folder, file or list of files, optional
        Package lists (`*_Packages`) with their `*_Translation-en`, which hold the long
        descriptions; plain, or compressed by lz4, gzip, xz, bzip2 or zstd. Where apt keeps its
        own if neither this nor `status` is given.
    status : file, optional
        dpkg's list of installed packages, used in place of package lists; the machine's own is
        the last resort. It has no tags.
    skip_bad : bool
        Leave out broken entries, which are counted in `source`, instead of raising.
    problems : Problems, optional
        Takes note of what was wrong; its own `skip` then holds instead of `skip_bad`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "main_Packages"
    >>> _ = file.write_text('''Package: vim
    ... Version: 9.1
    ... Description: enhanced vi editor
    ... Tag: use::editing, implemented-in::{c,vimscript}
    ... ''')
    >>> corpus = read_debian("tags", lists=file)
    >>> corpus.texts[0].as_py(), corpus.labels.names.to_pylist()
    ('enhanced vi editor', ['implemented-in::c', 'implemented-in::vimscript', 'use::editing'])
    """
    if what not in ("tags", "depends"):
        raise ParameterError(f"what must be 'tags' or 'depends', not {what!r}")
    problems = Problems(skip=skip_bad) if problems is None else problems
    before = problems.count
    files, translation_files = _find(lists, status)
    if what == "depends":
        translation_files = []  # short descriptions are in the lists themselves
    translations = _translations(translation_files, problems)
    packages: dict[str, Package] = {}
    for file in files:
        for package in _packages(file, translations, problems):
            other = packages.get(package.name)
            packages[package.name] = package if other is None else _merged(package, other)
    ordered = [packages[name] for name in sorted(packages)]
    corpus = _of_tags(ordered) if what == "tags" else _of_dependencies(ordered)
    if not len(corpus):
        hint = "; dpkg's status never has them, apt's lists do: run `apt-get update`"
        raise DataError(
            f"none of the {len(packages)} packages has {what}{hint if what == 'tags' else ''}",
            file=files[0],
        )
    corpus.source |= {
        "corpus": f"debian {what}",
        "files": [str(file) for file in files + translation_files],
        "packages": len(packages),
        "without labels": len(packages) - len(corpus),
        "skipped": problems.count - before,
    }
    if problems.count > before:
        log.warning("%d broken entries left out", problems.count - before)
    return corpus


def _merged(a: Package, b: Package) -> Package:
    """The newer of two entries of a package, with the other's tags where it has none."""
    newer, older = (a, b) if version_key(a.version) > version_key(b.version) else (b, a)
    # lists of updates come without tags
    return newer if newer.tags else replace(newer, tags=older.tags)


def _of_tags(packages: Iterable[Package]) -> Corpus:
    kept = [p for p in packages if p.tags]
    names = sorted({tag for p in kept for tag in p.tags})
    return Corpus(
        [f"{p.short}\n{p.long}" if p.long else p.short for p in kept],
        targets=[list(p.tags) for p in kept],
        labels=LabelSet(names, texts=[_words_of_tag(name) for name in names]),
        ids=[p.name for p in kept],
    )


def _of_dependencies(packages: Sequence[Package]) -> Corpus:
    texts = {p.name: f"{p.name} : {p.short}" for p in packages}
    named = [(p, [n for n in p.needs if n != p.name]) for p in packages]
    needs = [(p, [n for n in needed if n in texts]) for p, needed in named]
    kept = [(p, needed) for p, needed in needs if needed]
    names = sorted({name for _, needed in kept for name in needed})
    virtual = {name for _, needed in named for name in needed} - texts.keys()
    return Corpus(
        [texts[p.name] for p, _ in kept],
        targets=[needed for _, needed in kept],
        labels=LabelSet(names, texts=[texts[name] for name in names]),
        ids=[p.name for p, _ in kept],
        source={"virtual packages dropped": len(virtual)},
    )


def _words_of_tag(tag: str) -> str:
    """`implemented-in::c++` as "implemented in: c++"."""
    facet, separator, value = tag.partition("::")
    return ": ".join(part.replace("-", " ") for part in ([facet, value] if separator else [tag]))


# --- files


def _find(
    lists: Paths | None, status: str | os.PathLike[str] | None
) -> tuple[list[Path], list[Path]]:
    """The files with packages and those with translated descriptions."""
    if lists is None and status is not None:
        return [_existing(status)], []
    if lists is None:
        found = _in_folder(LISTS)
        if found[0]:
            return found
        if STATUS.is_file():
            log.warning("%s has no package lists; using the installed packages alone", LISTS)
            return [STATUS], []
        raise DataError("no package lists (*_Packages): run `apt-get update`", file=LISTS)
    if isinstance(lists, str | os.PathLike):
        path = _existing(lists)
        if not path.is_dir():
            return [path], []
        found = _in_folder(path)
        if not found[0]:
            raise DataError(
                "no package lists (*_Packages): run `apt-get update`, or name another folder",
                file=path,
            )
        return found
    files = [_existing(path) for path in lists]
    translated = [path for path in files if "_Translation-" in path.name]
    plain = [path for path in files if path not in translated]
    if not plain:
        raise DataError(f"no package list among {[str(path) for path in files]}")
    return plain, translated


def _existing(path: str | os.PathLike[str]) -> Path:
    if not Path(path).exists():
        raise DataError("no such file or folder", file=Path(path))
    return Path(path)


def _in_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    def ending(name: str) -> list[Path]:
        files = [f for f in folder.glob(f"*{name}*") if _plain_name(f).endswith(name)]
        # a plain and a compressed copy are one list; the plain one, last in order, is kept
        unique = {_plain_name(f): f for f in sorted(files, reverse=True)}
        return sorted(unique.values())

    return ending("_Packages"), ending("_Translation-en")


def _plain_name(path: Path) -> str:
    return path.stem if path.suffix in (".lz4", ".gz", ".xz", ".bz2", ".zst") else path.name


def _content(path: Path, problems: Problems) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x04\x22\x4d\x18"):
            data = pa.CompressedInputStream(pa.BufferReader(data), "lz4").read()
        elif data.startswith(b"\x28\xb5\x2f\xfd"):
            data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
        elif data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        elif data.startswith(b"\xfd7zXZ\x00"):
            data = lzma.decompress(data)
        elif data.startswith(b"BZh"):
            data = bz2.decompress(data)
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        problems.add(
            f"expected UTF-8, found the byte 0x{data[error.start]:02x}",
            file=path,
            line=data.count(b"\n", 0, error.start) + 1,
        )
        return data.decode(errors="replace")


# --- entries

_DESCRIPTIONS = ("description", "description-md5", "description-en")
_FIELDS = {"package", "version", "status", "tag", "depends", "recommends", *_DESCRIPTIONS}


def _entries(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, str]]]:
    """Each entry's first line and the fields that are used; broken entries are problems."""
    start, fields, field, broken = 1, dict[str, str](), "", False  # field: the last one named
    lines = _content(path, problems).split("\n")
    for number, line in enumerate([*lines, ""], start=1):
        line = line.rstrip("\r")
        if not line.strip():
            if field and not broken:
                if "package" in fields:
                    yield start, fields
                else:
                    problems.add("expected an entry with a Package field", file=path, line=start)
            start, fields, field, broken = number + 1, {}, "", False
        elif broken:
            continue
        elif line[0] in " \t":
            if not field:
                problems.add("expected a field before a continued line", file=path, line=number)
                broken = True
            elif field in fields:
                fields[field] += "\n" + line[1:]
        else:
            name, colon, value = line.partition(":")
            field = name.lower()
            if not colon or " " in name:
                problems.add(f"expected 'Field: value', found {line!r}", file=path, line=number)
                broken = True
            elif field in _FIELDS:
                fields[field] = value.strip()


def _translations(files: Iterable[Path], problems: Problems) -> dict[tuple[str, str], str]:
    """Descriptions by package and checksum, as the lists refer to them."""
    return {
        (fields["package"], fields.get("description-md5", "")): fields["description-en"]
        for file in files
        for _, fields in _entries(file, problems)
        if "description-en" in fields
    }


def _packages(
    file: Path, translations: dict[tuple[str, str], str], problems: Problems
) -> Iterator[Package]:
    for line, fields in _entries(file, problems):
        name = fields["package"]
        if fields.get("status", "installed").split()[-1:] != ["installed"]:
            continue  # removed from this machine, with its configuration left
        missing = [field for field in ("version", "description") if not fields.get(field)]
        if missing:
            problems.add(f"package {name!r} has no {missing[0]}", file=file, line=line)
            continue
        translated = translations.get((name, fields.get("description-md5", "")))
        short, _, long = (translated or fields["description"]).partition("\n")
        yield Package(
            name,
            fields["version"],
            short.strip(),
            # a lone full stop stands for an empty line
            " ".join(
                word for row in long.split("\n") if row.strip() != "." for word in row.split()
            ),
            tuple(dict.fromkeys(_tags(fields.get("tag", "")))),
            tuple(dict.fromkeys(_needs(fields))),
        )


def _tags(value: str) -> Iterator[str]:
    """`a::b, c::{d,e}` as a::b, c::d, c::e."""
    for item in re.findall(r"(?:[^,{}]|\{[^{}]*\})+", value):
        tag = "".join(item.split())
        braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", tag)
        if braces:
            before, inner, after = braces.groups()
            yield from (f"{before}{choice}{after}" for choice in inner.split(",") if choice)
        elif tag:
            yield tag


def _needs(fields: dict[str, str]) -> Iterator[str]:
    """The names in `a (>= 1), b:any | c [amd64]`."""
    for field in ("depends", "recommends"):
        for item in re.split(r"[,|]", fields.get(field, "")):
            name = re.match(r"\s*([^\s:(\[<]+)", item)
            if name:
                yield name[1]


def version_key(version: str) -> tuple[object, ...]:
    """A key that sorts versions as dpkg does.

    Examples
    --------
    >>> sorted(["1.10", "1.9", "1:0.1", "1.9~rc1", "1.9-2", "1.9+b"], key=version_key)
    ['1.9~rc1', '1.9', '1.9-2', '1.9+b', '1.10', '1:0.1']
    """
    epoch, colon, rest = version.partition(":")
    if not colon or not epoch.isdecimal():
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return int(epoch), _part_key(upstream), _part_key(revision)


def _part_key(part: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Words and numbers in turn; a tilde sorts before the end, letters before other signs."""
    return tuple(
        ((*(_order(c) for c in word), 0), int(digits or 0))
        for word, digits in re.findall(r"([^0-9]*)([0-9]*)", part)
    )


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)
