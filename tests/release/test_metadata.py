"""What pyproject.toml, README and CITATION.cff say of the same things agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from octavo.versions import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DEVELOPMENT = {"dev", "docs"}


def _name(requirement: str) -> str:
    return re.split(r"[\s;<>=!~\[]", requirement, maxsplit=1)[0]


def _readme_extras() -> dict[str, str]:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| extra | brings | for |", 1)[1]
    rows = table.split("\n\n", 1)[0].splitlines()[2:]
    return {
        name.strip(" `"): brought.strip() for name, brought in (row.strip("|").split("|")[:2] for row in rows)
    }


def test_all_contains_every_extra_of_users() -> None:
    (everything,) = EXTRAS["all"]
    named = everything.removeprefix("octavo[").removesuffix("]").split(",")
    assert named == sorted(EXTRAS.keys() - DEVELOPMENT - {"all"})


def test_readme_lists_every_extra_with_what_it_brings() -> None:
    brought = {
        name: ", ".join(map(_name, needs)) for name, needs in EXTRAS.items() if name not in DEVELOPMENT
    }
    assert _readme_extras() == brought | {"all": "all of these"}


def test_every_extra_that_a_message_names_exists() -> None:
    told = r"""(?:MissingExtraError\(\s*|extra=)"([a-z-]+)"|octavo\[([a-z,-]+)\]"""
    pages = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        name
        for page in pages
        for found in re.findall(told, page.read_text(encoding="utf-8"))
        for name in "".join(found).split(",")
    }
    assert named >= {"onnx", "hub"}
    assert named <= EXTRAS.keys()


def test_the_citation_names_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
