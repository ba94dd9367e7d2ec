"""Formats: which numbers a grid has, integers or the floating-point numbers of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from octavo.spec.variant import Variant


@dataclass(frozen=True, kw_only=True)
class Format(Variant, family="format"):
    """Which numbers a tensor is rounded to, times its scale.

    Properties of the variant:
        is_float: floating-point numbers of 8 bits around 0, with no zero-point; otherwise integers.
    """

    is_float: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Integer(Format, name="integer"):
    """Evenly spaced numbers, `bits` of them: equations 1 and 2."""


@dataclass(frozen=True, kw_only=True)
class E4M3(Format, name="e4m3"):
    """FP8 with 4 bits of exponent and 3 of mantissa, up to 448; beyond, it saturates."""

    is_float: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class E5M2(Format, name="e5m2"):
    """FP8 with 5 bits of exponent and 2 of mantissa, up to 57344; beyond, it saturates."""

    is_float: ClassVar[bool] = True


FORMATS = Format.variants()
"""Every format by its name in recipe files."""
