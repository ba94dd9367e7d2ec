"""A browser in a few lines: Debian's chromium through chromedriver and the plain WebDriver protocol."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AVAILABLE = shutil.which("chromedriver") is not None and shutil.which("chromium") is not None
_SWITCHES = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync hide-scrollbars"
).split()


class Browser:
    """One tab; every method is one command of the protocol."""

    def __init__(self, address: str, profile: Path) -> None:
        self._address = address
        switches = [f"--{name}" for name in _SWITCHES] + [
            f"--user-data-dir={profile}",
            "--window-size=1100,1400",
        ]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": switches, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        reply = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{reply['sessionId']}"

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["value"]

    def open(self, file: Path) -> None:
        self.visit(file.resolve().as_uri())

    def visit(self, address: str) -> None:
        self._send("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page; `return` gives a value back, or what a promise brings."""
        return self._send(
            "POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)}
        )

    def press(self, *keys: str) -> None:
        """Press and release keys, such as "\\ue014" for the right arrow."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keys", "actions": actions}
        self._send("POST", f"{self._session}/actions", {"actions": [source]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._send("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """Warnings and errors on the console since the last call."""
        entries = self._send("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, file: Path) -> None:
        import base64

        file.write_bytes(base64.b64decode(self._send("GET", f"{self._session}/screenshot")))

    def close(self) -> None:
        self._send("DELETE", self._session)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start chromedriver and a browser with a fresh profile; both end with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address)
        tab = Browser(address, profile)
        try:
            yield tab
        finally:
            tab.close()
    finally:
        driver.terminate()
        driver.wait()


def _wait(address: str) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{address}/status", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError("chromedriver did not start")
