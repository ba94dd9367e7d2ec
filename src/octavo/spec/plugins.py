"""Plugins: installed packages that add variants, backends or presets of their own.

A package names modules in the entry point group `octavo`, and importing one of them registers what it adds:

    [project.entry-points.octavo]
    median = "my_package.median"

Nothing is imported before a name is asked for that Octavo does not have, or names are listed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from octavo.errors import OctavoWarning, SpecError
from octavo.spec.variant import Variant

GROUP = "octavo"
"""The group of entry points in which packages name their modules."""

_V = TypeVar("_V")

_tables: list[dict[str, Any]] = []
_failures: list[str] | None = None  # None before plugins are loaded


class Table(dict[str, _V]):
    """A table of names that plugins may add to; a name is given once.

    Arguments:
        what: what the names stand for, such as `preset`.
    """

    def __init__(self, what: str, entries: Mapping[str, _V]) -> None:
        super().__init__(entries)
        self.what = what
        _tables.append(self)

    def __setitem__(self, name: str, value: _V) -> None:
        if name in self:
            raise SpecError(f"the {self.what} {name!r} exists already; choose another name")
        super().__setitem__(name, value)


def load_plugins() -> list[str]:
    """Import what installed packages add, once; return a sentence for each module that fails."""
    global _failures
    if _failures is None:
        _failures = []  # first, as a plugin may look names up itself
        for entry in entry_points(group=GROUP):
            try:
                with _all_or_nothing():
                    entry.load()
            except Exception as error:
                _failures.append(f"the plugin {_origin(entry)} could not be loaded: {_reason(error)}")
    return _failures


def known(name: str, table: Mapping[str, object]) -> bool:
    """Say whether a table has a name, by itself or by a plugin; a failing plugin is warned of."""
    if name in table:
        return True
    failures = load_plugins()
    if name in table:
        _warn(failures)
    return name in table


def with_plugins(table: Mapping[str, _V]) -> Mapping[str, _V]:
    """Return a table for listing, with what plugins add to it; a failing plugin is warned of."""
    _warn(load_plugins())
    return table


def broken_plugins() -> str:
    """Return "" or the end of a message on an unknown name: which plugins might have had it."""
    return "".join(f" ({failure})" for failure in _failures or ())


def _warn(failures: list[str]) -> None:
    for failure in failures:
        warnings.warn(f"{failure[0].upper()}{failure[1:]}", OctavoWarning, stacklevel=4)


def _origin(entry: EntryPoint) -> str:
    package = "" if entry.dist is None else f" of the package {entry.dist.name} {entry.dist.version}"
    return f"{entry.name!r}{package}"


def _reason(error: Exception) -> str:
    """Return the first line of what went wrong, with the kind of error where that is not ours."""
    line = (str(error).strip().splitlines() or [""])[0]
    return line if isinstance(error, SpecError) else f"{type(error).__name__}: {line}".removesuffix(": ")


@contextmanager
def _all_or_nothing() -> Iterator[None]:
    """Forget every name that was registered inside if an exception ends it."""
    names = [*_tables, *(family._variants for family in Variant.__subclasses__())]
    before = [dict(table) for table in names]
    try:
        yield
    except Exception:
        for table, entries in zip(names, before, strict=True):
            table.clear()
            table.update(entries)
        raise
