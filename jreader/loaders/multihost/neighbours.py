"""Detect killed processes: the kernel closes their connections.

Each process listens at a port that serves nothing, and connects to the port of the next process. A
connection that ends, and cannot be made again, means that the process is gone. So watching costs
two connections per process, however many there are, and nothing while all is well. A machine that
is lost answers none of the probes that the kernel sends meanwhile.

Until it is connected, a process also posts a heartbeat every 2 seconds. One that cannot be reached,
and posts no more, is gone too; this also works if a firewall forbids the connection.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from itertools import count
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

_CONNECT_TIMEOUT = 3.0  # seconds
_PROBES = {
    "TCP_KEEPIDLE": 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 3,
}  # lost after 5 s, and 3 to reconnect
_FIRST_POLL_SECONDS, _RECONNECT_SECONDS = 0.05, 0.1
_HEARTBEAT_SECONDS = 2.0  # also between two checks of a process that is not connected
_HEARTBEAT_TIMEOUT = 5.0  # seconds without a heartbeat, after which a process counts as lost
_listening: list[socket.socket] = []  # open as long as this process lives


def listen(coordinator: str, post_beat: Callable[[list[Any]], bool]) -> socket.socket:
    """Listen from now on, and post where, with a growing number, until a process connects.

    Args:
        coordinator: The address of the first process, which all can reach: a process that reaches
            it has an address in the same network.
        post_beat: Posts [host, port, number]; returns whether the run continues. The last number is
            None.
    """
    host, _, port = coordinator.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
    family, kind, *_, there = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(there)  # sends nothing
        here = probe.getsockname()[0]
    server = socket.create_server((here, 0), family=family, backlog=64)
    _listening.append(server)
    if hasattr(os, "register_at_fork"):  # a child would keep it open
        os.register_at_fork(after_in_child=server.close)
    post_beat([*server.getsockname()[:2], 0])
    Thread(target=_beat, args=(server, post_beat), name="jreader sign", daemon=True).start()
    return server


def _beat(server: socket.socket, post_beat: Callable[[list[Any]], bool]) -> None:
    here, beats = server.getsockname()[:2], count(1)
    while not wait([server], _HEARTBEAT_SECONDS):
        if not post_beat([*here, next(beats)]):
            return
    post_beat([*here, None])


def watch(
    server: socket.socket, last_beat: Callable[[], Any | None], on_lost: Callable[[], None]
) -> None:
    """Wait on a thread for the end of another process.

    Args:
        server: The socket on which this process listens.
        last_beat: Returns the latest post of the other process: empty before its first, None if the
            run is over.
        on_lost: Called when the other process is gone.
    """
    given = server.getsockname()[0], last_beat, on_lost
    Thread(target=_watch, args=given, name="jreader neighbour", daemon=True).start()


def _watch(here: str, last_beat: Callable[[], Any | None], on_lost: Callable[[], None]) -> None:
    latest, since, pause = None, 0.0, _FIRST_POLL_SECONDS
    while (there := last_beat()) is not None:
        now = time.monotonic()
        if there != latest:
            latest, since = there, now
        met = bool(there) and _is_of_one(there[0], here) and _met(there[0], there[1])
        silent = there and there[2] is not None and now - since > _HEARTBEAT_TIMEOUT
        if met or silent:
            return on_lost()
        time.sleep(pause)
        pause = min(2 * pause, _HEARTBEAT_SECONDS)
    return None


def _met(host: str, port: int) -> bool:
    """Connect to a process; return, once it is gone, whether that ever succeeded."""
    met = False
    with suppress(OSError):
        while True:
            with socket.create_connection((host, port), _CONNECT_TIMEOUT) as line:
                met = True
                line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _PROBES.items():
                    if option := getattr(socket, name, None):
                        line.setsockopt(socket.IPPROTO_TCP, option, value)
                line.settimeout(None)
                with suppress(OSError):
                    line.recv(1)  # returns when that process, or its machine, ends
            time.sleep(_RECONNECT_SECONDS)  # a proxy may end each connection at once
    return met


def _is_of_one(there: str, here: str) -> bool:
    """Return whether an address means the same process here; loopback ones are local.

    >>> _is_of_one("10.0.0.7", "10.0.0.8"), _is_of_one("127.0.0.1", "127.0.0.1")
    (True, True)
    >>> _is_of_one("127.0.1.1", "10.0.0.8")
    False
    """
    return not ip_address(there).is_loopback or ip_address(here).is_loopback
