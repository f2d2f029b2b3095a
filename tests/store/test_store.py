"""The model folder: what is kept, and what happens to folders that were tampered with."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import mmap
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import random
from tests.components import every_component

from megalabel import sealed, store, systems
from megalabel.base import Component
from megalabel.data import LabelSet
from megalabel.errors import DataError, MegalabelError, StoreError
from megalabel.features import Concat, Precomputed, Tfidf
from megalabel.files import MANIFEST
from megalabel.linear import OneVsAll
from megalabel.retrieval import InvertedIndex
from megalabel.sealed import seal
from megalabel.store.encoding import Deserialiser, Serialiser, mapped_strings
from megalabel.tagger import Tagger


def round_trip(value):
    files = {}

    def put(name, array):
        files[name] = array
        return name

    encoded = json.loads(json.dumps(Serialiser(put).value(value, "value")))
    return Deserialiser(lambda file, dtype, shape: files[file]).value(encoded)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text().filter(lambda k: k[:1] != "$"), inner)
        ),
    )
)
def test_plain_values_come_back(value):
    assert round_trip(value) == value


@given(st.lists(st.text()))
def test_strings_come_back(values):
    column = pa.array(values, pa.large_string())
    assert round_trip(column).equals(column)
    assert round_trip(column[1:]).equals(column[1:])


@pytest.mark.parametrize("length", [0, 255, 256, 65_535, 65_536])
def test_strings_of_any_length_come_back(length):
    column = pa.array(["", "é" * (length // 2) + "a" * (length % 2), "b"], pa.large_string())
    assert round_trip(column).equals(column)


@pytest.mark.parametrize(
    "lengths",
    [
        np.array([1, 3], np.uint8),
        np.array([2**64 - 1, 4], np.uint64),
        np.array([-1, 4]),
        np.array([1.0, 2]),
        np.array([[1, 2]], np.uint8),
        np.array([2, 1], np.uint8),  # cuts a character in two
    ],
)
def test_strings_whose_lengths_cannot_be(lengths):
    data = np.frombuffer("aé".encode(), np.uint8)
    with pytest.raises((StoreError, pa.ArrowInvalid)):
        mapped_strings(data, lengths)


def test_arrays_matrices_and_label_sets_come_back():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(round_trip(array), array)
    matrix = random(5, 7, 0.4, format="csr", dtype=np.float32, random_state=0)
    assert (round_trip(matrix) != matrix).nnz == 0
    labels = LabelSet(["a", "b"], ["A", "B"], ["the a", "the b"])
    back = round_trip(labels)
    assert back == labels
    assert back.names.equals(labels.names)
    assert back.texts.equals(labels.texts)
    assert round_trip(LabelSet(["a"])).texts is None


@pytest.mark.parametrize(
    "value", [object(), float("nan"), {"$x": 1}, {1: 2}, np.array(["a"]), {1, 2}]
)
def test_what_cannot_be_saved_is_refused(value):
    with pytest.raises(StoreError, match="cannot be saved"):
        round_trip(value)


class Foreign(Component):
    """A component from outside."""

    @classmethod
    def of(cls, value):
        made = cls()
        made.value_ = value
        return made


def test_only_own_classes():
    with pytest.raises(StoreError, match="Foreign"):
        round_trip(Foreign())
    for name in (
        "os.system",
        "megalabel.tagger:Tagger",
        "tagger.Tagger",
        "Tfidf.fit",
        "Component",
        "",
        5,
        None,
    ):
        with pytest.raises(StoreError, match="unknown class"):
            Deserialiser(lambda *_: None).component(
                {"$component": name, "parameters": {}, "learned": {}}
            )


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "model"
    systems.create("knn").fit(corpus).save(folder)
    return folder


def copy_of(model: Path, where: Path) -> Path:
    """The same folder with files of its own."""
    where.mkdir(parents=True)
    for file in model.iterdir():
        (where / file.name).write_bytes(file.read_bytes())
    return where


def test_the_manifest_says_what_a_person_asks(model):
    about = store.about(model)
    told = store.described(model, verified=True)
    assert told["labels"] == about["labels"]
    assert told["verified"] is True
    assert told["bytes"] == sum(file.stat().st_size for file in model.iterdir())
    assert "files" not in told
    assert about["class"] == "Tagger"
    assert about["system"] == "knn"
    assert about["labels"] == 10
    assert about["features"] > 0
    assert about["provenance"]["corpus"]["texts"] == 300
    assert 0 <= about["metrics"]["P@1"] <= 1
    assert about["parameters"]["classifier"]["$component"] == "NearestNeighbours"


def test_one_part_alone(model):
    features = store.load(model, part="features")
    whole = Tagger.load(model)
    assert (features.transform(["red gown"]) != whole.features_.transform(["red gown"])).nnz == 0
    with pytest.raises(StoreError, match="no part 'nothing'"):
        store.load(model, part="nothing")


def mapped(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview) and isinstance(array.obj, mmap.mmap)


def test_arrays_are_mapped_and_read_only(model):
    arrays = [
        v
        for v in store.load(model, part="classifier").learned().values()
        if isinstance(v, np.ndarray)
    ]
    assert any(mapped(a) for a in arrays)
    assert not any(a.flags.writeable for a in arrays if a.size)


def test_missing_and_strange_folders(model, tmp_path):
    with pytest.raises(StoreError, match="no model folder"):
        store.load(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"has no megalabel\.json"):
        store.load(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="not a model folder"):
        Tagger.load(model).save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("value", ["1e999", "NaN", "[" * 995 + "]" * 995, "9" * 5000])
def test_a_manifest_with_values_that_cannot_be(model, tmp_path, value):
    folder = copy_of(model, tmp_path / "m")
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"format": ', f'"x": {value}, "format": '))
    with pytest.raises(StoreError, match="damaged"):
        store.load(folder)


@pytest.mark.parametrize(
    ("version", "words"), [(5, "upgrade"), (3, "train it again"), (1, "train it again")]
)
def test_another_format_says_so(model, tmp_path, version, words):
    folder = copy_of(model, tmp_path / "m")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["format"] = version
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=words):
        store.load(folder)


def test_links_and_missing_files_are_refused(model, tmp_path):
    folder = copy_of(model, tmp_path / "m")
    array = next(f for f in folder.iterdir() if f.suffix == ".npy")
    target = tmp_path / "elsewhere.npy"
    array.rename(target)
    with pytest.raises(StoreError, match="missing"):
        store.load(folder)
    array.symlink_to(target)
    with pytest.raises(StoreError, match="cannot be read"):
        store.load(folder)
    array.unlink()
    os.mkfifo(array)
    with pytest.raises(StoreError, match="not a plain file"):
        store.load(folder)


def reseal(folder: Path, manifest: dict) -> None:
    """What a malicious author would do: make every checksum right again."""
    manifest.pop("sha256", None)
    for name, entry in manifest["files"].items():
        if (folder / name).is_file():
            entry |= {
                "bytes": (folder / name).stat().st_size,
                "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            }
    manifest["sha256"] = seal(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def use(folder: Path) -> None:
    """Load and use a model; any megalabel error or ValueError will do, a crash will not."""
    # numbers that overflow are what a damaged model is made of
    with contextlib.suppress(MegalabelError, ValueError), np.errstate(all="ignore"):
        tagger = Tagger.load(folder)
        tagger.tag(["red evening gown", "", "blue kettle water"], k=4)
        tagger.rank(["seat oak"], k=200)
        tagger.partial_fit(["seat oak"], [["a label not seen before"]])


tampering = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@tampering
@given(data=st.data())
def test_flipped_bytes_are_noticed(model, tmp_path_factory, data):
    folder = copy_of(model, tmp_path_factory.mktemp("flip") / "m")
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(file.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    try:
        store.load(folder)
    except StoreError:
        return
    # white space in the manifest is the one thing that may change
    assert file.name == MANIFEST
    assert json.loads(bytes(content)) == json.loads((model / MANIFEST).read_bytes())


@tampering
@given(data=st.data())
def test_tampered_and_sealed_again_never_crashes(model, tmp_path_factory, data):
    folder = copy_of(model, tmp_path_factory.mktemp("tamper") / "m")
    arrays = sorted(f for f in folder.iterdir() if f.suffix == ".npy")
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(["flip", "extreme", "cut", "swap", "random"]))
        file = data.draw(st.sampled_from(arrays))
        content = bytearray(file.read_bytes())
        body = 128  # where the numbers of a .npy file begin
        where = data.draw(st.integers(body, max(body, len(content) - 1)))
        if kind == "flip" and where < len(content):
            content[where] ^= data.draw(st.integers(1, 255))
        elif kind == "extreme":
            width = data.draw(st.sampled_from([4, 8]))
            at = body + (where - body) // width * width
            if at + width <= len(content):
                content[at : at + width] = data.draw(
                    st.sampled_from(
                        [b"\xff" * width, b"\xff" * (width - 1) + b"\x7f", b"\x00" * width]
                    )
                )
        elif kind == "cut":
            content = content[: data.draw(st.integers(0, len(content)))]
        elif kind == "swap":
            other = data.draw(st.sampled_from(arrays))
            content, swapped = bytearray(other.read_bytes()), bytes(content)
            other.write_bytes(swapped)
        else:
            noise = np.random.default_rng(where).bytes(max(0, len(content) - body))
            content[body:] = noise
        file.write_bytes(bytes(content))
    reseal(folder, json.loads((folder / MANIFEST).read_text()))
    use(folder)


@tampering
@given(data=st.data())
def test_a_manifest_that_lies_never_crashes(model, tmp_path_factory, data):
    folder = copy_of(model, tmp_path_factory.mktemp("lie") / "m")
    manifest = json.loads((folder / MANIFEST).read_text())

    def places(value, path=()):
        yield path
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                yield from places(inner, (*path, key))

    path = data.draw(st.sampled_from([p for p in places(manifest) if p]))
    lie = data.draw(
        st.sampled_from(
            [None, -1, 0, 1, 2**31, 2**63, 1.5, "", "x", "/etc/passwd", [], {}, [1], True]
        )
    )
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = lie
    if isinstance(manifest.get("files"), dict) and all(
        isinstance(e, dict) for e in manifest["files"].values()
    ):
        reseal(folder, manifest)
    use(folder)


def test_a_large_model_opens_at_once(tmp_path):
    """The time to open does not grow with the size: five gigabytes that are never read."""
    store.save(InvertedIndex().fit(np.zeros((2, 1), np.float32)), tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / MANIFEST).read_text())
    big = tmp_path / "m" / "vectors_.npy"
    count = 1_300_000_000  # five gigabytes, as a hole in the file
    header = np.lib.format.open_memmap(big, "w+", np.float32, (count, 1))
    del header
    manifest["learned"]["vectors_"]["shape"] = [count, 1]
    manifest["files"]["vectors_.npy"]["bytes"] = big.stat().st_size
    manifest.pop("sha256")
    manifest["sha256"] = seal(manifest)
    (tmp_path / "m" / MANIFEST).write_text(json.dumps(manifest))
    best = 9.0
    for _ in range(3):
        started = time.perf_counter()
        loaded = store.load(tmp_path / "m")
        best = min(best, time.perf_counter() - started)
    assert loaded.shape == (count, 1)
    assert best < 0.1


@pytest.mark.parametrize("kind", [tuple, list])
def test_parameters_come_back_as_they_were(kind, corpus, tmp_path):
    features = Concat([Tfidf(ngram_range=kind((1, 2))), Tfidf(analyzer="char")])
    tagger = Tagger(OneVsAll(), features, calibration=None).fit(corpus)
    tagger.save(tmp_path / "m")
    loaded = Tagger.load(tmp_path / "m")
    assert repr(loaded) == repr(tagger)
    assert repr(loaded.features_) == repr(tagger.features_)
    assert repr(loaded.get_params()) == repr(tagger.get_params())
    assert type(loaded.features.parts[0].ngram_range) is kind


def test_a_full_disk_leaves_the_old_model(model, tmp_path, monkeypatch):
    folder = copy_of(model, tmp_path / "m")
    before = (folder / MANIFEST).read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    tagger = Tagger.load(folder)
    monkeypatch.setattr(sealed, "write_array", full)
    with pytest.raises(StoreError, match="disk is full"):
        tagger.save(folder)
    assert (folder / MANIFEST).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_where_folders_cannot_be_exchanged(model, tmp_path, monkeypatch):
    folder = copy_of(model, tmp_path / "m")
    tagger = store.load(folder)

    def refuse(*_, **__):
        raise OSError

    monkeypatch.setattr("ctypes.CDLL", refuse)
    tagger.set_params(seed=7).save(folder)
    assert store.load(folder).seed == 7

    rename = Path.rename

    def rename_all_but_new(self, target):
        if ".saving-" in self.name:
            raise OSError("no more")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_all_but_new)
    with pytest.raises(StoreError, match="no more"):
        tagger.set_params(seed=8).save(folder)
    assert store.load(folder).seed == 7
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_components_without_texts(tmp_path):
    features = Precomputed().fit(np.ones((2, 3), np.float32))
    store.save(features, tmp_path / "f")
    assert store.load(tmp_path / "f").n_features == 3


def changed(model, tmp_path, change) -> Path:
    """A copy of a model whose description was changed and sealed again."""
    folder = copy_of(model, tmp_path / "m")
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    reseal(folder, manifest)
    return folder


def test_what_later_versions_add_may_be_missing(model, tmp_path):
    """Optional parts, parameters and facts that a folder does not have are as they were."""

    def older(manifest):
        del manifest["learned"]["in_names_"], manifest["parameters"]["refit"], manifest["system"]

    loaded = Tagger.load(changed(model, tmp_path, older))
    assert (loaded.in_names_, loaded.refit) == (False, "auto")
    assert loaded.tag("red gown", k=3) == Tagger.load(model).tag("red gown", k=3)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("learned", "Tagger keeps no more_: made by a newer megalabel"),
        ("parameters", "Tagger has no parameter 'more_': made by a newer megalabel"),
    ],
)
def test_what_is_not_known_is_refused_unless_it_is_a_fact(model, tmp_path, where, words):
    """An answer that a newer version would not have given is worse than none."""
    assert changed(model, tmp_path / "fact", lambda manifest: manifest.update(more_=1))
    assert Tagger.load(tmp_path / "fact" / "m").tag("red gown", k=1)
    folder = changed(model, tmp_path, lambda manifest: manifest[where].update(more_=1))
    with pytest.raises(StoreError, match=words):
        store.load(folder)


def test_every_parameter_is_declared():
    """What a folder brings is checked: a parameter without a declaration would not be."""
    for kind in every_component():
        missing = set(kind.parameter_names()) - set(kind.PARAMETERS)
        assert not missing or inspect.isabstract(kind), (kind, missing)
        assert set(kind.parameter_names()) >= kind.INCIDENTAL


@pytest.mark.parametrize("system", [Precomputed(), 3, ["knn"]])
def test_the_name_of_a_system_is_a_name(model, tmp_path, system):
    tagger = Tagger.load(model)
    tagger.system = system
    store.save(tagger, tmp_path / "m")
    with pytest.raises(StoreError, match="system of Tagger"):
        store.load(tmp_path / "m")


def test_paths_of_the_machine_that_trained_stay_there(tmp_path):
    from megalabel.neural import Tokenizer, Trainer

    store.save(Trainer(log="somewhere", seed=3), tmp_path / "t")
    loaded = store.load(tmp_path / "t")
    assert (loaded.log, loaded.seed) == (None, 3)
    manifest = json.loads((tmp_path / "t" / MANIFEST).read_text())
    manifest["parameters"]["log"] = "/somewhere/else"
    reseal(tmp_path / "t", manifest)
    with pytest.raises(StoreError, match="no 'log' from a model folder"):
        store.load(tmp_path / "t")
    store.save(Tokenizer(cache=str(tmp_path)).fit(["red dress"]), tmp_path / "k")
    assert store.load(tmp_path / "k").cache is None


@pytest.mark.parametrize("name", ["reliability_", "metrics_", "provenance_"])
def test_what_a_description_holds_is_plain(model, tmp_path, name):
    tagger = Tagger.load(model)
    setattr(tagger, name, {"table": np.arange(3)})
    store.save(tagger, tmp_path / "m")
    with pytest.raises(StoreError, match="damaged"):
        store.load(tmp_path / "m")


@pytest.mark.parametrize("part", ["features", "classifier", "calibration"])
def test_damage_that_shows_later_names_the_folder(model, tmp_path, monkeypatch, part):
    def broken(*_, **__):
        raise ValueError("an index of 7 where there are 3")

    tagger = Tagger.load(copy_of(model, tmp_path / "m"))
    loaded = getattr(tagger, f"{part}_")
    method = {"features": "transform", "classifier": "rank", "calibration": "apply"}[part]
    monkeypatch.setattr(type(loaded), method, broken)
    for ask in (tagger.tag, tagger.rank, tagger.predict):
        with pytest.raises(StoreError, match="m is damaged: an index of 7 where there are 3"):
            ask(["red gown"])
    tagger.origin = None  # trained here: a fault of ours
    with pytest.raises(ValueError, match="an index of 7"):
        tagger.tag(["red gown"])


def test_vectors_made_by_a_damaged_model_are_not_the_users_fault(model, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise DataError("X holds a value that is not a finite number in row 0")

    tagger = Tagger.load(copy_of(model, tmp_path / "m"))
    monkeypatch.setattr(type(tagger.classifier_), "rank", broken)
    with pytest.raises(StoreError, match="m is damaged: X holds"):
        tagger.tag("red gown")


def test_fingerprints_tell_parameters_apart():
    arrays = [np.linspace(0.1, 0.9, 1500) for _ in range(2)]
    arrays[1][700] += 1e-12
    prints = [store.fingerprint(Foreign.of(value)) for value in (*arrays, arrays[0].tolist())]
    assert len(set(prints)) == 3
    assert store.fingerprint(Foreign.of(arrays[0].copy())) == prints[0]
    assert store.fingerprint(Foreign.of(arrays[0].astype(np.float32))) != prints[0]
    assert store.fingerprint(Foreign.of(1)) != store.fingerprint(Foreign.of(True))
