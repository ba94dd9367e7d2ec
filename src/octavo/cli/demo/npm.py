"""Files of npm packages, unpacked beside a page so that it needs no other server."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 300
_CDN = "https://cdn.jsdelivr.net/npm"


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package of npm at a fixed version, and those of its files that a page needs."""

    name: str
    version: str
    files: tuple[str, ...]

    @property
    def address(self) -> str:
        """Where a public mirror has its files, for pages that are written without npm."""
        return f"{_CDN}/{self.name}@{self.version}/"


def unpack(packages: Sequence[Package], folder: Path) -> str | None:
    """Put the files of packages into a folder; return None, or in words why that is not possible."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    with tempfile.TemporaryDirectory() as temporary:
        for package in packages:
            reason = _unpack(npm, package, Path(temporary), folder)
            if reason is not None:
                return reason
    return None


def _unpack(npm: str, package: Package, temporary: Path, folder: Path) -> str | None:
    place = temporary / package.name.replace("/", "-")
    place.mkdir()
    # npm compares what it gets with the registry's checksum, and runs nothing
    command = [npm, "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"npm does not answer ({error})"
    archive = next(place.glob("*.tgz"), None)
    if done.returncode != 0 or archive is None:
        told = [line for line in done.stderr.splitlines() if line.strip()]
        return f"npm cannot get {package.name} {package.version}" + (f" ({told[-1]})" if told else "")
    with tarfile.open(archive) as content:
        for name in package.files:
            known = f"package/{name}" in content.getnames()
            member = content.extractfile(f"package/{name}") if known else None
            if member is None:
                return f"{package.name} {package.version} has no {name}"
            (folder / Path(name).name).write_bytes(member.read())
    return None
