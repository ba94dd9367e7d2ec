"""`make floors`: a slice of the tests with the lowest versions that pyproject.toml allows.

The core and the extras that backends and drop-ins need are installed at exactly their floors
into an environment that vanishes afterwards; what they bring along is what pip chooses.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.release.dist import ROOT, run

EXTRAS = ("demo", "onnx", "openvino", "sentence-transformers")
TOOLS = ("hypothesis", "pytest", "scipy")
# One of everything: recipes, capture, passes, saving, files for both backends, commands, the drop-ins.
SLICE = (
    "tests/spec",
    "tests/cli/test_app.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_export.py",
    "tests/cli/test_quantize.py",
    "tests/graph/saved/test_write.py",
    "tests/methods/test_pipeline.py",
    "tests/runtime/backends",
    "tests/runtime/test_drop_in.py",
    "tests/runtime/test_exporting.py",
    "tests/runtime/translate",
    "tests/test_light_import.py",
)


def floors(project: dict[str, object]) -> list[str]:
    """Return what to install: every requirement at its floor; one without a floor is an error."""
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    required: list[str] = project["dependencies"]  # type: ignore[assignment]
    pinned = []
    for requirement in (*required, *(each for extra in EXTRAS for each in optional[extra])):
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
        if found is None:
            sys.exit(
                f"{requirement} has no floor; write the lowest version that works: {requirement}>=VERSION"
            )
        pinned.append("==".join(found.groups()))
    return pinned


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = floors(project)
    print("with", ", ".join(lowest))
    with TemporaryDirectory(prefix="octavo-floors-") as name:
        python = Path(name) / "bin" / "python"
        run(sys.executable, "-m", "venv", name)
        run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *lowest, *TOOLS)
        # others' warnings of others, such as an old typer's of a new click, say nothing of ours
        options = ("-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default", "-q")
        chosen = ("-m", "not slow and not gpu and not glue and not zoo and not browser")
        run(python, "-m", "pytest", *options, *chosen, *SLICE, *sys.argv[1:])


if __name__ == "__main__":
    main()
