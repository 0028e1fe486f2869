"""A loader's table in a notebook: its plan, its fields, and where they go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jax.sharding import Sharding

from jreader.devices import Placement
from jreader.loaders.loading import Loading
from jreader.readers import described
from jreader.readers.growing import without_writing
from jreader.readers.nodes import lazy_length
from jreader.readers.plan_lines import Line, lines_of, under


def picture(loading: Loading | None, capacity: int) -> list[Line]:
    """Return the lines of a loader's table; it reads nothing.

    Args:
        loading: What the loader loads; None for a loader without a source.
        capacity: The number of feeds that the loader prefetches.
    """
    text = f"DataLoader(capacity={capacity})"
    if loading is None:
        return [Line(text, ("no source",))]
    with without_writing():
        return _notebook_lines(replace(loading), text)


def _notebook_lines(loading: Loading, text: str) -> list[Line]:
    batches = loading.of_epoch().batches
    known = None if lazy_length(batches) else loading.count()
    feeds = "length unknown" if known is None else f"{known:,} feeds"
    loader = Line(text, (feeds, where(loading.placement)))
    return [*under([lines_of(batches)], loader), *_fields(loading.here)]


def _fields(loading: Loading) -> list[Line]:
    rows, parts, feeds = loading.source.rows, loading.placement.parts, loading.feeds
    specs = feeds.specs(rows) if rows else None
    if rows is None or specs is None:
        return [Line(f"· {name}", ("", "")) for name in feeds.names or ()]
    per_place = loading.source.batch_per_place
    split = (rows,) if parts is None else (parts, rows if per_place else rows // parts)
    shapes = {name: (*split, *shape[1:]) for name, (shape, _) in specs.items()}
    return [
        Line(f"· {name}", (f"{dtype}[{', '.join(map(str, shapes[name]))}]", ""))
        for name, (_, dtype) in specs.items()
    ]


def where(placement: Placement) -> str:
    """Return where feeds go, in few words.

    >>> from jreader.devices import places_placement, sharding_placement
    >>> where(places_placement(None)), where(sharding_placement("host"))
    ('on the default device', 'on the host')
    """
    target = placement.target
    if target is None or isinstance(target, str):
        return "on the host" if target else "on the default device"
    if not isinstance(target, Sharding):
        return f"each field as {described(target)} says"
    devices: list[Any] = sorted(target.device_set, key=lambda device: device.id)
    if len(devices) == 1:
        return f"on {devices[0].platform}:{devices[0].id}"
    over = f"{len(devices)} devices, {devices[0].platform}:{devices[0].id} to {devices[-1].id}"
    return f"on {over}" if placement.parts is None else f"a part for each of {over}"
