"""Steps that nobody waits for: the memory of their feeds is not taken back early."""

import jax
import numpy as np
import pytest

from jreader import DataLoader, Pipeline, arrays

DEVICES = jax.devices()


class TestUnawaited:
    """300 steps that nobody waits for: memory that is taken back early shows as wrong values."""

    STEPS, SHAPE = 300, (256, 128)  # 128 KiB: copies of it run behind the caller's back

    def reused(self):
        """Batches by a generator that has one array and fills it anew."""
        array = np.empty(self.SHAPE, "float32")
        for number in range(self.STEPS):
            array.fill(number)
            yield {"x": array}

    def loader(self, places):
        loader = DataLoader.from_generator(capacity=4)
        return loader.set_batch_generator(self.reused, places)

    places = pytest.mark.parametrize("places", [None, "rows", "pmap"])

    def loaders(self, places):
        if places == "pmap":
            rows = np.repeat(np.arange(self.STEPS, dtype="float32"), 32)
            return Pipeline(arrays(x=rows)).batch(32).load(capacity=4, pmap=True)
        mesh = jax.sharding.Mesh(np.array(DEVICES), ("data",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        return self.loader(rows if places else None)

    def check(self, results):
        means = [np.asarray(result) for result in results]
        for number, mean in enumerate(means):
            np.testing.assert_array_equal(mean, number)
        assert len(means) == self.STEPS

    @places
    def test_feeds_that_the_loop_keeps(self, places):
        kept = list(self.loaders(places))
        self.check(feed["x"].mean() for feed in kept)
        self.check(feed["x"] for feed in kept)

    @places
    def test_feeds_that_the_loop_drops(self, places):
        step = jax.jit(lambda feed: feed["x"].mean())
        self.check([step(feed) for feed in self.loaders(places)])

    @places
    def test_feeds_that_the_step_donates(self, places):
        step = jax.jit(lambda feed: feed["x"] * 2, donate_argnums=0)
        self.check([array / 2 for array in [step(feed) for feed in self.loaders(places)]])
