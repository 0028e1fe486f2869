"""The block whose next use is farthest gives way: as many hits as any choice can have."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from jreader.sources.files.eviction import NextUses


class Cache:
    """Blocks that are kept as a store keeps them, without their bytes."""

    def __init__(self, size):
        self.uses, self.size, self.hits = NextUses(), size, 0

    def read(self, block):
        self.uses.used(block, 0, 1)
        if block in self.uses:
            self.hits += 1
        elif len(self.uses) < self.size:
            self.uses.keep(block)
        elif (victim := self.uses.victim()) and self.uses.should_evict(victim, block):
            self.uses.drop(victim)
            self.uses.keep(block)


def most_hits(order, size):
    """Of all choices, by trying them: each kept set after each block, with its hits."""
    states = {frozenset(): 0}
    for block in order:
        after = dict[frozenset, int]()
        for kept, hits in states.items():
            hit = block in kept
            choices = [kept]
            if not hit:
                choices += [kept | {block}] if len(kept) < size else []
                choices += [(kept - {victim}) | {block} for victim in kept]
            for choice in choices:
                after[choice] = max(after.get(choice, 0), hits + hit)
        states = after
    return max(states.values())


@given(st.lists(st.sampled_from("abcde"), max_size=14), st.integers(1, 3))
def test_a_known_order_has_as_many_hits_as_any_choice(order, size):
    cache = Cache(size)
    cache.uses.announce((block, 0) for block in order)
    for block in order:
        cache.read(block)
    assert cache.hits == most_hits(order, size)


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.data())
def test_what_gives_way_is_kept_and_farthest_whatever_happened_before(told, data):
    uses = NextUses()
    uses.announce((block, 0) for block in told)
    for _ in range(data.draw(st.integers(0, 20))):
        block = data.draw(st.sampled_from("abcdefg"))
        data.draw(st.sampled_from([uses.keep, uses.drop, lambda each: uses.used(each, 0, 1)]))(
            block
        )
        kept = [each for each in "abcdefg" if each in uses]
        farthest = max(map(uses.next_use, kept), default=None)
        assert (uses.victim() is None) == (not kept)
        assert not kept or uses.next_use(uses.victim()) == farthest


def epochs(blocks, many, seed):
    drawn = random.Random(seed)
    return [[str(block) for block in drawn.sample(range(blocks), blocks)] for _ in range(many)]


def hit_rate(orders, size, *, told):
    cache = Cache(size)
    for number, order in enumerate(orders):
        if told:
            cache.uses.announce((block, 0) for block in order)
        for block in order:
            cache.read(block)
        if not number:
            cache.hits = 0
    return cache.hits / sum(map(len, orders[1:]))


def hit_rate_of_lru(orders, size):
    kept, hits = {}, 0
    for number, order in enumerate(orders):
        for block in order:
            hits += number > 0 and block in kept
            kept[block] = kept.pop(block, None)
            while len(kept) > size:
                kept.pop(next(iter(kept)))
    return hits / sum(map(len, orders[1:]))


def test_at_30_percent_a_shuffled_epoch_has_six_times_the_hits_of_lru():
    orders = epochs(300, 8, seed=1)
    assert hit_rate(orders, 90, told=True) == 0.3  # what no choice can better: each comes once
    assert hit_rate_of_lru(orders, 90) < 0.06


def test_epochs_of_which_nothing_is_known_keep_most_of_that():
    assert hit_rate(epochs(300, 8, seed=1), 90, told=False) > 0.22
    in_order = [list(map(str, range(300)))] * 8
    assert hit_rate(in_order, 90, told=False) > 0.22
    assert hit_rate_of_lru(in_order, 90) == 0


def test_what_is_read_in_pieces_is_one_use_for_each_piece_that_was_told():
    uses = NextUses()
    uses.keep("a")
    uses.announce([("a", 0), ("a", 10), ("b", 0), ("a", 0)])
    uses.used("a", 0, 5)
    uses.used("a", 5, 10)  # the rest of the same piece
    assert uses.next_use("a") == 2
    uses.used("a", 0, 20)
    assert uses.next_use("a") == 4


def test_uses_that_were_left_out_do_not_keep_a_block_for_ever():
    uses = NextUses()
    uses.keep("left out")
    uses.announce([("left out", 0), *((str(number), 0) for number in range(200))])
    for number in range(200):
        uses.used(str(number), 0, 1)
    assert uses.next_use("left out") == float("inf")


def test_what_was_forgotten_does_not_come():
    uses = NextUses()
    for block in "ab":
        uses.keep(block)
    uses.announce([("a", 0), ("b", 0)])
    assert uses.victim() == "b"
    uses.forget(lambda block: block == "a")
    assert uses.victim() == "a"
    assert uses.next_use("b") == 2


def test_blocks_of_another_run_give_way_first():
    uses = NextUses()
    uses.keep("old", -5.0)
    uses.keep("older", -9.0)
    uses.keep("mine")
    uses.announce([("mine", 0), ("new", 0)])
    uses.used("mine", 0, 1)
    assert uses.victim() == "older"
    assert uses.should_evict("older", "new")
    assert uses.should_evict("old", "another")
    assert not uses.should_evict("mine", "another")
