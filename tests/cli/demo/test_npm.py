from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from octavo.cli.demo.npm import Package, unpack

PACKAGE = Package(name="@some/package", version="1.2.3", files=("dist/a.mjs",))


def pretend(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a script in npm's place."""
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def archive(file: Path, **contents: bytes) -> Path:
    with tarfile.open(file, "w:gz") as made:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"package/dist/{name}.mjs")
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return file


def test_the_files_that_are_asked_for_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = archive(tmp_path / "made.tgz", a=b"ours", b=b"not asked for")
    pretend(tmp_path, f'echo "$@" > {tmp_path}/asked; cp {made} some-package-1.2.3.tgz', monkeypatch)
    (tmp_path / "out").mkdir()
    assert unpack([PACKAGE], tmp_path / "out") is None
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "out").iterdir()] == [("a.mjs", b"ours")]
    assert (tmp_path / "asked").read_text().split() == [
        "pack",
        "--silent",
        "--ignore-scripts",
        "@some/package@1.2.3",
    ]


def test_what_npm_cannot_get_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "echo first >&2; echo 'no network' >&2; exit 1", monkeypatch)
    assert unpack([PACKAGE], tmp_path) == "npm cannot get @some/package 1.2.3 (no network)"


def test_a_file_that_the_package_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = archive(tmp_path / "made.tgz", b=b"other")
    pretend(tmp_path, f"cp {made} some-package-1.2.3.tgz", monkeypatch)
    assert unpack([PACKAGE], tmp_path) == "@some/package 1.2.3 has no dist/a.mjs"


def test_a_missing_npm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert unpack([PACKAGE], tmp_path) == "npm is not installed"
