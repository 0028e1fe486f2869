"""How a loader shows itself in a notebook: its plan, its fields, and where they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.sharding import Sharding

from jreader.devices import Placement
from jreader.loaders.assembling import Grouping
from jreader.loaders.sources import Source
from jreader.readers import described
from jreader.readers.nodes import drawn, unread
from jreader.readers.plan_tables import Line, under


def picture(
    reads: tuple[Source, Grouping] | None, capacity: int, count: Callable[[], int]
) -> list[Line]:
    """The lines of a loader; nothing is read for it.

    Args:
        reads: What it reads, and what turns that into feeds; None for a loader without a source.
        capacity: How many feeds are ready before they are asked for.
        count: Tells how many there are in an epoch, or raises TypeError.
    """
    text = f"DataLoader(capacity={capacity})"
    if reads is None:
        return [Line(text, ("no source",))]
    source, grouping = reads
    try:
        feeds = "length unknown" if unread(source.batches) else f"{count():,} feeds"
    except TypeError:
        feeds = "length unknown"
    loader = Line(text, (feeds, where(grouping.placement)))
    return [*under([drawn(source.batches)], loader), *_fields(grouping)]


def _fields(grouping: Grouping) -> list[Line]:
    rows, parts = grouping.rows, grouping.placement.parts
    specs = grouping.feeds.specs(rows) if rows else None
    if rows is None or specs is None:
        return [Line(f"· {name}", ("", "")) for name in grouping.feeds.names or ()]
    split = (rows,) if parts is None else (parts, rows if grouping.beside else rows // parts)
    shapes = {name: (*split, *shape[1:]) for name, (shape, _) in specs.items()}
    return [
        Line(f"· {name}", (f"{dtype}[{', '.join(map(str, shapes[name]))}]", ""))
        for name, (_, dtype) in specs.items()
    ]


def where(placement: Placement) -> str:
    """Where feeds go, in few words.

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
