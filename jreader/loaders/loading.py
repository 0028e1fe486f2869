"""`Loading`: what a loader loads, as one frozen value: the source, the options, the placement.

It is resolved once, when the loader gets its source; what depends on the modes of jax follows those
of the thread that begins a pass (`here`). What all passes of a loader share is in a `Run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jax.sharding import NamedSharding

from jreader.batches import Batching, batch, bucket
from jreader.batches.padded_batches import varied
from jreader.devices import Placement, Share
from jreader.errors import BatchNotDivisible, NotResumable, ShortEpoch, warn
from jreader.feeds import Feeds
from jreader.loaders.checkpoints.cursors import check_plan, checked, skipping, weights_line
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.loaders.device_programs.resident import Resident
from jreader.loaders.device_programs.stages import Layout
from jreader.loaders.multihost.shards import dealt_to
from jreader.loaders.remainders import Remainder
from jreader.loaders.source import Options, Source
from jreader.readers import (
    Cursor,
    Plan,
    Reader,
    at_epoch,
    described,
    fingerprint,
    first_column,
    length,
)
from jreader.readers.fingerprints import changeable
from jreader.readers.growing import grows
from jreader.readers.rewriting import rewritten
from jreader.readers.seeds import seeded, waits
from jreader.transforms import exactly
from jreader.workers.threads import runs_users_code


@dataclass(frozen=True, eq=False)
class Loading:
    """What a loader loads.

    Attributes:
        source: The batches, and the devices that the user named.
        options: The options of the loader.
        placement: The devices and shardings of feeds.
        remainder: What to do at the end of an epoch, resolved for this source.
        resident: The data, if they are on the devices already.
        share: The rows of each batch that this process feeds, if it reads no others.
        shares: The same for the batches of each bucket.
    """

    source: Source
    options: Options
    placement: Placement
    remainder: Remainder
    resident: Resident | None = None
    share: Share | None = None
    shares: tuple[Share, ...] = ()
    _here: dict[tuple[bool, Any], Loading] = field(default_factory=dict, init=False, repr=False)
    _plans: dict[int | None, Plan] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, source: Source, options: Options, resident: Resident | None = None) -> Loading:
        """Resolves the arguments, so that a wrong one raises its error where it was written.

        Raises:
            BatchNotDivisible: The devices cannot split batches evenly.
            ValueError: Batches do not fit the end of an epoch, or differ in shape.
        """
        placement, remainder = source.placement(), options.remainder
        if source.rows and not (source.batch_per_place and placement.parts):
            placement.check(source.rows)
        resolved = remainder.of_places if source.batch_per_place else remainder.of_batches
        cut = placement.splits or options.chunk is not None
        made = cls(source, options, placement, resolved(source.batches, equal=cut), resident)
        _check_shapes(made)
        return made

    @property
    def here(self) -> Loading:
        """The same, with the modes of jax (x64, default device) of this thread."""
        placement = self.placement.under_modes()
        modes = placement.x64, placement.default
        if modes not in self._here:
            self._here[modes] = self._placed_as(placement)
        return self._here[modes]

    def _placed_as(self, placement: Placement) -> Loading:
        share = placement.here(self.source.rows) if self.source.rows else None
        if share and dealt_to(self.of_epoch().batches, share) is None:
            share = None
        return replace(self, placement=placement, share=share, shares=self._shares(placement))

    def _shares(self, placement: Placement) -> tuple[Share, ...]:
        found = self.source.batching
        if found.buckets is None or not found.indexed or found.functions:
            return ()
        shares = [placement.here(rows) for rows in found.buckets.rows]
        return tuple(share for share in shares if share) if all(shares) else ()

    @cached_property
    def per_feed(self) -> int:
        """How many batches make a feed."""
        parallel = (self.placement.parts or 1) if self.source.batch_per_place else 1
        return parallel * (self.options.chunk or 1)

    @cached_property
    def axes(self) -> int:
        """How many leading axes of a feed count samples."""
        return 1 + (self.placement.parts is not None) + (self.options.chunk is not None)

    @cached_property
    def plain(self) -> bool:
        """Whether the named arrays of a full batch are a feed without further work."""
        named = self.source.kind in ("samples", "sample lists") and not self.options.return_list
        whole = self.share is None and not (self.masked or self.source.batching.buckets)
        return named and whole and self.axes == 1 and self.per_feed == 1

    @property
    def layout(self) -> Layout:
        """The axes and the sharding of a feed on the devices."""
        steps = None if self.options.chunk is None else int(self.placement.parts is not None)
        target = self.placed.target
        return Layout(self.axes, steps, target if isinstance(target, NamedSharding) else None)

    @cached_property
    def feeds(self) -> Feeds:
        """The names, shapes and dtypes of the fields."""
        placement = self.placement
        return Feeds(self.options.feed_list, placement.canonical, placement.on_host)

    @cached_property
    def placed(self) -> Placement:
        """The placement of feeds with their mask and their axis of steps."""
        placement = replace(self.placement, share=self.share)
        placement = placement.with_mask() if self.masked else placement
        return placement.chunked() if self.options.chunk else placement

    @cached_property
    def masked(self) -> bool:
        """Whether every feed carries a mask."""
        return self.remainder.last == "pad"

    @cached_property
    def strict(self) -> bool:
        """Whether a short group of batches is an error."""
        return self.remainder.strict(self.source.batching)

    def of_feed(self, feed: Any) -> Loading:
        """The same for feeds of the rows of this one, where they come from buckets."""
        rows = len(first_column(feed)) if self.shares else 0
        shares = [each for each in self.shares if len(each) == rows]
        return replace(self, share=shares[0], shares=()) if shares else self

    def takes(self, rows: int) -> bool:
        """Whether `rows` rows can be divided evenly over the devices."""
        if self.share is not None:
            return rows == self.share.size
        per_place = self.source.batch_per_place and self.placement.parts is not None
        return per_place or self.placement.divides(rows)

    def fed(self, samples: int, op: batch[Any]) -> int:
        """How many of the samples of an epoch, which `op` batches, make feeds."""
        if op.drop_last:
            samples -= samples % op.batch_size
        rest = samples % (op.batch_size * self.per_feed)
        alone = self.remainder.any_size and self.per_feed == 1 and self.takes(rest)
        given = self.masked or self.remainder.last == "keep" or alone
        return samples if given else samples - rest

    def short(self, seen: int, needed: int) -> ShortEpoch:
        """The error of a step with fewer samples."""
        given = f"the last step of this epoch has {seen} samples, not {needed}"
        if self.remainder.steps is not None:
            return ShortEpoch(
                f"{given}, and steps_per_epoch={self.remainder.steps} counts whole ones: give "
                f"fewer steps, or last='pad', which fills it up with zeros, under a mask."
            )
        return ShortEpoch(
            f"{given}. With last='drop' they are left out, with 'pad' filled up with zeros, under "
            f"a mask, and with 'wrap' with the first ones of the epoch."
        )

    def of_epoch(self, cursor: Cursor | None = None, began: Cursor | None = None) -> Source:
        """The source of an epoch, from a cursor on, with its `remainder` applied.

        Args:
            cursor: The cursor; None for the beginning.
            began: The cursor at which the pass began that came to this one; None for this one.
        """
        if cursor is None or (cursor["position"] is None and not cursor["samples"]):
            # what short batches of buckets do depends on lengths, which may grow
            buckets = self.source.batching.buckets is not None
            return self._ending(self.source.batches) if buckets else self._whole
        batches, continues = self.source.batches, self.remainder.continues
        batches = _with_weights_before(batches, began or cursor, endless=continues)
        return self._ending(batches, cursor["samples"], EpochPosition.of(cursor).steps)

    def _ending(self, batches: Reader[Any], samples: int = 0, steps: int = 0) -> Source:
        batches = self.remainder.of(batches, self.per_feed, samples, steps)
        return replace(self.source, batches=batches)

    @cached_property
    def _whole(self) -> Source:
        return self._ending(self.source.batches)

    def count(self) -> int | None:
        """How many feeds an epoch has; None if that is unknown before it is read."""
        here, remainder, found = self.here, self.remainder, self.of_epoch().batching
        if remainder.steps is not None:
            return remainder.steps
        samples = found.samples
        if found.op is None or samples is None:
            return self._count_of_batches(found)
        size = found.op.batch_size
        full, rest = divmod(here.fed(samples, found.op), size * self.per_feed)
        equal = not remainder.any_size or self.masked or here.takes(size)
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
        found = self.of_epoch().batching
        op = found.counted
        if found.buckets is not None:
            self._check_buckets(found.buckets)
        if op and isinstance(op.reader, exactly):
            op.reader.check()
        samples = length(op.reader) if op and self.strict else None
        size = (op.batch_size if op else 1) * self.per_feed
        if samples is not None and samples % size:
            raise self.short(samples % size, size)

    def _check_buckets(self, op: bucket[Any]) -> None:
        """Checks that each bucket fills its batches; warns of one that never fills any.

        Raises:
            ShortEpoch: One is short, and that is an error.
        """
        known = op.known()
        if known is None:
            return
        if self.strict:
            for number, rest in known.rests():
                raise self.short(rest, op.rows[number])
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


def _check_shapes(loading: Loading) -> None:
    """Checks that feeds can be made of batches of several shapes.

    Raises:
        BatchNotDivisible: The devices cannot split the batches of each bucket evenly.
        ValueError: Several batches make a feed, and they differ in shape.
    """
    found, placement = loading.source.batching, loading.placement
    if loading.per_feed > 1 and (found.buckets or (found.op and varied(found.op))):
        many = "chunk(k)" if loading.options.chunk else "a batch for each place"
        raise ValueError(
            f"{described(loading.source.batches)} gives batches of several shapes, and {many} "
            "needs batches of one shape: leave it out, and split each batch over the devices, as "
            ".load(sharding=mesh) does; or use .padded_batch(n, to=[length]), or .pack(size)."
        )
    op = None if found.functions else found.buckets
    for bound, rows in zip(op.bounds, op.rows, strict=True) if op else ():
        if not placement.divides(rows):
            raise BatchNotDivisible(
                f"a batch of {rows} samples of length {bound} cannot be split evenly over "
                f"{placement.most} devices: type bucket(..., divisible_by={placement.most})."
            )


def _with_weights_before(batches: Reader[Any], cursor: Cursor, *, endless: bool) -> Reader[Any]:
    """The plan of an epoch from a cursor on, with what the cursor says of the part before it.

    The place of a sample in an indexed mixture depends on the weights from the beginning on. So a
    cursor says what they were (`Adjustable`), and the plan that goes on from it has them up to
    there: what was given stays as it was, and every source goes on.

    Args:
        batches: The plan of a loader.
        cursor: A cursor of this plan, perhaps with other values of what a run may change.
        endless: Whether the epochs of a loader are parts of one epoch of the plan.
    """
    op, line = changeable(batches), weights_line(cursor["plan"])
    if op is None or cursor["position"] is None or line is None:
        return batches
    drawn, at = batches, EpochPosition.of(cursor).batches
    if waits(batches):
        drawn, at = seeded(batches, at[0]), at[1]
    if not isinstance(at, int):  # a stream: its position says where each source is
        return batches
    now: Any = changeable(at_epoch(drawn, 0 if endless else cursor["epoch"]))
    changes = now.after(line, at)
    return rewritten(batches, lambda node: changes if node is op else {})
