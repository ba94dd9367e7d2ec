"""What becomes of one check: it passes, it is refused with a sentence, or it is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.errors import OctavoError

COLUMNS = (
    "capture",
    "layers",
    "16 bits",
    "presets",
    "saved",
    "onnxruntime",
    "openvino",
    "heads",
    "heads, 16 bits",
    "heads, saved",
    "heads, onnxruntime",
    "heads, openvino",
)
"""The columns of the page, in order; each stands for one or several checks of a family."""


class Wrong(Exception):
    """A number that is not what it should be; the message says which, where and by how much."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one check of one family.

    Arguments:
        column: which column of the page it belongs to.
        item: what was tried, the name of a preset, say.
        state: `pass`, `refused` (an error of Octavo's own) or `wrong` (anything else).
        told: what was said where it did not pass.
    """

    family: str
    column: str
    item: str
    state: str
    told: str = ""


def attempt(family: str, column: str, item: str, check: Callable[..., object], *args: object) -> Outcome:
    """Carry out a check with these arguments and return what became of it."""
    assert column in COLUMNS, column
    state, told = "pass", ""
    try:
        check(*args)
    except OctavoError as refused:
        state, told = "refused", _one_line(refused)
    except Wrong as wrong:
        state, told = "wrong", _one_line(wrong)
    except Exception as error:  # whatever a user would meet as a traceback
        state, told = "wrong", f"{type(error).__name__}: {_first_line(error)}"
    return Outcome(family=family, column=column, item=item, state=state, told=told)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _first_line(error: Exception) -> str:
    """Return what a library says, without the paths of its traceback."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
