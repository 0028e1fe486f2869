"""How a process notices that the next one is gone: no connection to it can be made (again)."""

import os
import socket
from threading import Event
from threading import enumerate as threads

import pytest
from programs import PATIENCE

from jreader.loaders.multihost import neighbours


@pytest.fixture
def quick(monkeypatch):
    """Seconds without a sign are hundredths."""
    for name in ("_HEARTBEAT_SECONDS", "_HEARTBEAT_TIMEOUT"):
        monkeypatch.setattr(neighbours, name, getattr(neighbours, name) / 100)


@pytest.fixture
def server():
    """Listens, as the next process would."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


@pytest.fixture
def here():
    """Where this process listens."""
    return neighbours.listen("127.0.0.1:1", lambda _: False)


def watched(here, *said):
    """An event that is set once the process that says so is told to be gone; and what it says."""
    told, left = Event(), list(said)
    neighbours.watch(here, lambda: left.pop(0) if len(left) > 1 else left[0], told.set)
    return told, left


def ends():
    """Waits until nobody is watched."""
    for thread in threads():
        if thread.name == "jreader neighbour":
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_a_process_listens_only_where_others_reach_the_first_one(here):
    assert here.getsockname()[0] == "127.0.0.1"


def test_a_connection_that_can_be_made_again_is_no_loss(here, server):
    told, _ = watched(here, [*server.getsockname(), 0])
    server.accept()[0].close()
    line, _ = server.accept()  # once more
    assert not told.is_set()
    server.close()
    line.close()
    assert told.wait(PATIENCE)
    ends()


def test_a_process_that_says_later_where_it_listens_is_watched(here, server):
    told, _ = watched(here, (), (), [*server.getsockname(), 0])
    line, _ = server.accept()
    server.close()
    line.close()
    assert told.wait(PATIENCE)
    ends()


def test_a_connection_that_could_not_be_made_is_tried_again(here, server):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()
    _, said = watched(here, [*nobody, 0], [*server.getsockname(), 1])
    server.accept()[0].close()
    said[:] = [None]
    server.close()
    ends()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1"])
def test_a_process_that_was_never_reached_is_lost_once_it_says_no_more(quick, here, server, host):
    port = server.getsockname()[1]
    server.close()
    told, said = watched(here, *([host, port, beat] for beat in range(30)))
    while len(said) > 1:
        assert not told.wait(neighbours._HEARTBEAT_SECONDS)  # it goes on saying that it is there
    assert told.wait(PATIENCE)
    ends()


@pytest.mark.parametrize("begun", [True, False])
def test_a_process_of_which_nobody_knows_that_it_should_say_more_is_not(quick, here, server, begun):
    nobody = [*server.getsockname(), None]  # another one is connected to it
    server.close()
    told, said = watched(here, nobody if begun else ())
    assert not told.wait(20 * neighbours._HEARTBEAT_TIMEOUT)
    said[:] = [None]
    ends()
    assert not told.is_set()


def test_a_process_says_that_it_is_there_until_it_is_connected(quick):
    heard, often, last = [], Event(), Event()

    def say(place):
        heard.append(place)
        if place[2] is None:
            last.set()
        elif place[2] > 4:
            often.set()
        return True

    here = neighbours.listen("127.0.0.1:1", say)
    assert often.wait(PATIENCE)
    with socket.create_connection(here.getsockname()):
        assert last.wait(PATIENCE)
    *beats, end = heard
    assert beats == [[*here.getsockname(), beat] for beat in range(len(beats))]
    assert end == [*here.getsockname(), None]


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_does_not_listen_for_its_parent(here):
    child = os.fork()
    if not child:
        os._exit(here.fileno() == -1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
