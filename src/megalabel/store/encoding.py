"""Components as data: parameters and learned state to JSON and arrays, and back.

What is not plain JSON is a one-key object whose key starts with `$`:

    {"$tuple": […]}                                    a tuple
    {"$array": file, "dtype": …, "shape": …}          a NumPy array
    {"$csr": {shape, data, indices, indptr}}           a sparse matrix
    {"$strings": {bytes, lengths}}                     Arrow strings
    {"$labels": {ids, names, texts}}                   a label set; may have a vocabulary too
    {"$vocabulary": {arrays, facts}}                   a vocabulary
    {"$component": name, parameters, learned}          a component

A class is looked up by its name in the registry, so a folder can only ever bring back megalabel's
own components.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from megalabel.base import Component
from megalabel.data import LabelSet, Vocabulary
from megalabel.data.strings import from_arrays, to_arrays
from megalabel.data.vocabularies.folder import opened
from megalabel.errors import StoreError
from megalabel.store.registry import class_name, find_class

# what a label set has besides, where it is joined to a vocabulary
_OF_VOCABULARY = ("vocabulary", "concepts", "language")


class Serialiser:
    """Turns values into JSON, handing arrays to `put(name, array) -> file name`."""

    def __init__(
        self,
        put: Callable[[str, np.ndarray], str],
        name_of: Callable[[type], str] | None = None,
    ) -> None:
        self._put = put
        self._vocabularies: dict[int, dict[str, Any]] = {}
        self._name_of = class_name if name_of is None else name_of

    def component(self, part: Component, name: str) -> dict[str, Any]:
        """A component as class, parameters and learned state."""
        return {
            "$component": self._name_of(type(part)),
            "parameters": {
                k: self.value(v, f"{name}.{k}" if name else k)
                for k, v in part.get_params(deep=False).items()
                if k not in part.INCIDENTAL
            },
            "learned": {
                k: self.value(v, f"{name}.{k}" if name else k) for k, v in part.learned().items()
            },
        }

    def value(self, value: Any, name: str) -> Any:
        """Any value that a component may hold; `name` says where it is, for file names."""
        if isinstance(value, Component):
            return self.component(value, name)
        if isinstance(value, LabelSet):
            names = None if value.names is value.ids else value.names
            columns = {"ids": value.ids, "names": names, "texts": value.texts}
            if value.vocabulary is not None:  # else as it was before there were any
                columns |= {key: getattr(value, key) for key in _OF_VOCABULARY}
            return {"$labels": {k: self.value(v, f"{name}.{k}") for k, v in columns.items()}}
        if isinstance(value, Vocabulary):
            return self._vocabulary(value, name)
        if isinstance(value, pa.LargeStringArray):
            offsets, data = to_arrays(value)
            data = data[offsets[0] : offsets[-1]]
            lengths = np.diff(offsets)  # most fit in one byte
            lengths = lengths.astype(np.min_scalar_type(lengths.max(initial=0)))
            parts = {"bytes": data, "lengths": lengths}
            return {"$strings": {k: self.value(v, f"{name}.{k}") for k, v in parts.items()}}
        if issparse(value):
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            encoded = {k: self.value(v, f"{name}.{k}") for k, v in parts.items()}
            return {"$csr": {"shape": [int(n) for n in value.shape], **encoded}}
        if isinstance(value, np.ndarray):
            array = np.asarray(value, order="C")
            if array.dtype.kind not in "biuf":
                raise StoreError(f"{name} is an array of {array.dtype}, which cannot be saved")
            file = self._put(name, array)
            return {"$array": file, "dtype": array.dtype.str, "shape": list(array.shape)}
        if isinstance(value, np.generic):
            return self.value(value.item(), name)
        if isinstance(value, list | tuple):
            items = [self.value(v, f"{name}.{i}") for i, v in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str) or key.startswith("$"):
                    raise StoreError(f"{name} has the key {key!r}, which cannot be saved")
            return {k: self.value(v, f"{name}.{k}") for k, v in value.items()}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise StoreError(f"{name} is a {type(value).__name__} ({value!r}), which cannot be saved")

    def _vocabulary(self, vocabulary: Vocabulary, name: str) -> dict[str, Any]:
        """A vocabulary, once: label sets that share one name the same files."""
        known = id(vocabulary)
        if known not in self._vocabularies:
            # with all indexes, so that it is the same whatever has been looked up in it
            arrays = sorted(vocabulary.indexed().arrays.items())
            parts = {key: self.value(array, f"{name}.{key}") for key, array in arrays}
            encoded = {"arrays": parts, "facts": vocabulary.facts}
            self._vocabularies[known] = {"$vocabulary": encoded}
        return self._vocabularies[known]


class Deserialiser:
    """The way back; `get(file, dtype, shape)` gives an array."""

    def __init__(self, get: Callable[[str, str, tuple[int, ...]], np.ndarray]) -> None:
        self._get = get
        self._vocabularies: dict[str, Vocabulary] = {}

    def component(self, encoded: Mapping[str, Any]) -> Component:
        """A component, with its parameters and learned state checked by itself."""
        parameters = {k: self.value(v) for k, v in encoded["parameters"].items()}
        part = find_class(encoded["$component"]).from_folder(parameters)
        learned = {k: self.value(v) for k, v in encoded["learned"].items()}
        for name in learned:
            if not name.endswith("_") or name.startswith("_"):
                raise StoreError(f"{name!r} is not the name of something learned")
        if learned:  # a part among the parameters has learned nothing
            part.restore(learned)
        return part

    def value(self, encoded: Any) -> Any:
        """Any value that Serialiser.value has made."""
        if isinstance(encoded, list):
            return [self.value(v) for v in encoded]
        if not isinstance(encoded, dict):
            return encoded
        if "$component" in encoded:
            return self.component(encoded)
        if "$tuple" in encoded:
            return tuple(self.value(v) for v in encoded["$tuple"])
        if "$array" in encoded:
            return self._get(encoded["$array"], encoded["dtype"], tuple(encoded["shape"]))
        if "$csr" in encoded:
            parts = encoded["$csr"]
            arrays = (self.value(parts[k]) for k in ("data", "indices", "indptr"))
            return mapped_csr(parts["shape"], *arrays)
        if "$strings" in encoded:
            parts = encoded["$strings"]
            return mapped_strings(self.value(parts["bytes"]), self.value(parts["lengths"]))
        if "$labels" in encoded:
            return labels_of({k: self.value(v) for k, v in encoded["$labels"].items()})
        if "$vocabulary" in encoded:
            return self._vocabulary(encoded["$vocabulary"])
        for key in encoded:
            if key.startswith("$"):
                raise StoreError(f"unknown kind of value {key!r}: made by a newer megalabel?")
        return {k: self.value(v) for k, v in encoded.items()}

    def _vocabulary(self, encoded: Mapping[str, Any]) -> Vocabulary:
        key = json.dumps(encoded, sort_keys=True)
        if key not in self._vocabularies:
            arrays = {k: self.value(v) for k, v in encoded["arrays"].items()}
            self._vocabularies[key] = opened(arrays, encoded["facts"])
        return self._vocabularies[key]


def labels_of(parts: Mapping[str, Any]) -> LabelSet:
    """A label set of its parts, which may be a stranger's."""
    vocabulary, concepts = parts.get("vocabulary"), parts.get("concepts")
    language = parts.get("language")
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        raise StoreError("the vocabulary of a label set is not one")
    if concepts is not None and getattr(concepts, "dtype", None) != np.int32:
        raise StoreError("the concepts of a label set must be numbers of 32 bits")
    if language is not None and not isinstance(language, str):
        raise StoreError("the language of a label set must be a string")
    return LabelSet(**parts)


def mapped_strings(data: np.ndarray, lengths: np.ndarray) -> pa.LargeStringArray:
    """Arrow strings over bytes that may be mapped from disk; everything about them is checked."""
    if data.dtype != np.uint8 or lengths.dtype.kind != "u" or data.ndim != 1 or lengths.ndim != 1:
        raise StoreError("strings must be bytes, and lengths that are not negative")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    if offsets[-1] != len(data):
        raise StoreError("strings whose lengths do not fit their bytes")
    column = from_arrays(offsets, data)
    column.validate(full=True)  # offsets rise, text is UTF-8
    return column


def mapped_csr(
    shape: list[int], data: np.ndarray, indices: np.ndarray, indptr: np.ndarray
) -> csr_matrix:
    """A CSR matrix over mapped arrays. Its indices are not looked at, which would page all of it
    in: kernels check them on use."""
    n, width = (int(x) for x in shape)
    if data.ndim != 1 or indices.ndim != 1 or indptr.ndim != 1 or n < 0 or width < 0:
        raise StoreError("a sparse matrix must be made of three one-dimensional arrays")
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        raise StoreError(f"sparse indices of {indices.dtype} and {indptr.dtype}")
    if len(indptr) != n + 1 or len(data) != len(indices):
        raise StoreError("a sparse matrix whose arrays do not fit its shape")
    if indptr[0] != 0 or indptr[-1] != len(data):
        raise StoreError("a sparse matrix whose row pointers do not fit its entries")
    # filled in afterwards, as the constructor would read every index
    matrix = csr_matrix((n, width), dtype=data.dtype)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix
