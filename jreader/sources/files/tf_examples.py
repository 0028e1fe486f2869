"""Parse `tf.train.Example` from its bytes (protocol buffers), without TensorFlow.

An Example is field 1, Features, whose field 1 is an entry per feature: its name (1) and a Feature
(2), which is a list of bytes (1), floats (2) or int64 (3), whose values are field 1. Numbers may be
packed or not. As the format requires, repeated messages are merged, and unknown fields skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jreader.readers.columns import Array
from jreader.sources.file_checks import damaged

_LISTS = {1: "bytes", 2: "floats", 3: "ints"}
_TYPED = {"bytes": "bytes", "floats": "np.float32", "ints": "np.int64"}
_KINDS = {"b": "ints", "i": "ints", "u": "ints", "f": "floats"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FEW = 8  # bytes of varints to read one by one


@dataclass(frozen=True, repr=False)
class Feature:
    """How to read a feature.

    Attributes:
        dtype: The dtype of its numbers; "bytes" for bytes.
        shape: The shape of the array; () for a single value, None for any number of them.
    """

    dtype: str
    shape: tuple[int, ...] | None

    @property
    def kind(self) -> str:
        """The kind of list that holds its values."""
        return "bytes" if self.dtype == "bytes" else _KINDS[np.dtype(self.dtype).kind]

    def __repr__(self) -> str:
        """Return the feature as a user would type it."""
        named = self.dtype if self.dtype == "bytes" else f"np.{self.dtype}"
        if self.shape is None:
            return f"[{named}]"
        return f"({named}, {self.shape})" if self.shape else named


def checked_features(call: str, features: Any) -> dict[str, Feature]:
    """Check the `features` of `tfrecord`.

    >>> checked_features("tfrecord", {"image": bytes, "ids": [np.int32], "box": (float, (4,))})
    {'image': bytes, 'ids': [np.int32], 'box': (np.float64, (4,))}

    Raises:
        TypeError: It is not a dict, or a feature has an invalid form.
    """
    if not isinstance(features, Mapping) or not features:
        raise TypeError(
            f"{call} needs features as a dict, not {features!r}: type "
            f"features={{'image': bytes, 'label': np.int64, 'ids': [np.int64]}}, or leave it out "
            f"for the bytes of each record."
        )
    return {str(name): _feature(call, name, given) for name, given in features.items()}


def _feature(call: str, name: Any, given: Any) -> Feature:
    if isinstance(given, Feature):
        return given
    kind, shape = _kind_and_shape(given)
    if kind is bytes and not shape:
        return Feature("bytes", shape)
    with suppress(TypeError):
        dtype = np.dtype(kind)
        if kind is not None and dtype.kind in _KINDS:
            return Feature(dtype.newbyteorder("=").name, shape)
    raise TypeError(
        f"{call} cannot read feature {name!r} as {given!r}: give bytes, a dtype such as "
        f"np.int64 or np.float32, a shape with it, as in (np.float32, (28, 28)), or a list for "
        f"any number of values, as in [bytes] or [np.int64]."
    )


def _kind_and_shape(given: Any) -> tuple[Any, tuple[int, ...] | None]:
    if isinstance(given, list) and len(given) == 1:
        return given[0], None
    if isinstance(given, tuple) and len(given) == 2:
        kind, shape = given
        return kind, (shape,) if isinstance(shape, int) else tuple(shape)
    return given, ()


def example_of(
    record: bytes, features: Mapping[str, Feature], path: str, place: int
) -> dict[str, Any]:
    r"""Parse the requested features of an Example.

    >>> record = b"\n\x0e\n\x0c\n\x01n\x12\x07\x1a\x05\n\x03\x05\xac\x02"
    >>> example_of(record, {"n": Feature("int64", None)}, "a.tfrecord", 0)
    {'n': array([  5, 300])}

    Args:
        record: The bytes of the Example.
        features: What to read.
        path: The file of the record.
        place: The byte where the record begins in it.

    Raises:
        DamagedData: It is not an Example.
        ValueError: It lacks a requested feature.
    """
    where = f"the record at byte {place:,}"
    try:
        entries = dict(_entries(record))
        found = {name: _feature_values(entries[name]) for name in features if name in entries}
    except (ValueError, IndexError, struct.error) as error:
        said = f"{where} cannot be read, {error}"
        raise damaged(path, "a file of tf.train.Example", said) from error
    sample = {}
    for name, feature in features.items():
        kind, values = found.get(name, ("", None))
        if values is None and feature.shape is not None:
            raise ValueError(
                f"{where} of {path} has no feature {name!r}; it has {_listed(entries)}. For a "
                f"feature that may be missing give a list, as in [np.int64]."
            )
        sample[name] = _fitted(feature, kind, values, f"feature {name!r} of {where} of {path}")
    return sample


def _listed(entries: Mapping[str, bytes]) -> str:
    return ", ".join(
        f"{name!r} ({_feature_values(entry)[0] or 'empty'})" for name, entry in entries.items()
    )


def _fitted(feature: Feature, kind: str, values: Any, name: str) -> Any:
    """Return the values in the requested form."""
    if values is None or not kind:
        values = [] if feature.dtype == "bytes" else np.zeros(0, feature.dtype)
    elif kind != feature.kind:
        raise ValueError(f"{name} is a list of {kind}, not of {feature.kind}: give {_TYPED[kind]}.")
    if feature.shape is not None and len(values) != math.prod(feature.shape):
        raise ValueError(
            f"{name} has {len(values):,} values, not {math.prod(feature.shape):,}: give the shape "
            f"that it has, or type {Feature(feature.dtype, None)} for any number of them."
        )
    if feature.dtype != "bytes":
        values = _cast(values, feature.dtype, name)
        values = values.reshape(feature.shape) if feature.shape else values
    return values[0] if feature.shape == () else values


def _cast(values: Array, dtype: str, name: str) -> Array:
    """Cast numbers to a dtype, raising if it cannot hold a whole number."""
    cast = values.astype(dtype, copy=False)
    if values.dtype.kind == "i" and cast is not values and (cast != values).any():
        wrong = values[cast != values][0]
        said = f"{name} has the value {wrong}, which does not fit {dtype}"
        raise ValueError(f"{said}: give np.int64.")
    return cast


def _message_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the fields of a message: number, wire type, and value (an int or bytes)."""
    at, size = 0, len(data)
    while at < size:
        tag = data[at]
        tag, at = (tag, at + 1) if tag < 0x80 else _varint(data, at)  # a call would double the time
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == _BYTES:
            many, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            many = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"a field has the wire type {wire}")
        if at + many > size or not number:
            raise ValueError(f"field {number} has {many} bytes, and {size - at} follow")
        yield number, wire, data[at : at + many]
        at += many


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 10 bytes")


def _entries(record: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each feature, and the bytes of the Feature."""
    for features in _of_field_1(record):
        for entry in _of_field_1(features):
            name, feature = b"", b""
            for number, wire, value in _message_fields(entry):
                if wire == _BYTES and number == 1:
                    name = value
                elif wire == _BYTES and number == 2:
                    feature += value  # concatenated messages merge
            yield name.decode(), feature


def _of_field_1(data: bytes) -> list[bytes]:
    """Return the bytes of all fields 1 of a message."""
    return [
        value for number, wire, value in _message_fields(data) if number == 1 and wire == _BYTES
    ]


def _feature_values(feature: bytes) -> tuple[str, Any]:
    """Return the kind of a feature ("" for none), and its values: a list of bytes, or an array."""
    kind, body = _list_of(feature)
    if kind == "bytes":
        return kind, _of_field_1(body)
    read = _NUMBERS.get(kind, {})
    parts = [
        read[wire](value)
        for number, wire, value in _message_fields(body)
        if number == 1 and wire in read
    ]
    if len(parts) == 1:
        return kind, parts[0].astype(parts[0].dtype.newbyteorder("="), copy=False)
    return kind, np.concatenate([np.zeros(0, "f4" if kind == "floats" else "i8"), *parts])


def _list_of(feature: bytes) -> tuple[str, bytes]:
    """Return the list in a feature: its kind, and the message."""
    kind, body = "", b""
    for number, wire, content in _message_fields(feature):
        if wire == _BYTES and number in _LISTS:  # the last kind counts, and its parts are merged
            body = body + content if kind == _LISTS[number] else content
            kind = _LISTS[number]
    return kind, body


def _varints(data: bytes) -> Array:
    """Decode varints, 7 bits per byte, low bits first, to int64."""
    if data.isascii():  # one byte each
        return np.frombuffer(data, np.uint8).astype(np.int64)
    if len(data) <= _FEW:
        numbers, at = [], 0
        while at < len(data):
            number, at = _varint(data, at)
            numbers.append(number)
        return np.array(numbers, np.uint64).view(np.int64)
    every = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(every < 0x80)
    if ends[-1:] != len(every) - 1:
        raise IndexError("the last number is not whole")
    begins = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - begins + 1
    if sizes.max() > 10:
        raise ValueError("a number has more than 10 bytes")
    shifts = 7 * (np.arange(len(every)) - np.repeat(begins, sizes))
    bits = (every & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(bits, begins).view(np.int64)


_floats = partial(np.frombuffer, dtype=np.dtype("<f4"))
_NUMBERS: dict[str, dict[int, Callable[[Any], Array]]] = {
    "floats": {_BYTES: _floats, _FIXED32: _floats},
    "ints": {_BYTES: _varints, _VARINT: lambda value: np.array([value], np.uint64).view(np.int64)},
}  # decoders of numbers by kind and wire type: packed, or one by one
