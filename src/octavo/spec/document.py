"""Recipes as plain dictionaries, versioned: what YAML files and saved models hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from octavo.errors import SpecError, did_you_mean
from octavo.spec.checks import shown
from octavo.spec.estimator import ESTIMATORS, Estimator
from octavo.spec.granularity import GRANULARITIES, Granularity
from octavo.spec.recipe import Override, Recipe
from octavo.spec.rounding import ROUNDINGS, Nearest, Rounding
from octavo.spec.tensor import TensorSpec
from octavo.spec.training import TRAININGS, LearnedRanges, RangeTraining

VERSION = 1
"""The version of the recipe format, the value of the key `octavo`."""

_TOP_KEYS = (
    *("octavo", "name", "description", "placement", "weights", "activations", "overrides"),
    *("rounding", "training", "integer_functions"),
)
_TENSOR_KEYS = tuple(field.name for field in fields(TensorSpec))
_OVERRIDE_KEYS = tuple(field.name for field in fields(Override))
_VARIANTS: dict[str, type] = {**GRANULARITIES, **ESTIMATORS, **ROUNDINGS, **TRAININGS}
_NAMES: dict[type, str] = {kind: name for name, kind in _VARIANTS.items()}

_V = TypeVar("_V", bound=Granularity | Estimator | Rounding | RangeTraining)


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values for YAML or JSON, keys in the order in which people read them.

    Numbers are always written, so that a changed default never changes an old recipe; flags that are
    off and texts that are empty are not.
    """
    data: dict[str, Any] = {"octavo": VERSION, "name": recipe.name}
    if recipe.description:
        data["description"] = recipe.description
    data["placement"] = recipe.placement
    data["weights"] = _tensor_to_dict(recipe.weights)
    data["activations"] = _tensor_to_dict(recipe.activations)
    if recipe.overrides:
        data["overrides"] = [_override_to_dict(override) for override in recipe.overrides]
    if not isinstance(recipe.rounding, Nearest):
        data["rounding"] = _variant_to_data(recipe.rounding)
    if recipe.training != LearnedRanges():
        data["training"] = _variant_to_data(recipe.training)
    if recipe.integer_functions:
        data["integer_functions"] = True
    return data


def recipe_from_dict(data: object) -> Recipe:
    """Build a recipe from plain values; the inverse of `recipe_to_dict`."""
    if isinstance(data, dict) and "octavo" in data:
        # Before the keys: another version may well have others.
        _check_version(data["octavo"])
    top = _mapping(data, "", _TOP_KEYS, required=("octavo", "name", "weights", "activations"))
    entries = top.get("overrides", [])
    if not isinstance(entries, list):
        raise SpecError(f"overrides must be a list, got {shown(entries)}")
    plain = ("name", "description", "placement", "integer_functions")
    texts = {key: top[key] for key in plain if key in top}
    tables: dict[str, Mapping[str, Any]] = {"rounding": ROUNDINGS, "training": TRAININGS}
    variants: dict[str, Any] = {
        key: _variant(top[key], key, table) for key, table in tables.items() if key in top
    }
    return Recipe(
        weights=_tensor(top["weights"], "weights"),
        activations=_tensor(top["activations"], "activations"),
        overrides=tuple(_override(entry, f"overrides[{i}]") for i, entry in enumerate(entries)),
        **texts,
        **variants,
    )


def _tensor_to_dict(spec: TensorSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    data = {
        "bits": spec.bits,
        "symmetric": spec.symmetric,
        "granularity": _variant_to_data(spec.granularity),
        "estimator": _variant_to_data(spec.estimator),
    }
    return data | {"dynamic": True} if spec.dynamic else data


def _override_to_dict(override: Override) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if override.sites:
        data["sites"] = list(override.sites)
    if override.roles:
        data["roles"] = list(override.roles)
    if override.off:
        data["off"] = True
    if override.optional:
        data["optional"] = True
    for field, value in override.changes().items():
        data[field] = value if isinstance(value, int) else _variant_to_data(value)
    return data


def _variant_to_data(variant: Granularity | Estimator | Rounding | RangeTraining) -> str | dict[str, Any]:
    """Return `per-tensor`, or `{per-group: {groups: 6}}` where there are options to write."""
    options = {
        field.name: _plain(getattr(variant, field.name))
        for field in fields(variant)
        if getattr(variant, field.name) != field.default or not isinstance(field.default, bool | None)
    }
    name = _NAMES[type(variant)]
    return {name: options} if options else name


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _check_version(version: object) -> None:
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        raise SpecError(
            f"octavo: recipe format {shown(version)} is unknown, this Octavo reads {VERSION}; "
            "rewrite the recipe or install the Octavo that wrote it"
        )


def _tensor(value: object, place: str) -> TensorSpec | None:
    """Return the spec at `place`; null is None, float."""
    if value is None:
        return None
    options = _spec_options(value, place, _TENSOR_KEYS)
    with _at(place):
        return TensorSpec(**options)


def _override(value: object, place: str) -> Override:
    """Return the override at `place`."""
    options = _spec_options(value, place, _OVERRIDE_KEYS)
    for field, given in options.items():
        if given is None:
            raise SpecError(f"{place}.{field} is empty; give it a value, or write off: true for float")
        if field in ("sites", "roles"):
            options[field] = _texts(given, f"{place}.{field}")
    with _at(place):
        return Override(**options)


def _texts(value: object, place: str) -> tuple[Any, ...]:
    """Return a list as a tuple; a single string stands for a list of one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise SpecError(f"{place} must be a string or a list of strings, got {shown(value)}")
    return tuple(value)


def _spec_options(value: object, place: str, known: Iterable[str]) -> dict[str, Any]:
    """Return the options of a spec, granularity and estimator turned into their types."""
    options = dict(_mapping(value, place, known))
    if options.get("granularity") is not None:
        options["granularity"] = _variant(options["granularity"], f"{place}.granularity", GRANULARITIES)
    if options.get("estimator") is not None:
        options["estimator"] = _variant(options["estimator"], f"{place}.estimator", ESTIMATORS)
    return options


def _variant(value: object, place: str, table: Mapping[str, type[_V]]) -> _V:
    """Return what a bare name or a mapping with one name describes: `mse`, `{mse: {candidates: 50}}`."""
    name, options = value, None
    if isinstance(value, dict) and len(value) == 1:
        name, options = next(iter(value.items()))
    if not isinstance(name, str):
        raise SpecError(
            f"{place} must be a name, or a mapping from one name to its options, got {shown(value)}"
        )
    if name not in table:
        raise SpecError(f"{place}: unknown name {shown(name)}{_hint(name, table)}")
    variant = table[name]
    known = [field.name for field in fields(variant)]
    required = [field.name for field in fields(variant) if field.default is MISSING]
    given = _mapping({} if options is None else options, f"{place}.{name}", known, required)
    with _at(f"{place}.{name}"):
        return variant(**{key: _frozen(entry) for key, entry in given.items()})


def _mapping(value: object, place: str, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    """Return `value` if it is a mapping with known keys only and with all required ones."""
    prefix = f"{place}: " if place else ""
    if not isinstance(value, dict):
        raise SpecError(f"{prefix}expected a mapping, got {shown(value)}")
    for key in value:
        if key not in known:
            raise SpecError(f"{prefix}unknown key {shown(key)}{_hint(key, known)}")
    for key in required:
        if key not in value:
            null = ", null leaves them in float" if key in ("weights", "activations") else ""
            raise SpecError(f"{prefix}the key '{key}' is missing; add it{null}")
    return value


def _hint(name: object, known: Iterable[str]) -> str:
    """Return the end of a message that names the nearest known names, or else all of them."""
    listed = ", ".join(known)
    nearest = did_you_mean(name, known) if isinstance(name, str) else ""
    return nearest or (f"; known are {listed}" if listed else "; it has no options")


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Put the place in front of the message of a SpecError raised inside."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{place}: {error}") from error
