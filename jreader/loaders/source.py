"""The input of a loader: its `Source`, the batches that it reads, and its `Options`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from jreader.batches import Batching, Engine, batching
from jreader.devices import Placement, places_placement, sharding_placement
from jreader.feeds import FeedList
from jreader.loaders.device_programs.stages import Stages
from jreader.loaders.multihost.agreement import TIMEOUT
from jreader.loaders.remainders import Remainder
from jreader.loaders.tuning import Ceilings
from jreader.readers import Reader

Kind: TypeAlias = Literal["samples", "sample lists", "arrays", "collated"]


@dataclass(frozen=True)
class Options:
    """The options of a loader, which do not depend on its source.

    Attributes:
        feed_list: The fields of a feed; None for feeds with the tree of the samples.
        capacity: The number of feeds to prefetch.
        double_buffer: Whether to prefetch to the devices; otherwise on the host.
        return_list: Whether a feed is a list, not a dict.
        remainder: What to do at the end of an epoch, as the user gave it.
        timeout: The seconds to wait for other processes; 0 for no limit.
        stages: The functions of feeds that run on the devices.
        chunk: The number of steps in a feed; None for feeds without an axis of steps.
        made_at: The file and line that made the loader.
        tune: The limits of threads and capacity while the loop runs; None without tuning.
        workers: The executor that makes batches, by number; None for the loader itself.
    """

    feed_list: FeedList | None = None
    capacity: int = 2
    double_buffer: bool = True
    return_list: bool = False
    remainder: Remainder = field(default_factory=Remainder)
    timeout: float = TIMEOUT
    stages: Stages = field(default_factory=Stages)
    chunk: int | None = None
    made_at: str = ""
    tune: Ceilings | None = None
    workers: Engine | None = None


@dataclass(frozen=True)
class Source:
    """What a loader reads, and the devices it feeds: what `set_*_generator` sets.

    Attributes:
        batches: A reader of batches.
        kind: What the reader yields: samples (the loader batches them), lists of them, stacked
            arrays, or collated feeds (`loaders/map_style.py`).
        places: The devices or the sharding, as the user gave them.
        batch_per_place: Whether each of several places gets its own batch, as in Paddle and in
            loaders of data sets; otherwise each batch is split over them.
        pmap: The devices of the pmap layout, if requested.
        rows: The rows of a full batch: its samples, unless a function of whole batches returns
            more, or fewer; None if unknown before the first batch.
        lock: The lines that name the lock of the plan in cursors; none without a lock.
    """

    batches: Reader[Any]
    kind: Kind
    places: Any
    batch_per_place: bool = False
    pmap: Any = None
    rows: int | None = None
    lock: tuple[str, ...] = ()

    def placement(self) -> Placement:
        """Return the devices and shardings of feeds."""
        if self.batch_per_place:
            return places_placement(self.places)
        return sharding_placement(self.places, self.pmap)

    @cached_property
    def batching(self) -> Batching:
        """How the batches are made; their length may change later."""
        return batching(self.batches)

    @property
    def size(self) -> int | str | None:
        """The samples per batch, as cursors name them, if positions count samples; else None."""
        return self.batching.counted.named_size if self.batching.counted else None
