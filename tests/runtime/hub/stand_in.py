"""A stand-in for the hub's API on 127.0.0.1, which records what it is asked and stores nothing else."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MODEL = {"id": "me/model", "sha": "0" * 40, "siblings": []}
_PULL_REQUEST = {
    "title": "Ours",
    "num": 1,
    "author": {"name": "me"},
    "createdAt": "2026-11-18T09:00:00.000Z",
    "status": "draft",
    "repo": {"name": "me/model", "type": "model"},
    "isPullRequest": True,
    "events": [],
    "changes": {"base": "refs/heads/main"},
    "filesWithConflicts": [],
}


@dataclass
class StandIn:
    """What the server was asked: calls in order, and the files that were committed, by path."""

    url: str = ""
    token: str = "secret"
    calls: list[tuple[str, str]] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    message: str = ""
    card: str = ""


@contextmanager
def hub() -> Iterator[StandIn]:
    """Run the server until the block ends."""
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length) if length else _chunks(self.rfile)
            path = self.path.partition("?")[0]
            state.calls.append(("POST", self.path))
            if self.headers.get("Authorization") != f"Bearer {state.token}":
                return self._answer(401, {"error": "Invalid credentials"})
            if path == "/api/repos/create":
                state.created = json.loads(body)
                name = f"{state.created.get('organization', 'me')}/{state.created['name']}"
                return self._answer(200, {"url": f"{state.url}/{name}"})
            if path == "/api/validate-yaml":
                state.card = json.loads(body)["content"]
                return self._answer(200, {"errors": [], "warnings": []})
            if path.endswith("/discussions"):
                return self._answer(200, {"num": 1})
            if "/preupload/" in path:
                asked = json.loads(body)["files"]
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked
                ]
                return self._answer(200, {"files": files})
            if "/commit/" in path:
                for line in body.splitlines():
                    entry = json.loads(line)
                    if entry["key"] == "header":
                        state.message = entry["value"]["summary"]
                    elif entry["key"] == "file":
                        state.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                commit = {"commitOid": "0" * 40, "commitUrl": f"{state.url}/me/model/commit/0"}
                return self._answer(200, {"success": True, **commit})
            return self._answer(404, {"error": f"no {path} here"})

        def do_GET(self) -> None:
            state.calls.append(("GET", self.path))
            self._answer(200, _PULL_REQUEST if "/discussions/" in self.path else _MODEL)

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _chunks(stream: Any) -> bytes:
    """The body of a request whose length is not told beforehand."""
    whole = b""
    while size := int(stream.readline() or b"0", 16):
        whole += stream.read(size)
        stream.readline()
    stream.readline()
    return whole
