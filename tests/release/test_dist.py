"""The checks of `make dist` on wheels made by hand; the command itself builds and installs a real one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.release.dist import check_contents, write_plugin

FILES = {"octavo/__init__.py", "octavo/py.typed", "octavo/spec/presets/int8.yaml"}


def _wheel(folder: Path, names: set[str]) -> Path:
    wheel = folder / "octavo-0.0.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name in sorted(names | {"octavo-0.0.0.dist-info/METADATA"}):
            archive.writestr(name, "")
    return wheel


def test_the_plugin_is_a_package_that_adds_a_preset(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugin")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["octavo"].values()
    assert "my-int8" in (folder / module / "__init__.py").read_text(encoding="utf-8")


def test_a_wheel_that_holds_the_sources_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_contents(_wheel(tmp_path, FILES), FILES)
    assert "3 files, those of src" in capsys.readouterr().out


def test_a_wheel_without_a_recipe_or_with_tests_is_refused(tmp_path: Path) -> None:
    names = FILES - {"octavo/spec/presets/int8.yaml"} | {"tests/test_docs.py"}
    expected = r"missing \['octavo/spec/presets/int8.yaml'\], foreign \['tests/test_docs.py'\]"
    with pytest.raises(SystemExit, match=expected):
        check_contents(_wheel(tmp_path, names), FILES)


def test_a_wheel_without_the_mark_of_types_is_refused(tmp_path: Path) -> None:
    names = FILES - {"octavo/py.typed"}
    with pytest.raises(SystemExit, match=r"lacks octavo/py\.typed"):
        check_contents(_wheel(tmp_path, names), names)
