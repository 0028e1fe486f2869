"""Whose turn it is in a mixture, and which sample comes: computed, for any turn at once.

Shares. With weights w that sum to W, and c[k] the sum of those before source k, the first b blocks
of Q turns give source k floor(b Q c[k+1] / W) - floor(b Q c[k] / W) samples: less than one off its
share, however many blocks there are, and all sources together have every turn. Q is a power of two,
so large that every source has a turn in every block. The floors are exact for whole weights up to
2**48 turns / W, and else off by b / 2**48.

The order of a block. Sort its turns by source, and call the place of a turn in that row its rank.
The rank of turn s is its bits in reverse order (van der Corput's sequence). So every aligned run of
2**n turns takes ranks at equal distances, and each source has its share of the run to within one: a
batch of 256 at 7 : 3 has 179 or 180 samples of the first source, where a shuffled order is off by 7
on average. Inside runs of 64, each bit is flipped or not by a bit of the run's key that belongs to
the bits before it (Owen 1995, "Randomly permuted (t,m,s)-nets", in base 2): 63 coins, so 2**63
orders, each as even. A random permutation of a whole block would need a table of it for every turn
that is looked up; here the turns of a source before turn s are counted in closed form, run by run
of the binary digits of s.

Counts at the ends of runs do not depend on keys. So if the run in which a mixture ends has the same
order in every epoch, all epochs have one length, which is known before a seed is drawn. Such a run
is called `settled`; so is one that a change of weights cuts.

The arithmetic is on integers, with the same results under NumPy and in a trace of jax, which has 32
bits: there, products are made of 16-bit limbs. Measured on two cores, with 16,384 turns at once: 40
ns a turn for 4 sources, 75 for 200, and seven tenths of the former if turns are consecutive; for
scattered turns, 100 and 260.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from jreader.orders.keys import distinct, key

Array = np.ndarray[Any, Any]
Number = Any  # an array of integers, of NumPy or jax

_RUN_BITS = 6
RUN = 1 << _RUN_BITS
MOST_LEVELS = 30  # of a block: the least share is 2**-30
LAST_TURN = 1 << 46
TRACED_SUM = 1 << 30  # of weights that are traced, so that no share is below 2**-30
_FEW = 16  # sources that are compared one by one
_FRACTION = 48  # bits of the fractions of cumulative shares


class Turns:
    """The turns of sources with these weights.

    >>> which, sample = Turns((3, 1)).at(np.arange(8), (42,))
    >>> which.tolist(), sample.tolist()
    ([0, 0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 2, 3, 1, 4, 5])

    Args:
        weights: Ints of at least 1; the least at least 2**-30 of their sum, which is at most 2**46.

    Attributes:
        weights: As given.
        block: The number of turns after which each source has its share again.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        total = sum(weights)
        self.weights, self._many = tuple(weights), len(weights)
        self._levels = self._most_levels = levels_of(weights)
        self.block: Number = 1 << self._levels
        # a power of two, for a search by halves: the added sources have no share
        self._row = 1 << (self._many - 1).bit_length()
        ends = [*accumulate(weights), *[total] * (self._row - self._many)]
        parts = [divmod(self.block * end, total) for end in (0, *ends)]
        self._whole = np.array([whole for whole, _ in parts])
        self._rest = np.array([-(-(rest << _FRACTION) // total) for _, rest in parts])
        self._limbs = [(self._rest >> shift & 0xFFFF).astype(np.uint32) for shift in (0, 16, 32)]

    @classmethod
    def traced(cls, weights: Number) -> Turns:
        """Return the same turns, for weights that are known only when a program of jax runs.

        Every bit of a share is a step of a long division, since a trace has 32 bits.

        Args:
            weights: A jax array of ints, 0 for a source without turns. Their sum is below
                `TRACED_SUM`, which no trace can check.
        """
        self, namespace = cls.__new__(cls), weights.__array_namespace__()
        self.weights, self._many, self._most_levels = weights, len(weights), MOST_LEVELS
        self._row = 1 << (self._many - 1).bit_length()
        ends = namespace.cumulative_sum(weights.astype(np.uint32), dtype=np.uint32)
        total = ends[-1]
        least = namespace.where(weights > 0, weights.astype(np.uint32), total).min()
        bits = np.arange(MOST_LEVELS, dtype=np.uint32)
        levels = ((total - np.uint32(1)) // least >> bits > 0).sum(dtype=np.uint32)
        self._levels = namespace.maximum(levels, np.uint32(_RUN_BITS))
        left = namespace.concat([ends[:1] & 0, ends, ends[-1:].repeat(self._row - self._many)])
        self._whole, left = _quotient(left, total, self._levels)
        high, left = _quotient(left, total, 16)
        middle, left = _quotient(left, total, 16)
        low, left = _quotient(left, total, 16)
        low = low + (left > 0)  # rounded up
        middle = middle + (low >> 16)
        tables = [self._whole, low & 0xFFFF, middle & 0xFFFF, high + (middle >> 16)]
        self._whole, *self._limbs = tables
        self.block = np.uint32(1) << self._levels
        return self

    def at(
        self, turns: Number, path: Sequence[Any], settled: int | None = None
    ) -> tuple[Number, Number]:
        """Return the source of each of these turns, and the index of its sample within the source.

        Args:
            turns: Their numbers, from 0.
            path: The path of a run's key, without the number of the run (`orders.key`).
            settled: The number of the run whose order does not depend on the key, if any.

        Returns:
            Numbers of sources, and indices, in the shape of `turns`.
        """
        host = isinstance(turns, np.ndarray)
        if host and self._many <= _FEW and _in_a_row(turns):
            which, sample = self._one_by_one(int(turns[0]), len(turns), path, settled)
            return which, sample.astype(turns.dtype, copy=False)
        word = np.int16 if host and self._levels < 15 else np.int32
        rank, plain = (each.astype(word) for each in self._ranks(turns, path, settled))
        end, cut = self._tables(turns >> self._levels, word)
        found, step = turns & 0, self._row
        while step > 1:
            step //= 2
            found = found + step * (cut(found + step) <= rank)
        inside = _turns_before(rank, plain, cut(found), cut(found + 1), self._most_levels)
        sample = end(found + 1) - end(found) + inside
        small = np.uint8 if self._many <= 256 else np.uint16
        return found.astype(small if host else np.int32), sample.astype(turns.dtype)

    def turns_of(
        self, which: Array, sample: Array, path: Sequence[Any], settled: int | None = None
    ) -> Array:
        """Return the turns in which sources give these samples of theirs: the inverse of `at`.

        >>> turns = np.arange(1000)
        >>> bool((Turns((3, 1)).turns_of(*Turns((3, 1)).at(turns, (42,)), (42,)) == turns).all())
        True
        """
        share = np.array(self.weights)[which] * (self.block / sum(self.weights))
        block = np.maximum((sample / share).astype(np.int64) - 2, 0)  # no share is off by more
        for _ in range(4):
            first, last = self._end(block + 1, which), self._end(block + 1, which + 1)
            block += last - first <= sample
        first, last = self._end(block, which), self._end(block, which + 1)
        left = sample - (last - first)
        begin, end = self._end(block + 1, which) - first, self._end(block + 1, which + 1) - last
        slot, rank, upper = left & 0, left & 0, self._levels - _RUN_BITS
        for level in range(self._levels):
            coin, inner = left & 0, level - upper
            if inner == 0:  # the bits so far number the run, whose coins decide the rest
                low, high = self._coins((block << upper) + slot, path, settled)
            if inner >= 0:
                node = (slot & ((1 << inner) - 1)).astype(np.uint32)
                coin = (_coin(low, high, node, inner) & np.uint32(1)).astype(np.int64)
            rank |= coin << level  # of the earlier half, all ranks are equal up to this bit
            here = (end - 1 - rank >> level + 1) - (begin - 1 - rank >> level + 1)
            later = (left >= here).astype(np.int64)
            left, slot, rank = left - here * later, slot * 2 + later, rank ^ later << level
        turns: Array = block * self.block + slot
        return turns

    def _one_by_one(
        self, first: int, many: int, path: Sequence[Any], settled: int | None
    ) -> tuple[Number, Number]:
        """Do as `at`, for consecutive turns: each source continues where it is.

        So samples only need counting, and what a run shares is computed once.
        """
        runs = np.arange(first >> _RUN_BITS, (first + many - 1 >> _RUN_BITS) + 1)
        rank = self._ranks_of_runs(runs, path, settled)
        blocks = runs >> (self._levels - _RUN_BITS)
        cuts = self._cuts(np.arange(blocks[0], blocks[-1] + 1)).astype(rank.dtype)
        which, later = np.zeros(rank.shape, np.uint8), [rank.size]
        for cut in cuts[:, 1 : self._many].take(blocks - blocks[0], 0).T:
            reached = rank >= cut
            which += reached
            later.append(int(np.count_nonzero(reached)))
        which = which.T.reshape(-1)
        order = np.argsort(which, kind="stable")  # NumPy sorts 8 bits by counting
        given = self._given(int(runs[0])) + np.array(later) - rank.size
        sample = np.empty(rank.size, np.int64)
        sample[order] = np.arange(rank.size) + given.repeat(-np.diff(later, append=0))
        here = slice(first & (RUN - 1), (first & (RUN - 1)) + many)
        return which[here], sample[here]

    def counts(
        self, turn: int, path: Sequence[Any] = (0,), settled: int | None = None
    ) -> tuple[int, ...]:
        """Return how many samples each source gives in the first `turn` turns.

        >>> Turns((3, 1)).counts(64), Turns((3, 1)).counts(10**12)
        ((48, 16), (750000000000, 250000000000))
        """
        here = np.full(self._many, turn)
        return tuple(self._counts(here, np.arange(self._many), path, settled).tolist())

    def _counts(
        self, turns: Number, sources: Number, path: Sequence[Any], settled: int | None
    ) -> Number:
        """Return how many samples each of some sources gives, each before its own turn."""
        rank, plain = (each.astype(np.int32) for each in self._ranks(turns, path, settled))
        block = turns >> self._levels
        first, last = self._end(block, sources), self._end(block, sources + 1)
        begin = (self._end(block + 1, sources) - first).astype(np.int32)
        end = (self._end(block + 1, sources + 1) - last).astype(np.int32)
        return last - first + _turns_before(rank, plain, begin, end, self._levels)

    def _given(self, run: int) -> Number:
        """Return how many samples each source gives before a run; keys do not matter."""
        upper = self._levels - _RUN_BITS
        block, inside = run >> upper, run & ((1 << upper) - 1)
        ends = self._end(np.array([[block], [block + 1]]), np.arange(self._many + 1))
        given = np.diff(ends[0])
        if inside:
            rank = sum((inside >> (upper - 1 - level) & 1) << level for level in range(upper))
            cuts = ends[1] - ends[0]
            given += _turns_before(rank, rank, cuts[:-1], cuts[1:], upper)
        return given

    def _ranks(
        self, turns: Number, path: Sequence[Any], settled: int | None
    ) -> tuple[Number, Number]:
        """Return the rank of each turn in its block, once sorted by source; also without coins."""
        runs, which = distinct(turns >> _RUN_BITS)
        low, high = self._coins(runs, path, settled)
        low, high = _table_of(low, which), _table_of(high, which)
        slot = (turns & (self.block - 1)).astype(np.uint32)
        inside, flips = slot & np.uint32(RUN - 1), slot & np.uint32(0)
        for level in range(_RUN_BITS):  # the bits before this one choose the coin
            node = inside >> np.uint32(_RUN_BITS - level)
            flips |= (_coin(low, high, node, level) & np.uint32(1)) << np.uint32(level)
        plain = _backwards(slot) >> _word(32 - self._levels)
        return plain ^ flips << _word(self._levels - _RUN_BITS), plain

    def _ranks_of_runs(self, runs: Array, path: Sequence[Any], settled: int | None) -> Array:
        """Return the ranks of all turns of these runs, [RUN, runs]; each coin is used once."""
        low, high = self._coins(runs, path, settled)
        word: Any = (
            np.uint8 if self._levels <= 8 else np.uint16 if self._levels <= 16 else np.uint32
        )
        upper = self._levels - _RUN_BITS
        first = np.zeros(len(runs), word)
        for level in range(upper):
            first |= ((runs >> (upper - 1 - level) & 1) << level).astype(word)
        rank: Array = first[None]
        for inner in range(_RUN_BITS):
            nodes = np.arange(1 << inner, dtype=np.uint32)[:, None]
            coins = high >> nodes if inner == _RUN_BITS - 1 else low >> (nodes + nodes[-1])
            coin = (coins.astype(word) & word(1)) << word(upper + inner)
            rank = np.stack([rank | coin, rank | coin ^ word(1 << upper + inner)], 1)
            rank = rank.reshape(-1, len(runs))
        return rank

    def _coins(
        self, runs: Number, path: Sequence[Any], settled: int | None
    ) -> tuple[Number, Number]:
        """Return the keys of runs: 31 coins and 32 coins, all zero for the settled run."""
        low, high = key(*path, runs)
        if settled is None:
            return low, high
        keyed = (runs != settled).astype(np.uint32)
        return low * keyed, high * keyed

    def _tables(
        self, blocks: Number, word: Any
    ) -> tuple[Callable[[Number], Number], Callable[[Number], Number]]:
        """Return two functions of source numbers, one number for each block.

        Returns:
            Where the turns of these sources begin, with all turns before the block sorted by
            source; and with those in it sorted.
        """
        some, which = distinct(blocks)
        if which is None:
            return lambda sources: self._end(blocks, sources), lambda sources: (
                self._end(blocks + 1, sources) - self._end(blocks, sources)
            ).astype(word)
        columns, row = np.arange(self._row + 1), which * (self._row + 1)
        ends = self._end(some[:, None], columns)
        cuts, ends = self._cuts(some).astype(word).reshape(-1), ends.reshape(-1)
        return lambda sources: ends.take(row + sources), lambda sources: cuts.take(row + sources)

    def _cuts(self, blocks: Array) -> Array:
        """Return where each source's ranks begin in each of these blocks, which are consecutive."""
        ends = self._end(np.append(blocks, blocks[-1] + 1)[:, None], np.arange(self._row + 1))
        cuts: Array = np.diff(ends, axis=0)
        return cuts

    def _end(self, blocks: Number, sources: Number) -> Number:
        """Return where a source's turns begin, if all turns before a block are sorted by source."""
        if isinstance(blocks, np.ndarray):
            many, exact = blocks.astype(np.uint64), self._rest[sources].astype(np.uint64)
            half, mask = np.uint64(24), np.uint64((1 << 24) - 1)
            parts = (many * (exact >> half) + (many * (exact & mask) >> half)) >> half
            return blocks * self._whole[sources] + parts.astype(np.int64)
        asarray = blocks.__array_namespace__().asarray
        whole, *rest = (
            asarray(part.astype(np.uint32))[sources] for part in (self._whole, *self._limbs)
        )
        many = blocks.astype(np.uint32)
        return (many * whole + _product(many, rest)).astype(np.int32)

    def found_empty(self, lengths: Sequence[int | None]) -> Sequence[int]:
        """Return the run in which each source is asked for one sample more than it has.

        It does not depend on keys. A source of unknown length never runs out, and neither does one
        that lasts for 2**46 turns: `LAST_TURN // RUN`.
        """
        total, low, high = sum(self.weights), [], []
        for length, weight in zip(lengths, self.weights, strict=True):
            about = LAST_TURN if length is None else length * total // weight
            margin = 3 * total // weight + self.block  # no share is off by more
            low.append(max(min(about, LAST_TURN) - margin, 0) // RUN)
            high.append(min(about + margin, LAST_TURN) // RUN)
        known = [LAST_TURN if length is None else length for length in lengths]
        runs: list[int] = self._searched(np.array(low), np.array(high), np.array(known)).tolist()
        return runs

    def _searched(self, low: Number, high: Number, lengths: Number) -> Number:
        """Find by halves the last run before which each source has given at most its length."""
        sources = np.arange(self._many)
        while (high - low > 1).any():
            middle = (low + high) // 2
            given = self._counts(middle * RUN, sources, (0,), None)
            fits = given <= lengths
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return np.where(high < LAST_TURN // RUN, low, LAST_TURN // RUN)


def levels_of(weights: Sequence[int]) -> int:
    """Return log2 of the turns of a block in which each source has at least one."""
    return max(_RUN_BITS, (-(-sum(weights) // min(weights)) - 1).bit_length())


def _turns_before(rank: Number, plain: Number, begin: Number, end: Number, levels: int) -> Number:
    """Count the turns of a block before one that have ranks from `begin` up to `end`.

    They are runs, one for each 1 bit of the turn's number. The ranks of a run differ from each
    other by a power of two, and from the turn's rank in one bit below it.

    Args:
        rank: The rank of the turn.
        plain: The bits of its number in the block, in reverse order.
        begin: The first rank.
        end: The rank after the last.
        levels: The bits of a number in the block, or more.
    """
    first, last = begin - 1, end - 1

    def of_level(level: Number) -> Number:
        distance = level + 1
        other = (rank & ((1 << distance) - 1)) ^ (1 << level)
        inside = ((last - other) >> distance) - ((first - other) >> distance)
        return inside & -((plain >> level) & 1)

    if isinstance(begin, np.ndarray):
        return sum(map(of_level, range(levels)))
    every = np.arange(levels, dtype=np.int32)  # one axis more: XLA compiles it for one level
    return of_level(every.reshape(-1, *[1] * rank.ndim)).sum(0, dtype=rank.dtype)


def _backwards(words: Number) -> Number:
    """Reverse the bits of uint32 words: swap neighbours, then pairs, and so on."""
    for shift, every in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        by, mask = np.uint32(shift), np.uint32(every)
        words = (words >> by & mask) | (words & mask) << by
    return words >> np.uint32(16) | words << np.uint32(16)


def _word(number: Number) -> Number:
    return np.uint32(number) if isinstance(number, int) else number.astype(np.uint32)


def _quotient(left: Number, total: Number, bits: Number) -> tuple[Number, Number]:
    """Return the integer part of `left * 2**bits / total`, which fits 32 bits, and the remainder.

    Args:
        left: uint32 numbers of at most `total`.
        total: A uint32 number below 2**31.
        bits: The number of bits; a traced number of at most `MOST_LEVELS`.
    """

    def step(done: Number, state: tuple[Number, Number]) -> tuple[Number, Number]:
        found, left = state
        by = (done < bits).astype(np.uint32)
        left = left << by
        digit = (left >= total).astype(np.uint32)
        return (found << by) + digit, left - digit * total

    most = bits if isinstance(bits, int) else MOST_LEVELS
    quotient: tuple[Number, Number] = sys.modules["jax"].lax.fori_loop(
        0, most, step, (left & 0, left), unroll=8
    )
    return quotient


def _coin(low: Number, high: Number, node: Number, inner: int) -> Number:
    """Return the coin of a node of a run at some level, as the lowest bit of a number."""
    last = inner == _RUN_BITS - 1
    return high >> node if last else low >> (node + np.uint32((1 << inner) - 1))


def _product(many: Number, fraction: list[Number]) -> Number:
    """Return the integer part of uint32 times a fraction of three 16-bit limbs, lowest first."""
    low, middle, high = fraction
    half, mask = np.uint32(16), np.uint32((1 << 16) - 1)
    one, two = many & mask, many >> half
    first = one * low
    second, third = one * middle, two * low
    carry = (first >> half) + (second & mask) + (third & mask)
    fourth, fifth = one * high, two * middle
    carry = (carry >> half) + (second >> half) + (third >> half) + (fourth & mask) + (fifth & mask)
    return (carry >> half) + (fourth >> half) + (fifth >> half) + two * high


def _table_of(table: Number, which: Number | None) -> Number:
    return table if which is None else table.take(which)


def _in_a_row(turns: Array) -> bool:
    many = len(turns)
    return many > 1 and turns[-1] - turns[0] == many - 1 and bool((np.diff(turns) == 1).all())
