"""Host to devices: where feeds go, and how they get there.

One `NamedSharding(Mesh(devices, ("data",)), P("data"))` serves the flat layout and pmap's: the pmap
layout is a reshape of the host array, before it is placed, and free. Not `jax.make_mesh`: its axes
are Explicit, which breaks pmap and leaks into users' code. On one device feeds stay uncommitted:
committed arrays make a step whose parameters are not compile a second time.

Devices, shardings and the x64 mode are resolved on the user's thread, because jax's context
managers do not reach the thread that places.
"""

from jreader.devices.context_parallel import ContextParallel
from jreader.devices.placements import Placement, places_placement, sharding_placement
from jreader.devices.targets import over, where_written
from jreader.feeds.casts import placeable

__all__ = [
    "ContextParallel",
    "Placement",
    "over",
    "placeable",
    "places_placement",
    "sharding_placement",
    "where_written",
]
