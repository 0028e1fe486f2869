"""The store of a `jax.distributed` of one process, and the boards of several over it."""

from collections import defaultdict
from itertools import count

import jax
import pytest
from jax._src import distributed
from together import free_port

from jreader.loaders.multihost import board as boards
from jreader.loaders.multihost.board import Board


@pytest.fixture
def store(monkeypatch):
    """The store of a `jax.distributed` of one process, where that of this process would be."""
    state = distributed.State()
    state.initialize(f"127.0.0.1:{free_port()}", num_processes=1, process_id=0)
    monkeypatch.setattr(distributed, "global_state", state)
    yield state.client
    state.shutdown()


@pytest.fixture
def board(store, monkeypatch):
    """Makes the boards of processes that count theirs apart, as real ones do."""
    numbers = defaultdict(lambda: defaultdict(count))

    def made(me, made_at="train.py:7", processes=(0, 1)):
        with monkeypatch.context() as there:
            there.setattr(jax, "process_index", lambda: me)
            there.setattr(boards, "_NUMBERS", numbers[me])
            return Board(set(processes), made_at)

    return made
