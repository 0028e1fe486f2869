"""`Loading`: what a loader loads, as one frozen value: the source, the options, the placement.

It is resolved once, when the loader gets its source. `device_feeds.py` begins passes over it. What
all passes of a loader share is in a `Run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jreader.batches import Batching, bucket
from jreader.batches.padded_batches import varied
from jreader.devices import Placement, Share
from jreader.errors import BatchNotDivisible, NotResumable, warn
from jreader.feeds import FeedList, Feeds
from jreader.loaders.assembling import FeedShape
from jreader.loaders.checkpoints.changed_weights import weights_line, with_weights_before
from jreader.loaders.checkpoints.cursors import check_plan, checked, skipping
from jreader.loaders.checkpoints.positions import Place
from jreader.loaders.device_programs.stages import Stages
from jreader.loaders.multihost.agreement import TIMEOUT
from jreader.loaders.multihost.shards import dealt_to
from jreader.loaders.remainders import Remainder
from jreader.loaders.resident import Resident
from jreader.loaders.source import Source
from jreader.loaders.tuning import Ceilings
from jreader.readers import (
    Cursor,
    Plan,
    Reader,
    described,
    fingerprint,
    length,
    set_fields,
)
from jreader.readers.growing import grows
from jreader.transforms import exactly
from jreader.workers.threads import runs_users_code


@dataclass(frozen=True)
class Options:
    """The options of a loader, which do not depend on its source.

    Attributes:
        feed_list: The fields of a feed; None for feeds with the tree of the samples.
        capacity: How many feeds to prefetch.
        double_buffer: Whether to prefetch to the devices; otherwise on the host.
        return_list: Whether a feed is a list, not a dict.
        remainder: What to do at the end of an epoch, as the user gave it.
        timeout: The seconds to wait for other processes; 0 for no limit.
        stages: The functions of feeds that run on the devices.
        chunk: How many steps make one feed; None for feeds without an axis of steps.
        made_at: The file and line that made the loader.
        tune: What threads and capacity may grow to while the loop runs; None to leave them alone.
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


@dataclass(frozen=True)
class Loading:
    """What a loader loads.

    Attributes:
        source: The batches, and the devices that the user named.
        options: The options of the loader.
        resident: The data, if they are on the devices already.
        placement: The devices and shardings of feeds.
        remainder: What to do at the end of an epoch, resolved for this source.
    """

    source: Source
    options: Options
    resident: Resident | None = None
    placement: Placement = field(init=False, repr=False)
    remainder: Remainder = field(init=False, repr=False)
    _shapes: dict[tuple[bool, Any], FeedShape] = field(default_factory=dict, init=False, repr=False)
    _plans: dict[int | None, Plan] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Resolves the arguments, so that a wrong one raises its error where it was written."""
        source, said = self.source, self.options.remainder
        placement = source.placement()
        if source.rows and not (source.batch_per_place and placement.parts):
            placement.check(source.rows)
        cut = placement.splits or self.options.chunk is not None
        if source.batch_per_place:
            remainder = said.of_places(source.batches, equal=cut)
        else:
            remainder = said.of_batches(source.batches, equal=cut)
        set_fields(self, placement=placement, remainder=remainder)
        self._check_shapes()

    def _check_shapes(self) -> None:
        """Checks that feeds can be made of batches of several shapes.

        Raises:
            BatchNotDivisible: The devices cannot split the batches of each bucket evenly.
            ValueError: Several batches make a feed, and they differ in shape.
        """
        found, placement = self.source.batching, self.placement
        if self.per_feed > 1 and (found.buckets or (found.op and varied(found.op))):
            many = "chunk(k)" if self.options.chunk else "a batch for each place"
            raise ValueError(
                f"{described(self.source.batches)} gives batches of several shapes, and {many} "
                "needs batches of one shape: leave it out, and split each batch over the devices, "
                "as .load(sharding=mesh) does; or use .padded_batch(n, to=[length]), or "
                ".pack(size)."
            )
        op = None if found.functions else found.buckets
        for bound, rows in zip(op.bounds, op.rows, strict=True) if op else ():
            if not placement.divides(rows):
                raise BatchNotDivisible(
                    f"a batch of {rows} samples of length {bound} cannot be split evenly over "
                    f"{placement.most} devices: type bucket(..., divisible_by={placement.most})."
                )

    @property
    def shape(self) -> FeedShape:
        """How batches become feeds, with the modes of jax (x64, default device) of this thread."""
        placement = self.placement.under_modes()
        modes = placement.x64, placement.default
        if modes not in self._shapes:
            self._shapes[modes] = self._shaped(placement)
        return self._shapes[modes]

    def _shaped(self, placement: Placement) -> FeedShape:
        source, options, remainder = self.source, self.options, self.remainder
        shape = FeedShape(
            Feeds(options.feed_list, placement.canonical, placement.on_host),
            source.kind,
            placement,
            batch_per_place=source.batch_per_place and placement.parts is not None,
            remainder=remainder,
            per_feed=self.per_feed,
            size=source.batching.size,
            rows=source.rows,
            return_list=options.return_list,
            chunk=options.chunk,
            strict=remainder.strict(source.batching),
            buckets=source.batching.buckets is not None,
            shares=self._shares(placement),
            lanes=source.batching.lanes > 0,
        )
        share = placement.here(source.rows) if source.rows else None
        dealt = share and dealt_to(self.of_epoch().batches, share)
        return replace(shape, share=share) if dealt else shape

    def _shares(self, placement: Placement) -> tuple[Share, ...]:
        """The rows of the batches of each bucket that this process feeds; none for all rows."""
        found = self.source.batching
        if found.buckets is None or not found.indexed or found.functions:
            return ()
        shares = [placement.here(rows) for rows in found.buckets.rows]
        return tuple(share for share in shares if share) if all(shares) else ()

    @property
    def per_feed(self) -> int:
        """How many batches make a feed."""
        parallel = (self.placement.parts or 1) if self.source.batch_per_place else 1
        return parallel * (self.options.chunk or 1)

    def of_epoch(self, cursor: Cursor | None = None, began: Cursor | None = None) -> Source:
        """The source of an epoch, from a cursor on, with its `remainder` applied.

        Args:
            cursor: The cursor; None for the beginning.
            began: The cursor at which the pass began that came to this one; None for this one.
        """
        if cursor is None or (cursor["position"] is None and not cursor["samples"]):
            # what short batches of buckets do depends on lengths, which may grow
            return (
                self._ending(self.source.batches) if self.source.batching.buckets else self._whole
            )
        batches, continues = self.source.batches, self.remainder.continues
        batches = with_weights_before(batches, began or cursor, endless=continues)
        return self._ending(batches, cursor["samples"], Place.of(cursor).steps)

    def _ending(self, batches: Reader[Any], samples: int = 0, steps: int = 0) -> Source:
        batches = self.remainder.of(batches, self.per_feed, samples, steps)
        return replace(self.source, batches=batches)

    @cached_property
    def _whole(self) -> Source:
        return self._ending(self.source.batches)

    def count(self) -> int | None:
        """How many feeds an epoch has; None if that is unknown before it is read."""
        shape, remainder, found = self.shape, self.remainder, self.of_epoch().batching
        if remainder.steps is not None:
            return remainder.steps
        samples = found.samples
        if found.op is None or samples is None:
            return self._count_of_batches(found)
        size = found.op.batch_size
        full, rest = divmod(shape.fed(samples, found.op), size * shape.per_feed)
        equal = not remainder.any_size or shape.masked or shape.takes(size)
        return full * equal + (rest > 0)

    def _count_of_batches(self, found: Batching) -> int | None:
        many, last = length(self.of_epoch().batches), self.remainder.last
        if found.buckets is not None:
            return many if last in ("pad", "keep") or found.buckets.drop_last else None
        if many is None or last == "keep":
            return many
        return -(-many // self.per_feed) if last == "pad" else None

    def check(self) -> None:
        """Checks, before the first step, that epochs have enough samples, as far as that is known.

        Raises:
            ShortEpoch: They have too few.
        """
        shape, found = self.shape, self.of_epoch().batching
        op = found.counted
        if found.buckets is not None:
            self._check_buckets(found.buckets)
        if op and isinstance(op.reader, exactly):
            op.reader.check()
        samples = length(op.reader) if op and shape.strict else None
        size = (op.batch_size if op else 1) * shape.per_feed
        if samples is not None and samples % size:
            raise shape.short(samples % size, size)

    def _check_buckets(self, op: bucket[Any]) -> None:
        """Checks that each bucket fills its batches; warns of one that never fills any.

        Raises:
            ShortEpoch: One is short, and that is an error.
        """
        known = op.known()
        if known is None:
            return
        if self.shape.strict:
            for number, rest in known.rests():
                raise self.shape.short(rest, op.rows[number])
        if self.remainder.warns_if_same and (never := known.never()):
            bounds = ", ".join(str(op.bounds[number]) for number in never)
            rows = ", ".join(str(op.rows[number]) for number in never)
            warn(
                f"the buckets {bounds} have fewer samples than a batch of theirs ({rows}), so no "
                "epoch has any of them. load(last='pad') fills their batches up with zeros, under "
                "a mask; load(drop_last=True) leaves them out without this warning; with other "
                "bounds, or smaller batches, they may fill one.",
                op.made_at,
            )

    def checked(self, cursor: Any) -> Cursor:
        """The cursor, once it is known to be one of what is loaded.

        Raises:
            ValueError: It is damaged.
            NotResumable: It is of another pipeline or release.
        """
        whole = checked(cursor)
        self.check_plan(whole)
        return whole

    def check_plan(self, cursor: Cursor) -> None:
        """Raises NotResumable if a cursor is of another plan."""
        check_plan(cursor["plan"], self.plan(), grows=grows(self.source.batches))

    def check_weights(self, cursor: Cursor) -> None:
        """Checks that a cursor of a resident loader goes on with the plan that is on the devices.

        Raises:
            NotResumable: Weights of a mixture are not what they were.
        """
        if weights_line(self.plan(cursor)) != weights_line(self.plan()):
            raise NotResumable(
                "this cursor belongs to other weights than those of "
                f"{described(self.source.batches)}, and load(resident=True) keeps one order on the "
                "devices: resume with the weights it had, or leave resident=True out."
            )

    def skipping(self, cursor: Cursor, steps: range | None = None) -> Cursor:
        """The cursor with `steps` left out, too.

        Raises:
            NotResumable: It leaves out steps of another size, which would be other samples here.
        """
        if steps is None and not cursor["skipped"]:
            return cursor
        op = self.of_epoch().batching.counted
        return skipping(cursor, steps, op.batch_size * self.per_feed if op else 0)

    def plan(self, cursor: Cursor | None = None) -> Plan:
        """The plan as a cursor stores it, made anew when the data set has grown or shrunk.

        Args:
            cursor: A cursor that the plan goes on from, if it does.
        """
        source = self.of_epoch()
        op, batches = source.batching.counted, source.batches
        samples = length(op.reader if op else batches)
        plan = self._plans.get(samples)
        if plan is None:  # a look-ahead may ask at the same time, for another length
            stages = (stage.fn for stage in self.options.stages.stages)
            plan = fingerprint(batches, self._feeds_in_plan(), stages)
            self._plans.clear()
            self._plans[samples] = plan
        if cursor and cursor["position"] and weights_line(cursor["plan"]) != weights_line(plan):
            return fingerprint(self.of_epoch(cursor).batches, plan["feeds"])
        return plan

    def _feeds_in_plan(self) -> Iterator[str]:
        """The lines of the plan that say how feeds are made."""
        options = self.options
        mapper = getattr(self.source.batches, "mapper", None)
        fields = options.feed_list or getattr(mapper, "feed_list", None)
        if fields is not None:
            yield f"fields {Feeds(fields).places}"
        yield from map(str, options.stages.stages)
        if options.chunk:
            yield f"chunk({options.chunk})"
        if (side_by_side := self.per_feed // (options.chunk or 1)) > 1:
            yield f"{side_by_side} places, a batch each"

    @cached_property
    def runs_users_code(self) -> bool:
        """Whether a pass over the batches calls what its user wrote: one thread draws it then."""
        return self.resident is None and runs_users_code(self.source.batches)

    @property
    def numbered(self) -> bool:
        """Whether a feed needs its epoch and the number of its first row, to draw or to gather."""
        return self.resident is not None or self.options.stages.random
