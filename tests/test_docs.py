"""Runs the snippets of README and docs as a reader would: in order, in an empty folder with some texts."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.fidelity import read_measure
from octavo.graph import Encoder, attach
from octavo.graph.quantizers.ranges import ESTIMATORS
from octavo.methods.passes import PASSES
from octavo.runtime.backends import BACKENDS
from octavo.spec import Budget, Estimator, Granularity, Pass, dump_recipe, parse_recipe
from octavo.spec.presets import PRESETS
from octavo.tasks import glue, read_task_file
from tests.graph import families
from tests.own_data import write_own_data
from tests.test_layering import RANK

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
    """A folder with `texts.txt` and the files of `your-data.md`, the current one."""
    lines = TEXTS.read_text(encoding="utf-8").splitlines()
    (tmp_path / "texts.txt").write_text("\n".join(lines[:16]) + "\n", encoding="utf-8")
    write_own_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLES: list[dict[Any, Any]] = [
    ESTIMATORS,
    PASSES,
    BACKENDS,
    glue._TABLE,
    *(family._variants for family in (Granularity, Estimator, Pass, Budget)),
]


@pytest.fixture
def tables() -> Iterator[None]:
    """Everything that can be registered, put back as it was: `extend.md` registers what it adds."""
    before = [dict(table) for table in TABLES]
    yield
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)


def opens_another(page: Path) -> bool:
    """Whether a page's snippets are those that another page begins with, as README's are: run there."""
    own = blocks(page, "python")
    others = (blocks(other, "python") for other in PAGES)
    return any(other[: len(own)] == own and len(other) > len(own) for other in others)


SNIPPETS = [page for page in PAGES if blocks(page, "python") and not opens_another(page)]


@pytest.mark.parametrize("page", SNIPPETS, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_snippets_run(page: Path, reader: Path, tables: None) -> None:
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks(page, "python")):
        # without this file's own `from __future__`, which a reader's file may lack
        exec(compile(block, f"{page.name}[{number}]", "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_run(page: Path, reader: Path) -> None:
    for arguments in commands(page):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"octavo {shlex.join(arguments)}\n{result.output}"


YAML = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}[{number}]")
    for page in PAGES
    for number, block in enumerate(blocks(page, "yaml"))
]
TASK_FILES = [shown for shown in YAML if str(shown.values[0]).startswith("kind:")]
RECIPES = [shown for shown in YAML if shown not in TASK_FILES]


@pytest.mark.parametrize("block", TASK_FILES)
def test_task_files_in_the_docs_are_read(block: str, reader: Path) -> None:
    Path("task.yaml").write_text(block, encoding="utf-8")
    task = read_task_file("task.yaml")
    assert len(task.read("train")) > len(task.read("dev")) > 0


def completed(block: str) -> str:
    """Return a block of YAML as a whole recipe: many show only what matters, such as some overrides."""
    needed = {"octavo": "2", "name": "shown", "weights": "{symmetric: true}", "activations": "{}"}
    missing = [key for key in needed if not re.search(rf"^{key}:", block, flags=re.MULTILINE)]
    return "".join(f"{key}: {needed[key]}\n" for key in missing) + block


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


@pytest.mark.parametrize("block", RECIPES)
def test_recipes_in_the_docs_are_read_and_fit_a_model(block: str, bert: Encoder) -> None:
    recipe = parse_recipe(completed(block))
    # the model of the tests is narrow: fewer groups than its width stand for any number of them
    attach(bert, parse_recipe(re.sub(r"groups: \d+", "groups: 2", completed(block))))
    if recipe.name in PRESETS:
        assert block == dump_recipe(PRESETS[recipe.name])


def api_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("octavo_docs_api", ROOT / "docs" / "api.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_page_is_what_the_docstrings_say() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == api_script().api_page(), "run python docs/api.py"


def test_the_api_page_has_every_public_name() -> None:
    page = api_script().api_page()
    missing = [name for name in api_script().public_names() if f"### `octavo.{name}`" not in page]
    assert not missing, f"docs/api.py: add {missing} to a group"


FOLDERS = sorted(path.parent for path in (ROOT / "src" / "octavo").rglob("*/__init__.py"))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/design.md"])
def test_pages_draw_the_layers_as_the_test_of_layers_has_them(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    drawn = re.search(r"`(errors ← .*?)`", text)
    assert drawn is not None
    layers = [re.findall(r"\w+", part) for part in drawn[1].split("←")]
    ranks = [{RANK[name] for name in names} for names in layers]
    assert all(len(each) == 1 for each in ranks) and ranks == sorted(ranks, key=min), drawn[1]
    packages = {folder.name for folder in FOLDERS if folder.parent.name == "octavo"}
    assert packages <= {name for names in layers for name in names}


def test_the_map_names_every_folder() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    missing = [str(folder.relative_to(ROOT)) for folder in FOLDERS if f"{folder.name}/" not in page]
    assert not missing, f"docs/design.md does not say what is in {', '.join(missing)}"


def loaded(script: Path) -> ModuleType:
    """A script that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"octavo_{script.stem}", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site_hooks() -> ModuleType:
    return loaded(ROOT / "docs" / "site" / "hooks.py")


LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    hooks = site_hooks()
    for link in hooks.links(page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), f"{page.relative_to(ROOT)} points to {target}, which is not there"
        if anchor:
            known = hooks.anchors(file.read_text(encoding="utf-8"))
            assert anchor in known, f"{page.relative_to(ROOT)} points to {link}; no heading has this anchor"


def test_the_navigation_names_every_page_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = list(site_hooks().named(nav))
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.name != "README.md"]
    missing = sorted(set(pages) - set(named))
    assert not missing, f"mkdocs.yml: add {', '.join(missing)} to the navigation"
    assert len(named) == len(set(named))
    gone = [page for page in named if not (ROOT / site_hooks().repository_path(page)).exists()]
    assert not gone, f"mkdocs.yml names {', '.join(gone)}, which is not there"


def test_the_site_leads_links_that_leave_the_docs_to_copies() -> None:
    hooks = site_hooks()
    page = "[a](../../results/demo.json) [b](../../results/deploy#x) `[c](../../no.py)` [d](peg.md) [e](https://f.g)"
    assert hooks.relinked(page, "methods/x.md") == (
        "[a](../repository/results/demo.json.md) [b](../repository/results/deploy/index.md#x) "
        "`[c](../../no.py)` [d](peg.md) [e](https://f.g)"
    )
    assert hooks.relinked("[a](docs/deploy.md)", "repository/CONTRIBUTING.md") == "[a](../deploy.md)"


def test_the_site_tells_of_a_missing_file_as_the_page_names_it() -> None:
    missing = "[a](../results/no-such-file.json)"
    assert site_hooks().relinked(missing, "deploy.md") == missing


def test_the_methods_page_names_every_pass() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "methods").glob("*.md"))
    missing = [kind.variant_name for kind in PASSES if f"`{kind.variant_name}`" not in text]
    assert not missing, f"docs/methods has no page that names {', '.join(missing)}"


def test_the_table_of_the_readme_is_what_was_measured() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.split("<!-- table: results/demo.json -->")[1].split("<!-- end of table -->")[0]
    rows = {line.split("|")[1].strip(" `"): line for line in table.strip().splitlines()[2:]}
    found = json.loads((ROOT / "results" / "demo.json").read_text(encoding="utf-8"))["rows"]
    assert [name.lower() for name in rows] == [row["recipe"] for row in found]
    for row, line in zip(found, rows.values(), strict=True):
        assert f"| {row['score']:.2f} | {read_measure(row, 'cosine.mean') or 1:.3f} |" in line


@pytest.mark.parametrize(
    "script", ["recipes_table.py", "method_tables.py", "findings_table.py", "deploy_tables.py"]
)
def test_tables_of_pages_are_what_was_measured(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_tables_of_what_others_make_are_filled_once_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = loaded(ROOT / "benchmarks" / "deploy_tables.py")
    monkeypatch.setattr(tables, "DEPLOY", tmp_path)
    efficiency = {key: table for key, table in tables.TABLES.items() if "efficiency" in key[1]}
    monkeypatch.setattr(tables, "TABLES", efficiency)
    page = "<!-- table: results/deploy/efficiency-*.json -->\nbefore\n<!-- end of table -->\n"
    assert tables.filled("which-recipe.md", page) == page
    row = {"stsb": 80.0, "cosine": 1.0, "worst": 1.0, "neighbours": 1.0, "texts_per_second": 100.0}
    row |= {"speedup": 1.0, "ms_1x32": 10.0, "ms_32x128": 400.0}
    ours = row | {"stsb": 79.6, "cosine": 0.998, "worst": 0.99, "neighbours": 0.96, "speedup": 2.5}
    rows = {"torch, float": row, "OpenVINO, `int8`": ours}
    about = {"pairs": 1500, "threads": 2, "processor": "A CPU", "rows": rows}
    (tmp_path / "efficiency-gte-small.json").write_text(json.dumps(about), encoding="utf-8")
    peers, speed = (tables.filled(name, page) for name in ("which-recipe.md", "deploy.md"))
    assert "before" not in peers + speed and "1,500 pairs" in peers and "2 threads of A CPU" in speed
    assert "| gte-small | OpenVINO, `int8` | 0.9980 (0.990) | 96 % | -0.40 | 400 | 10.0 |" in peers
    assert "| OpenVINO, `int8` | 2.50 x, 99.5 % |" in speed
    assert "| torch, float | 100 texts a second, 80.00 |" in speed
