"""Every error and warning Octavo raises for something a user can cause.

```
Exception
└── OctavoError              anything a user can cause; the message says what to do
    ├── SpecError            a recipe, spec or preset that makes no sense
    ├── ModelError           an unknown model
    │   └── CaptureError     a model whose graph cannot be captured or understood
    ├── SiteError            a site pattern that matches nothing
    ├── CalibrationError     no data, or data with NaN or infinity
    ├── SavedModelError      a saved model that is corrupt, truncated or of another version
    ├── DataError            missing or malformed files and tasks
    ├── OutputError          an output that exists already or cannot be written
    └── MissingExtraError    an optional dependency that is not installed

UserWarning
└── OctavoWarning            a visible warning: the result stands, but deserves a look
```
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OctavoError(Exception):
    """Anything a user can cause: what was given, where, what is allowed and what to do."""


class SpecError(OctavoError):
    """A recipe, spec or preset that makes no sense."""


class ModelError(OctavoError):
    """A model that is unknown or that Octavo cannot work with."""


class CaptureError(ModelError):
    """A model whose graph cannot be captured, or whose roles cannot be found."""


class SiteError(OctavoError):
    """A site pattern that matches no site of the model."""


class CalibrationError(OctavoError):
    """Calibration without data, or with values that are not finite."""


class SavedModelError(OctavoError):
    """A saved model that is corrupt, truncated or of another version."""


class DataError(OctavoError):
    """A data file or task that is missing or malformed."""


class OutputError(OctavoError):
    """An output that exists already or cannot be written."""


class MissingExtraError(OctavoError):
    """An optional dependency that is not installed; the message names the command that installs it.

    Arguments:
        extra: name of the extra of Octavo, such as `onnx`.
        purpose: what needs it, as the start of a sentence: "ONNX export".
    """

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(extra, purpose)
        self.extra = extra
        self.purpose = purpose

    def __str__(self) -> str:
        return f"{self.purpose} needs the extra '{self.extra}'; run: pip install 'octavo[{self.extra}]'"


class OctavoWarning(UserWarning):
    """A visible warning: the result stands, but deserves a look."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return at most `limit` of the `known` names that resemble `name`, best first."""
    return difflib.get_close_matches(name, list(known), n=limit, cutoff=0.5)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "" or the end of a message: "; did you mean 'a' or 'b'?"."""
    close = [f"'{candidate}'" for candidate in nearest(name, known)]
    if not close:
        return ""
    listed = " or ".join(close) if len(close) < 3 else f"{', '.join(close[:-1])} or {close[-1]}"
    return f"; did you mean {listed}?"
