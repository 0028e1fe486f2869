"""Host to devices: where feeds go, and how they get there.

One `NamedSharding(Mesh(devices, ("data",)), P("data"))` serves the flat layout and pmap's: the pmap
layout is a free reshape of the host array, before it is placed. It is not `jax.make_mesh`, whose
axes are Explicit: that breaks pmap and leaks into users' code. On one device feeds stay
uncommitted: committed ones compile a step a second time if its parameters are uncommitted.

Devices, shardings and the x64 mode are resolved on the user's thread, because jax's context
managers do not reach the thread that places feeds.
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
