"""What passes give, as values that `==` compares, with the position before and after each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

import jreader
from jreader.readers import start

LIMIT = 60


def canonical(value: Any) -> Any:
    """A value that `==` compares: arrays by dtype, shape and bytes, errors by what they say."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return ("scalar", str(value.dtype), value.item())
    if isinstance(value, (list, jreader.Columns)):
        return ["list", *map(canonical, value)]
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return {key: canonical(part) for key, part in value.items()}
    return repr(value) if isinstance(value, BaseException) else value


@dataclass
class Seen:
    """What a pass gave: its samples, the position before and after each, and how it ended."""

    samples: list[Any]
    positions: list[Any]
    error: type[BaseException] | None
    after: Any


def see(reader: Any, at: Any = None, limit: int = LIMIT) -> Seen:
    """A whole pass, up to `limit` samples."""
    here = start(reader, at)
    samples, positions, error = [], [through_json(here.position())], None
    try:
        for sample in islice(here.items, limit):
            samples.append(canonical(sample))
            positions.append(through_json(here.position()))
    except Exception as caught:  # compared below
        error = type(caught)
    after = None if error or len(samples) == limit else through_json(here.position())
    here.close()
    return Seen(samples, positions, error, after)


def through_json(value: Any) -> Any:
    """A position, a cursor or a state as it comes back from a file."""
    return json.loads(json.dumps(value))
