from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.runtime.hub import push as pushing
from tests.cli.conftest import Run


@pytest.fixture
def folder(run: Run, saved: Path, tmp_path: Path) -> Path:
    done = run("export", saved, "-o", tmp_path / "hub", "--layout", "hub", "--no-check")
    assert done.exit_code == 0, done.output
    assert "nothing was measured; give --texts FILE" in done.stderr
    return tmp_path / "hub"


def test_a_missing_token_and_a_card_without_measurements_are_a_sentence_each(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    done = run("push", folder, "me/model")
    assert done.exit_code == 2 and "there is no token for the hub; run hf auth login" in done.stderr
    assert "The model card says that nothing was measured" in done.stderr


def test_what_was_uploaded_is_told(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def push(place: Path, repository: str, **options: object) -> pushing.Pushed:
        calls.append((place, repository, options))
        return pushing.Pushed(repository=repository, url="https://hub/me/model", commit="https://hub/c")

    monkeypatch.setattr(pushing, "push", push)
    done = run("push", folder, "me/model", "--private", "-m", "Mine", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["url"] == "https://hub/me/model"
    assert calls == [
        (folder, "me/model", {"private": True, "pull_request": False, "message": "Mine"}),
    ]
