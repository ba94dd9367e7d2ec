from __future__ import annotations

import pytest

from octavo.graph.capture import export


@pytest.fixture(autouse=True)
def captured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture is what is tested here, so no model gets the graph of another."""
    monkeypatch.setattr("octavo.graph.capture.source.capture", export.capture)
