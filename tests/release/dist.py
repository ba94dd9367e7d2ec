"""`make dist`: build sdist and wheel, check them, and run the wheel alone in an empty environment.

There a package of somebody else's is installed as well, whose preset `octavo` then knows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
# Nothing of the repository may help: neither its path nor the environment that calls this script.
ENVIRONMENT = {
    key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))
}

PLUGIN = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "octavo-mine"
version = "1.0"

[project.entry-points.octavo]
presets = "octavo_mine"
""",
    "octavo_mine/__init__.py": """
from dataclasses import replace

from octavo.spec.presets import PRESETS

PRESETS["my-int8"] = replace(PRESETS["int8"], name="my-int8")
""",
}


def run(*command: object, cwd: Path = ROOT) -> None:
    """Run a command, and end with its status if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(done.returncode)


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with these packages; return its folder of commands."""
    run(sys.executable, "-m", "venv", folder)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    pinned = ("--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    run(commands / "python", "-m", "pip", "install", "-qq", *pinned, *packages)
    return commands


def sources() -> set[str]:
    """Return what is tracked under `src`: recipes, settings and templates too."""
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.removeprefix("src/") for name in listed.stdout.splitlines()}


def check_contents(wheel: Path, expected: set[str]) -> None:
    """Compare the files of a wheel with those expected, and end with a sentence if they differ."""
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    if held != expected:
        missing, foreign = sorted(expected - held), sorted(held - expected)
        sys.exit(f"{wheel.name} differs from src: missing {missing}, foreign {foreign}")
    if "octavo/py.typed" not in held:
        sys.exit(f"{wheel.name} lacks octavo/py.typed, without which its types are not seen")
    print(f"{wheel.name}: {len(held)} files, those of src")


def write_plugin(folder: Path) -> Path:
    """Write a package that adds a preset by an entry point, as docs/extend.md says."""
    for name, content in PLUGIN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def main() -> None:
    started = time.perf_counter()
    shutil.rmtree(DIST, ignore_errors=True)
    with TemporaryDirectory(prefix="octavo-dist-") as name:
        outside = Path(name)
        tools = environment(outside / "tools", "build", "twine")
        run(tools / "python", "-m", "build", "--outdir", DIST, ROOT)
        (wheel,) = DIST.glob("*.whl")
        run(tools / "python", "-m", "twine", "check", "--strict", *DIST.iterdir())
        check_contents(wheel, sources())
        alone = environment(outside / "alone", f"{wheel}[demo,onnx]")
        run(alone / "octavo", "demo", cwd=outside)
        plugin = write_plugin(outside / "plugin")
        run(
            alone / "python",
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "--no-deps",
            plugin,
        )
        run(alone / "octavo", "recipes", "my-int8", cwd=outside)
    python = ".".join(str(part) for part in sys.version_info[:3])
    print(f"{wheel.name} runs alone on Python {python}; {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
