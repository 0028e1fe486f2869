"""An HTTP server of this machine that gives ranges, and misbehaves as it is told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote


class RemoteServer:
    """Serves `files` under `url`; `mood` says for each request how it is answered.

    A mood is a function of the method and the name, called once for a request, that returns
    "good", "drop" (the connection ends), "half" (of what was promised), "hang" (until `close`),
    "first" (the first bytes of the file, whichever were asked for), or a status.

    Attributes:
        etags: Whether answers have ETags; "weak" for such as say little.
        heeds: Whether `If-Match` is looked at.
        by_query: Whether the names of files have queries.
        dates: What answers say of when a file was written.
        claims: Sizes that the answers to HEAD claim.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.mood: Callable[[str, str], Any] = lambda _method, _name: "good"
        self.ranges, self.heeds, self.by_query = True, True, False
        self.etags: bool | str = True
        self.dates: dict[str, str] = {}
        self.claims: dict[str, int] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.sent: Counter[str] = Counter()  # bytes of each file
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def tries(self, method: str = "GET") -> Counter[tuple[str, str | None]]:
        """How often each range of each file was asked for."""
        return Counter((name, span) for kind, name, span in self.asked if kind == method)

    def put(self, name: str, data: bytes | None) -> None:
        """Gives a file these bytes; None for a file that is gone."""
        if data is None:
            del self.files[name]
        else:
            self.files[name] = data

    def below(self, folder: str) -> list[str]:
        """What lies in a folder; the names of folders end in a slash."""
        inside = [name.removeprefix(folder) for name in self.files if name.startswith(folder)]
        return sorted({folder + "".join(name.partition("/")[:2]) for name in inside})

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Those who hang up are no news."""


def _handler(server: RemoteServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901  # one method
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer waits 40 ms

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:  # noqa: C901  # one branch for a mood
            path = self.path if server.by_query else self.path.partition("?")[0]
            name, span = unquote(path.lstrip("/")), self.headers.get("Range")
            with server._lock:
                server.asked.append((self.command, name, span))
                mood = server.mood(self.command, name)
            if mood == "hang":
                server._ended.wait()
            if mood in ("drop", "hang"):
                self.close_connection = True
                return
            if isinstance(mood, int):
                self.head(mood, 0, {})
                return
            if name not in server.files:
                self.folder(name, body=body)
                return
            whole = server.files[name]
            weak = "W/" if server.etags == "weak" else ""
            etag = f'{weak}"{hash(whole) & 0xFFFFFFFF:x}"'
            wanted = self.headers.get("If-Match")
            if wanted is not None and wanted != etag and server.heeds:
                self.head(412, 0, {})
                return
            headers = {"ETag": etag} if server.etags else {}
            if name in server.dates:
                headers["Last-Modified"] = server.dates[name]
            data, status = whole, 200
            if span is not None and server.ranges:
                low, _, high = span.removeprefix("bytes=").partition("-")
                first, last = int(low), min(int(high or len(whole) - 1), len(whole) - 1)
                if mood == "first":
                    first, last = 0, last - first
                if first >= len(whole):
                    self.head(416, 0, {})
                    return
                data, status = whole[first : last + 1], 206
                headers["Content-Range"] = f"bytes {first}-{last}/{len(whole)}"
            size = len(data) if body else server.claims.get(name, len(data))
            self.head(status, size, headers)
            if body:
                some = data[: len(data) // 2] if mood == "half" else data
                with server._lock:
                    server.sent[name] += len(some)
                self.wfile.write(some)
                self.close_connection = mood == "half"

        def folder(self, name: str, *, body: bool) -> None:
            names = server.below(name)
            if body and name and not name.endswith("/") and server.below(f"{name}/"):
                self.head(301, 0, {"Location": f"/{quote(name)}/"})
            elif not names or (name and not name.endswith("/")):
                self.head(404, 0, {})
            else:
                page = "".join(f'<a href="/{each}">{each}</a>\n' for each in names).encode()
                self.head(200, len(page), {"Content-Type": "text/html"})
                self.wfile.write(page if body else b"")

        def head(self, status: int, size: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(size), **headers}.items():
                self.send_header(name, value)
            self.end_headers()

    return Handler
