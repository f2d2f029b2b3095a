"""Hostile model folders: mutations of small models of all kinds, most of them sealed again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.hostile import vocabularies
from tests.hostile.runner import Trial
from tests.tiny_bert import write_bert

import megalabel
from megalabel.files import MANIFEST
from megalabel.sealed import seal as seal_of

WORDS = ("dress gown hem", "jeans denim pocket", "shoes sole laces", "kettle boil spout")
TEXTS = [f"{colour} {words}" for colour in ("red", "blue", "green") for words in WORDS] * 6
LABELS = [[text.split()[0], text.split()[1]] for text in TEXTS]

LINEAR = ("knn", "dismec", "ova-logistic", "xr-linear", "bonsai", "plt", "online-plt", "prior")
NEURAL = (
    *("renee", "xr-transformer", "cascadexml", "lightxml", "attentionxml", "astec", "unidec"),
)
FEW = ("knn", "dismec", "xr-linear", "online-plt")

# by system, so that each kind of calibrator and of decision is in some folder
CALIBRATION = {"dismec": "beta", "xr-linear": "platt", "plt": "temperature", "bonsai": None}


def write_models(out: Path, systems: tuple[str, ...]) -> None:
    """One folder for each system; neural ones with a small encoder, and without torch too."""
    from megalabel.calibration import ByFrequency, ByRank, Isotonic
    from megalabel.decision import BlockCoordinateAscent, FrankWolfe, Weighted

    decisions = {
        "dismec": FrankWolfe("macro-f1", k=1),
        "plt": Weighted(exponent=0.5),
        "bonsai": BlockCoordinateAscent("macro-f1"),
    }
    for name in systems:
        tagger = megalabel.systems.create(name, **_small(name, out))
        tagger.set_params(decision=decisions.get(name), calibration_texts=40)
        grouped = {"ova-logistic": ByRank(Isotonic()), "online-plt": ByFrequency(Isotonic())}
        tagger.set_params(calibration=grouped.get(name, CALIBRATION.get(name, "isotonic")))
        tagger.fit(TEXTS, LABELS)
        if name == "dismec":
            tagger.classifier_.labels_ = vocabularies.joined(tagger.labels)
        tagger.save(out / name)
        if name in NEURAL:
            from megalabel.exporting import without_torch

            without_torch(tagger).save(out / f"{name}-onnx")
    shutil.rmtree(out / "encoder", ignore_errors=True)


def _small(name: str, out: Path) -> dict[str, Any]:
    """Parameters that make a system small."""
    if name in ("xr-linear", "bonsai", "plt"):
        return {"trees": 2, "classifier__arity": 2, "classifier__max_leaf": 2}
    if name not in NEURAL:
        return {}
    few = {"device": "cpu", "classifier__trainer__steps": 2, "max_length": 8}
    own = {
        "astec": {"width": 4},
        "attentionxml": {"size": 4, "hidden": [4], "classifier__encoder__token_width": 4},
    }
    if name == "astec":
        del few["max_length"]
    return few | own.get(name, {"encoder": str(_encoder(out / "encoder"))})


def _encoder(folder: Path) -> Path:
    """A folder as of the hub: a very small BERT and its tokenizer."""
    if not folder.exists():
        write_bert(folder, TEXTS, vocabulary=60, width=8, inner=8, length=16)
    return folder


def use(folder: Path) -> None:
    """All that a person does with a model: load, tag, rank, decide, explain, save."""
    with np.errstate(all="ignore"):
        tagger = megalabel.Tagger.load(folder)
        tagger.tag(["red evening gown", "", "blue kettle water"], k=3)
        tagger.rank(["green laces"], k=200)
        tagger.predict(["blue denim"])
        if tagger.labels.vocabulary is not None:
            vocabularies.use_labels(tagger.labels)
        tagger.explain("red gown", "red")
        tagger.save(folder.with_name("again"))


def guard() -> None:
    """From now on this process ends if it asks, connects, starts a program, or writes to a file
    outside the temporary folder: a model folder must bring none of that about."""
    temporary = os.path.realpath(tempfile.gettempdir())

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN or (event == "open" and _writes_outside(temporary, *arguments)):
            os.write(2, f"{event} {arguments}\n".encode())
            os._exit(99)

    sys.addaudithook(watch)


def guarded_use(folder: Path) -> None:
    """`use`, in a process that may do nothing else."""
    global _guarded
    if not _guarded:
        guard()
        _guarded = True
    use(folder)


_guarded = False
FORBIDDEN = {
    *("builtins.input", "socket.connect", "socket.getaddrinfo", "socket.bind"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "ctypes.dlopen"),
}


def _writes_outside(temporary: str, file: Any, mode: Any, flags: int) -> bool:
    if isinstance(file, int) or not flags & (os.O_WRONLY | os.O_RDWR):
        return False
    path = os.path.realpath(os.fsdecode(file))
    return not path.startswith((temporary + os.sep, f"/proc/{os.getpid()}/", os.devnull))


def prepare(models: Path) -> None:
    """Use each model once, so that all modules are there before trials are timed.

    Not those of onnxruntime: its threads do not outlive a fork.
    """
    megalabel.set_threads(1)
    os.fsync = lambda _: None  # type: ignore[assignment]  # trials are many, and nobody keeps them
    for model in sorted(models.iterdir()):
        if model.name.endswith("-onnx"):
            import onnxruntime  # noqa: F401
            import torch

            torch.set_num_threads(1)
        else:
            with tempfile.TemporaryDirectory() as folder:
                use(Path(shutil.copytree(model, Path(folder) / "model")))


def trials(
    models: Path, seed: int, count: int, first: int = 0, manifest: str = MANIFEST
) -> Iterator[Trial]:
    """So many mutated folders of the models in a folder; or of what `manifest` describes."""
    folders = sorted(path for path in models.iterdir() if (path / manifest).is_file())
    for number in range(first, first + count):
        model = folders[number % len(folders)]
        name = f"{model.name} --seed {seed} --first {number} --folders 1"
        yield Trial(name, _Mutation(model, f"{seed} {number}", manifest))


class _Mutation:
    def __init__(self, model: Path, seed: str, manifest: str) -> None:
        self.model, self.seed, self.manifest = model, seed, manifest

    def __call__(self, place: Path) -> Path:
        chance = random.Random(self.seed)
        folder = place / "model"
        shutil.copytree(self.model, folder)
        manifest = json.loads((folder / self.manifest).read_text())
        changes: list[Callable[..., None]] = [
            *[change_array] * 3,
            *[lie] * 4,
            *[change_text] * 2,
            strange_file,
        ]
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            chance.choice(changes)(chance, folder, manifest)
        if chance.random() < 0.9:
            seal(folder, manifest, self.manifest)
        return folder


def seal(folder: Path, manifest: dict[str, Any], name: str = MANIFEST) -> None:
    """What a malicious author would do: make every checksum right again."""
    manifest.pop("sha256", None)
    files = manifest.get("files")
    for name, entry in (files if isinstance(files, dict) else {}).items():
        file = folder / name
        if isinstance(entry, dict) and file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["sha256"] = seal_of(manifest)
    if not (folder / name).is_symlink() and (folder / name).is_file():
        (folder / name).write_text(json.dumps(manifest))


def change_array(chance: random.Random, folder: Path, manifest: dict[str, Any]) -> None:
    """Other numbers in an array, or fewer of them."""
    arrays = sorted(f for f in folder.glob("*.npy") if f.is_file() and not f.is_symlink())
    if not arrays:
        return
    file = chance.choice(arrays)
    content = bytearray(file.read_bytes())
    body = min(128, len(content))  # where the numbers of a .npy file begin
    where = chance.randrange(body, max(body + 1, len(content)))
    kind = chance.choice(["flip", "extreme", "extreme", "cut", "swap", "noise", "header"])
    if kind == "flip" and where < len(content):
        content[where] ^= chance.randrange(1, 256)
    elif kind == "extreme":
        width = chance.choice([1, 2, 4, 8])
        at = body + (where - body) // width * width
        value = chance.choice([b"\xff" * width, b"\xff" * (width - 1) + b"\x7f", b"\0" * width])
        content[at : at + width] = value[: max(0, len(content) - at)]
    elif kind == "cut":
        del content[chance.randrange(len(content) + 1) :]
    elif kind == "swap":
        other = chance.choice(arrays)
        swapped = bytes(content)
        content = bytearray(other.read_bytes())
        other.write_bytes(swapped)
    elif kind == "noise":
        content[body:] = chance.randbytes(len(content) - body)
    elif content:
        content[chance.randrange(body)] ^= chance.randrange(1, 256)
    file.write_bytes(bytes(content))


LIES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2, 3, 7, 100_000, 2**31 - 1, 2**31, 2**40, 2**63, 10**30),
    *(1.5, -0.0, 1e-300, 1e300, "", "x", "\0", "../elsewhere", "stranger/model", "$array"),
    *([], {}, [1], [[]], [-1, 2**31], {"$array": "x"}, {"$component": "Tagger"}),
    *({"auto_map": {"AutoModel": "evil.Model"}}, {"a": {"b": {}}}, "cuda:7", "meta"),
)


def lie(chance: random.Random, folder: Path, manifest: dict[str, Any]) -> None:
    """Another value somewhere in the description, a value from elsewhere, or one too many."""
    _change(chance, manifest)


def change_text(chance: random.Random, folder: Path, manifest: dict[str, Any]) -> None:
    """The same inside a text of JSON, such as a tokenizer's definition; else anywhere."""
    texts = [
        (path, value)
        for path, value in _places(manifest)
        if isinstance(value, str) and value.startswith("{")
    ]
    if not texts:
        _change(chance, manifest)
        return
    path, text = chance.choice(texts)
    if chance.random() < 0.2:
        at = chance.randrange(len(text))
        changed = text[:at] + chance.choice('{}[],"0\\é') + text[at + 1 :]
    else:
        try:
            inner = json.loads(text)
        except ValueError:  # changed before
            return
        _change(chance, inner)
        changed = json.dumps(inner)
    _put(manifest, path, changed)


def strange_file(chance: random.Random, folder: Path, manifest: dict[str, Any]) -> None:
    """Something else in the place of a file, or no file at all."""
    file = chance.choice(sorted(f for f in folder.iterdir() if not f.is_dir()))
    file.unlink()
    kind = chance.choice(["none", "folder", "link", "loop", "pipe", "empty", "device"])
    if kind == "folder":
        file.mkdir()
    elif kind == "link":
        file.symlink_to("../elsewhere")
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "device":
        file.symlink_to(os.devnull)


def _change(chance: random.Random, value: Any) -> None:
    everywhere = [(path, old) for path, old in _places(value) if path]
    if not everywhere:
        return
    path, old = chance.choice(everywhere)
    kind = chance.choice(["lie", "lie", "near", "other", "more", "drop"])
    if kind == "near" and isinstance(old, int | float) and not isinstance(old, bool):
        _put(value, path, chance.choice([old + 1, old - 1, -old, old * 1000, old * 2**20]))
    elif kind == "other":
        _put(value, path, chance.choice(everywhere)[1])
    elif kind == "more" and isinstance(old, dict):
        chosen, taken = chance.choice(everywhere)
        old[str(chosen[-1])] = json.loads(json.dumps(taken))  # no cycles
    elif kind == "more" and isinstance(old, list):
        old.extend(old[:5] * chance.choice([1, 100]))
    elif kind == "drop" and isinstance(old, dict | list) and old:
        old.pop(chance.choice(list(old)) if isinstance(old, dict) else chance.randrange(len(old)))
    else:
        _put(value, path, chance.choice(LIES))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(inner, (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = json.loads(json.dumps(new))  # no cycles


if __name__ == "__main__":
    write_models(Path(sys.argv[1]), tuple(sys.argv[2:]))
