"""Runs the snippets of README and docs as a reader would: in order, in an empty folder with some texts."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.fidelity import read_measure

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = ROOT / "src" / "octavo" / "demo_texts.txt"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def commands(page: Path) -> list[list[str]]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [
        shlex.split(line.removeprefix("$ octavo "), comments=True)
        for line in lines
        if line.startswith("$ octavo ")
    ]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with `texts.txt`, the current one."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    (tmp_path / "texts.txt").write_text("\n".join(lines[:16]) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_snippets_run(page: Path, reader: Path) -> None:
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks(page, "python")):
        exec(compile(block, f"{page.name}[{number}]", "exec"), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_run(page: Path, reader: Path) -> None:
    for arguments in commands(page):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"octavo {shlex.join(arguments)}\n{result.output}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (
                f"{page.relative_to(ROOT)} points to {target}, which is not there"
            )


def test_the_table_of_the_readme_is_what_was_measured() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = {line.split("|")[1].strip(" `"): line for line in lines if re.match(r"\| (FP32|`w)", line)}
    found = json.loads((ROOT / "results" / "demo.json").read_text(encoding="utf-8"))["rows"]
    assert [name.lower() for name in rows] == [row["recipe"] for row in found]
    for row, line in zip(found, rows.values(), strict=True):
        assert f"| {row['score']:.2f} | {read_measure(row, 'cosine.mean') or 1:.3f} |" in line
