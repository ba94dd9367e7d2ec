"""Diagnosis: why a transformer breaks when it is quantized, as numbers, sentences and a report.

The package is its main function: `octavo.diagnose(encoder, texts)` calls `octavo.diagnose.diagnose`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from octavo.diagnose.diagnosis import Diagnosis as Diagnosis
from octavo.diagnose.diagnosis import Finding as Finding
from octavo.diagnose.run import diagnose as diagnose


class _Package(ModuleType):
    """A package that can be called: the public function and the package share the name `octavo.diagnose`."""

    def __call__(self, *arguments: Any, **options: Any) -> Diagnosis:
        return diagnose(*arguments, **options)


sys.modules[__name__].__class__ = _Package
