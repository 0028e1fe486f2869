"""`Loading`: what a loader loads, as one frozen value: the source, the options, the placement.

It is resolved once, when the loader gets its source. What depends on jax's modes follows the thread
that begins a pass (`here`). What all passes of a loader share is in a `Run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from jax.sharding import NamedSharding

from jreader.batches import Batching, batch, bucket
from jreader.batches.padded_batches import lengths_vary, padded_batch
from jreader.devices import Placement
from jreader.errors import BatchNotDivisible, NotResumable, ShortEpoch, warn
from jreader.feeds import Feeds, FeedsThere
from jreader.feeds.layouts import in_one_home
from jreader.feeds.shards import dealt_to
from jreader.feeds.shares import Share
from jreader.loaders.checkpoints.cursors import (
    REMOVED,
    check_plan,
    checked,
    names_readers,
    skipping,
    weights_line,
    with_plan,
)
from jreader.loaders.checkpoints.positions import EpochPosition
from jreader.loaders.device_programs.resident import Resident
from jreader.loaders.device_programs.stages import Layout
from jreader.loaders.remainders import Remainder
from jreader.loaders.source import Options, Source
from jreader.loaders.steering import reweighed, steered, with_past_weights
from jreader.readers import Cursor, Node, Plan, Reader, described, fingerprint, first_column, length
from jreader.readers.fingerprints import with_history
from jreader.readers.growing import any_stores
from jreader.readers.nodes import field_value
from jreader.readers.planes import indexed
from jreader.readers.seeds import seeded
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
        resident: The data, if they are already on the devices.
        share: The rows of each batch that this process feeds, if it reads only those.
        shares: The same for batches of each size, if sizes differ.
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
        """Resolve the arguments, so that a wrong one raises its error where it was written.

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

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what holds jax's context managers, which cannot be pickled."""
        return {name: value for name, value in vars(self).items() if name != "putter"}

    @property
    def here(self) -> Loading:
        """The same, under the modes of jax (x64, default device) of this thread."""
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
        if not found.sizes or found.functions or isinstance(found.op, padded_batch):
            return ()
        if not found.indexed:
            return ()
        shares = [placement.here(rows) for rows in found.sizes]
        return tuple(share for share in shares if share) if all(shares) else ()

    @cached_property
    def per_feed(self) -> int:
        """The number of batches per feed."""
        parallel = (self.placement.parts or 1) if self.source.batch_per_place else 1
        return parallel * (self.options.chunk or 1)

    @cached_property
    def axes(self) -> int:
        """The number of leading axes of a feed that count samples."""
        return 1 + (self.placement.parts is not None) + (self.options.chunk is not None)

    @cached_property
    def plain(self) -> bool:
        """True if the named arrays of a full batch are a feed without further work."""
        kind, fields = self.source.kind, self.options.feed_list
        # a mapping may leave out the first array of a batch, whose rows would be counted
        named = kind != "collated" and not (kind == "arrays" and isinstance(fields, Mapping))
        whole = self.share is None and not (self.masked or self.source.batching.sizes)
        alone = self.axes == 1 and self.per_feed == 1 and not self.options.return_list
        return named and whole and alone

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

    @property
    def names(self) -> list[str] | None:
        """The names of the fields of a feed; None if only a feed shows them."""
        found, named = self.source.batching, self.feeds.names
        plain = type(found.op) is batch and not found.functions
        plane = plain and found.op and indexed(seeded(found.op.reader, 0))
        known = dict.fromkeys(named) if named else plane and plane.columns
        return [*known, *["mask"] * self.masked] if isinstance(known, dict) else None

    @property
    def named_there(self) -> Callable[[Any], Any] | None:
        """`feeds.from_samples` for workers, which know neither devices nor jax.

        None if some fields of a feed stay on the host.
        """
        placement = self.placement
        if placement.hosts and placement.target != "host":
            return None
        homes = partial(in_one_home, placement.hosts)
        return FeedsThere(self.options.feed_list, placement.canonical, homes).from_samples

    @cached_property
    def placed(self) -> Placement:
        """The placement of feeds with their mask and their axis of steps."""
        placement = replace(self.placement, share=self.share)
        placement = placement.with_mask() if self.masked else placement
        return placement.chunked() if self.options.chunk else placement

    @cached_property
    def putter(self) -> Callable[..., Any]:
        """A function that puts feeds on the devices; later passes reuse what it has learned."""
        return self.placed.putter()

    @cached_property
    def masked(self) -> bool:
        """True if every feed carries a mask."""
        op = self.source.batching.counted
        return self.pads or (op is not None and op.removed is not None)

    @property
    def pads(self) -> bool:
        """True if the last step is filled up with zeros."""
        return self.remainder.last == "pad"

    @cached_property
    def strict(self) -> bool:
        """True if a short group of batches is an error."""
        return self.remainder.strict(self.source.batching)

    def of_feed(self, feed: Any) -> Loading:
        """Return the same with the share of this feed's rows, if batches differ in size."""
        rows = len(first_column(feed)) if self.shares else 0
        shares = [each for each in self.shares if len(each) == rows]
        return replace(self, share=shares[0], shares=()) if shares else self

    def takes(self, rows: int) -> bool:
        """Return whether `rows` rows can be divided evenly over the devices."""
        if self.share is not None:
            return rows == self.share.size
        per_place = self.source.batch_per_place and self.placement.parts is not None
        return per_place or self.placement.divides(rows)

    def fed(self, samples: int, op: batch[Any], done: int = 0) -> int:
        """Return how many of an epoch's samples, batched by `op`, make feeds, after some steps."""
        if op.drop_last:
            samples = op.sizes.full(done, samples)[1]
        whole = op.sizes.times(self.per_feed).full(done, samples)[1]
        alone = self.remainder.any_size and self.per_feed == 1 and self.takes(samples - whole)
        given = self.pads or self.remainder.last == "keep" or alone
        return samples if given else whole

    def short(self, seen: int, needed: int) -> ShortEpoch:
        """Return the error of a step with too few samples."""
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
        """Return the source of an epoch, from a cursor on, with its `remainder` applied.

        Args:
            cursor: The cursor; None for the beginning.
            began: The cursor at which the pass began that reached this one; None for this one.
        """
        if cursor is not None and (there := self.steered(cursor)) is not self:
            return there.of_epoch(cursor, began)
        if cursor is None or (cursor["position"] is None and not cursor["samples"]):
            # the ends of batches of several sizes depend on lengths, which may grow
            vary = self.source.batching.sizes
            return self._ending(self.source.batches) if vary else self._whole
        batches, continues = self.source.batches, self.remainder.continues
        batches = with_past_weights(batches, began or cursor, endless=continues)
        return self._ending(batches, cursor["samples"], EpochPosition.of(cursor).steps)

    def _ending(self, batches: Reader[Any], samples: int = 0, steps: int = 0) -> Source:
        batches = self.remainder.of(batches, self.per_feed, samples, steps)
        if batches is self.source.batches:
            return self.source  # it has cached how they are made
        return replace(self.source, batches=batches)

    @cached_property
    def _whole(self) -> Source:
        return self._ending(self.source.batches)

    def count(self) -> int | None:
        """Return the number of feeds in an epoch; None if it is unknown before reading it."""
        here, remainder, found = self.here, self.remainder, self.of_epoch().batching
        if remainder.steps is not None:
            return remainder.steps
        samples = found.samples
        if found.op is None or samples is None:
            return self._count_of_batches(found)
        sizes, fed = found.op.sizes, here.fed(samples, found.op)
        full, end = sizes.times(self.per_feed).full(0, fed)
        equal = not remainder.any_size or self.pads or here.takes(sizes.sizes[0])
        return full * equal + (end < fed)

    def _count_of_batches(self, found: Batching) -> int | None:
        many, last = length(self.of_epoch().batches), self.remainder.last
        if found.buckets is not None:
            return many if last in ("pad", "keep") or found.buckets.drop_last else None
        if many is None or last == "keep":
            return many
        return -(-many // self.per_feed) if last == "pad" else None

    def check(self) -> None:
        """Check, before the first step, that epochs have enough samples, as far as that is known.

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
        if op is None or samples is None:
            return
        sizes = op.sizes.times(self.per_feed)
        whole = sizes.full(0, samples)[1]
        if whole < samples:
            raise self.short(samples - whole, sizes.at(whole))

    def _check_buckets(self, op: bucket[Any]) -> None:
        """Check that each bucket fills its batches; warn of one that never fills any.

        Raises:
            ShortEpoch: One is short, and that is an error.
        """
        known = op.known()
        if known is None:
            return
        if self.strict:
            for number, rest in known.short_batches():
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
        """Return the cursor if it fits what is loaded.

        Raises:
            ValueError: It is damaged.
            NotResumable: It is of another pipeline or release.
        """
        whole = checked(cursor)
        self.check_plan(whole)
        return whole

    def check_plan(self, cursor: Cursor) -> None:
        """Raise NotResumable if a cursor is of another plan."""
        written, plan = cursor["plan"], self.plan()
        if names_readers(plan) and not names_readers(written):
            plan = self._plan_of(self.of_epoch().batches, by_name=False)
        check_plan(written, plan, caching=any_stores(self.source.batches))

    def check_weights(self, cursor: Cursor) -> None:
        """Check that a cursor of a resident loader fits the plan that is on the devices.

        Raises:
            NotResumable: The weights of a mixture have changed.
        """
        if weights_line(self.plan(cursor)) != weights_line(self.plan()):
            raise NotResumable(
                "this cursor belongs to other weights than those of "
                f"{described(self.source.batches)}, and load(resident=True) keeps one order on the "
                "devices: resume with the weights it had, or leave resident=True out."
            )

    def skipping(self, cursor: Cursor, steps: range | None = None) -> Cursor:
        """Return the cursor with `steps` skipped, too.

        Raises:
            NotResumable: It skips steps of another size, which would be other samples here.
        """
        if steps is None and not cursor["skipped"]:
            return cursor
        size = self.source.size or 0
        return skipping(cursor, steps, size if isinstance(size, str) else size * self.per_feed)

    def plan(self, cursor: Cursor | None = None) -> Plan:
        """Return the plan as a cursor stores it; updated when the data set grows or shrinks.

        Args:
            cursor: The cursor that the plan resumes, if any.
        """
        source = self.of_epoch()
        op, batches = source.batching.counted, source.batches
        samples = length(op.reader if op else batches)
        plan = self._plans.get(samples)
        if plan is None:  # a prefetching thread may ask at the same time, for another length
            plan = self._plan_of(batches)
            self._plans.clear()
            self._plans[samples] = plan
        if cursor is None or (line := weights_line(cursor["plan"])) is None:
            return plan
        changed = cursor["position"] is not None and line != weights_line(plan)
        if changed or self.steered(cursor) is not self:
            return with_history(plan, self.of_epoch(cursor).batches)
        return plan

    def _plan_of(self, batches: Reader[Any], *, by_name: bool = True) -> Plan:
        stages = (stage.fn for stage in self.options.stages.stages)
        plan = fingerprint(batches, self._feeds_in_plan(), stages, by_name=by_name)
        op = self.source.batching.counted
        if self.source.lock:
            plan["lock"] = [*self.source.lock]
        if op and op.removed:
            plan["values"].append(f"{REMOVED}{op.removed}")
        return plan

    def steered(self, cursor: Cursor) -> Loading:
        """Return the same with the weights that `set_weights` gave a mixture before a cursor."""
        batches = steered(self.source.batches, cursor)
        if batches is self.source.batches:
            return self
        return replace(self, source=replace(self.source, batches=batches))

    def with_weights(self, cursor: Cursor, weights: Any) -> Cursor:
        """Return the cursor from which a mixture continues with new weights.

        Raises:
            TypeError: No mixture has weights that may change, or `weights` are not weights.
            ValueError: `weights` do not fit its readers.
            NotResumable: The devices hold one order.
        """
        batches, continues = self.of_epoch(cursor).batches, self.remainder.continues
        batches = reweighed(batches, cursor, weights, endless=continues)
        changed = with_plan(cursor, with_history(self.plan(), batches))
        if self.resident:
            self.check_weights(changed)
        return changed

    def _feeds_in_plan(self) -> Iterator[str]:
        """Yield the lines of the plan that say how feeds are made."""
        options = self.options
        batches = self.source.batches
        mapper = field_value(batches, "mapper") if isinstance(batches, Node) else None
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
        """True if a pass over the batches calls users' code: then only one thread draws it."""
        here = self.resident is None and self.options.workers is None
        return here and runs_users_code(self.source.batches)

    @property
    def numbered(self) -> bool:
        """True if a feed needs its epoch and first row number, for random keys or for a gather."""
        return self.resident is not None or self.options.stages.random


def _check_shapes(loading: Loading) -> None:
    """Check that batches of several shapes can make feeds.

    Raises:
        BatchNotDivisible: The devices cannot split the batches of each bucket evenly.
        ValueError: Several batches make a feed, and they differ in shape.
    """
    found, placement = loading.source.batching, loading.placement
    if loading.per_feed > 1 and (found.sizes or (found.op and lengths_vary(found.op))):
        many = "chunk(k)" if loading.options.chunk else "a batch for each place"
        raise ValueError(
            f"{described(loading.source.batches)} gives batches of several shapes, and {many} "
            "needs batches of one shape: leave it out, and split each batch over the devices, as "
            ".load(sharding=mesh) does; or use .batch(n), .padded_batch(n, to=[length]), or "
            ".pack(size)."
        )
    for number, rows in enumerate(() if found.functions else found.sizes):
        if found.buckets is None:
            placement.check(rows)
        elif not placement.divides(rows):
            raise BatchNotDivisible(
                f"a batch of {rows} samples of length {found.buckets.bounds[number]} cannot be "
                f"split evenly over {placement.most} devices: type "
                f"bucket(..., divisible_by={placement.most})."
            )
