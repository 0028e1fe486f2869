"""A source that is watched while a loader reads it ahead, and the threads that do."""

import threading
import time

from programs import PATIENCE

from jreader import DataLoader


class Watched:
    """A reader of numbers that knows how far it is ahead of what was asked for."""

    def __init__(self, count=12, fails=None):
        self.count, self.fails = count, fails
        self.asked = self.most = 0
        self.limit, self.full, self.closed = None, threading.Event(), threading.Event()

    def __call__(self):
        try:
            for number in range(self.count):
                self._look(number + 1 - self.asked)
                if number == self.fails:
                    raise LookupError(number)
                yield number
        finally:
            self.closed.set()

    def _look(self, ahead):
        self.most = max(self.most, ahead)
        if ahead == self.limit:
            self.full.set()

    def loader(self, capacity, places=None, **options):
        self.limit = capacity * (len(places) if places else 1)
        loader = DataLoader.from_generator(capacity=capacity, **options)
        return loader.set_sample_generator(self, 1, places=places)

    def taken(self, feeds, steps, width=1):
        """The next feeds, by a consumer whose steps take long enough to be worth a thread."""
        seen = []
        for _ in range(steps):
            self.asked += width
            self.full.clear()
            seen.append(next(feeds))
            time.sleep(0.002)
            self.full.wait(0.02)
        return seen


def loader_threads():
    return [each for each in threading.enumerate() if each.name.startswith("jreader loader")]


def check_threads_end():
    for each in loader_threads():
        each.join(PATIENCE)
    assert loader_threads() == []


def in_a_thread(fn):
    """What `fn()` gives on another thread."""
    given = []
    thread = threading.Thread(target=lambda: given.append(fn()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert given, "the thread hangs, or failed"
    return given[0]
