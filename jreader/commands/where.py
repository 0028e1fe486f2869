"""`jreader where`: find the steps that hold a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jreader.commands.named_pipelines import CommandFailed, is_loader


def steps_holding(
    subject: Any, sample: str, epochs: int | None = None, until: str | None = None
) -> Iterator[str]:
    """Yield the epoch, step and row of each occurrence of a sample, one per line; reads nothing.

    >>> from jreader import Pipeline, arrays
    >>> list(steps_holding(Pipeline(arrays([10, 20, 30])).shuffle(seed=1).batch(1), "2", epochs=2))
    ['epoch 0, step 1, row 0', 'epoch 1, step 2, row 0']

    Args:
        subject: A plan of batches, or a loader.
        sample: The number of a sample, alone or after the name of a file or source in which it
            counts.
        epochs: The number of epochs to search.
        until: A JSON file with a cursor: later steps do not count.

    Raises:
        CommandFailed: `sample` has no number.
    """
    source, _, number = sample.rpartition(":")
    if not number.isdecimal():
        raise CommandFailed(f"needs --sample NUMBER, FILE:NUMBER or SOURCE:NUMBER, not {sample!r}")
    loader = subject
    if not is_loader(subject):
        from jreader import Pipeline  # noqa: PLC0415  # imports jax only now

        loader = Pipeline(subject).load(sharding="host")
    found = loader.where(
        int(number),
        None if epochs is None else range(epochs),
        source=source or None,
        until=None if until is None else json.loads(Path(until).read_text()),
    )
    for _, epoch, step, row in found:
        yield f"epoch {epoch}, step {step}, row {row}"
    if not len(found):
        yield "no step holds it"
