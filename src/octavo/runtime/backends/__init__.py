"""Backends: what executes an artifact. A new one is a module beside this one and its line in the table."""

from __future__ import annotations

from octavo.errors import SpecError, did_you_mean
from octavo.runtime.backends.backend import Backend as Backend
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME
from octavo.runtime.backends.openvino import OPENVINO
from octavo.spec.plugins import Table, broken_plugins, known

BACKENDS: Table[Backend] = Table("backend", {each.name: each for each in (ONNXRUNTIME, OPENVINO)})
"""Every backend by its name; where a file could run in several and none is named, the first one runs it."""

DEFAULT = ONNXRUNTIME.name
"""The backend of everything that is not told which."""


def find_backend(name: str) -> Backend:
    """Return the backend of this name, or say which there are."""
    if not known(name, BACKENDS):
        hint = did_you_mean(name, BACKENDS) or f"; use {' or '.join(BACKENDS)}"
        raise SpecError(f"unknown backend {name!r}{hint}{broken_plugins()}")
    return BACKENDS[name]
