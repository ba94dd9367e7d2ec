"""Variants: frozen types of one family, each known by a name in recipe files.

A family is a base class (`Estimator`, `Granularity`, `Pass`). A variant names itself where it is defined, so
that nothing else has to list it:

    @dataclass(frozen=True, kw_only=True)
    class Percentile(Estimator, name="percentile"):
        clips: ClassVar[bool] = True
        percent: float = 99.999
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from octavo.errors import SpecError
from octavo.spec.checks import shown


class Variant:
    """The base of all families; `class Estimator(Variant, family="estimator")` begins one."""

    family: ClassVar[str]
    variant_name: ClassVar[str]
    _variants: ClassVar[dict[str, Any]]

    def __init_subclass__(
        cls, *, name: str | None = None, family: str | None = None, abstract: bool = False
    ) -> None:
        super().__init_subclass__()
        if family is not None:
            cls.family, cls._variants = family, {}
        if family is not None or abstract:
            return
        if name is None:
            raise TypeError(f"{cls.__name__} has no name; write class {cls.__name__}(..., name='...')")
        if name in cls._variants:
            taken = cls._variants[name].__module__
            raise SpecError(
                f"the {cls.family} {name!r} exists already, in {taken}; give {cls.__name__} another name"
            )
        cls.variant_name = name
        cls._variants[name] = cls

    @classmethod
    def variants(cls) -> Mapping[str, type[Self]]:
        """Return every variant of this family by its name in recipe files."""
        return MappingProxyType(cls._variants)


def check_variant(field: str, value: object, family: type[Variant]) -> None:
    """Refuse anything but a variant of the family."""
    if not isinstance(value, family):
        names = ", ".join(kind.__name__ for kind in family.variants().values())
        raise SpecError(f"{field} must be one of {names}, got {shown(value)}")
