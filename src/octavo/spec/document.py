"""Recipes as plain dictionaries, versioned: what YAML files and saved models hold.

Format 2 is written; format 1 is read for ever (see `octavo.spec.format_1`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from octavo.errors import SpecError, did_you_mean
from octavo.spec.checks import shown
from octavo.spec.estimator import Estimator
from octavo.spec.format import Format, Integer
from octavo.spec.format_1 import upgraded
from octavo.spec.granularity import Granularity
from octavo.spec.passes import Pass
from octavo.spec.plugins import broken_plugins, known
from octavo.spec.recipe import Override, Recipe
from octavo.spec.tensor import TensorSpec
from octavo.spec.variant import Variant

VERSION = 2
"""The version of the recipe format, the value of the key `octavo`."""

_TOP_KEYS = ("octavo", "name", "description", "placement", "weights", "activations", "overrides", "passes")
_TENSOR_KEYS = tuple(field.name for field in fields(TensorSpec))
_OVERRIDE_KEYS = tuple(field.name for field in fields(Override))
_FAMILIES: dict[str, type[Variant]] = {
    "granularity": Granularity,
    "estimator": Estimator,
    "format": Format,
}

_V = TypeVar("_V", bound=Variant)


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values for YAML or JSON, keys in the order in which people read them.

    Numbers are always written, so that a changed default never changes an old recipe; flags that are
    off, words that nobody chose and texts that are empty are not.
    """
    data: dict[str, Any] = {"octavo": VERSION, "name": recipe.name}
    if recipe.description:
        data["description"] = recipe.description
    data["placement"] = recipe.placement
    data["weights"] = _tensor_to_dict(recipe.weights)
    data["activations"] = _tensor_to_dict(recipe.activations)
    if recipe.overrides:
        data["overrides"] = [_override_to_dict(override) for override in recipe.overrides]
    if recipe.passes:
        data["passes"] = [variant_to_data(entry) for entry in recipe.passes]
    return data


def recipe_from_dict(data: object) -> Recipe:
    """Build a recipe from plain values; the inverse of `recipe_to_dict`."""
    return read_recipe(data)[0]


def read_recipe(data: object) -> tuple[Recipe, list[str]]:
    """Build a recipe from plain values, with notes on what an older format said in other words."""
    notes: list[str] = []
    if isinstance(data, dict) and "octavo" in data:
        # Before the keys: another version may well have others.
        _check_version(data["octavo"])
        if data["octavo"] == 1:
            data, notes = upgraded(data)
    top = _mapping(data, "", _TOP_KEYS, required=("octavo", "name", "weights", "activations"))
    overrides, passes = (_list(top.get(key, []), key) for key in ("overrides", "passes"))
    texts = {key: top[key] for key in ("name", "description", "placement") if key in top}
    recipe = Recipe(
        weights=_tensor(top["weights"], "weights"),
        activations=_tensor(top["activations"], "activations"),
        overrides=tuple(_override(entry, f"overrides[{i}]") for i, entry in enumerate(overrides)),
        passes=tuple(variant_from_data(entry, f"passes[{i}]", Pass) for i, entry in enumerate(passes)),
        **texts,
    )
    return recipe, notes


def _list(value: object, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise SpecError(f"{key} must be a list, got {shown(value)}")
    return value


def _tensor_to_dict(spec: TensorSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    data: dict[str, Any] = {
        "bits": spec.bits,
        "symmetric": spec.symmetric,
        "granularity": variant_to_data(spec.granularity),
        "estimator": variant_to_data(spec.estimator),
    }
    data |= {"dynamic": True} if spec.dynamic else {}
    # integers are not said, as recipes never did
    return data if spec.format == Integer() else data | {"format": variant_to_data(spec.format)}


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
        data[field] = value if isinstance(value, int) else variant_to_data(value)
    return data


def variant_to_data(variant: Variant) -> str | dict[str, Any]:
    """Return `per-tensor`, or `{per-group: {groups: 6}}` where there are options to write."""
    options = {
        field.name: _plain(getattr(variant, field.name))
        for field in fields(variant)  # type: ignore[arg-type]
        if _is_written(getattr(variant, field.name), field.default)
    }
    return {variant.variant_name: options} if options else variant.variant_name


def _is_written(value: object, default: object) -> bool:
    """Say whether an option is written: numbers always, what else is as nobody set it never."""
    return value != default or not (isinstance(default, bool | str | None) or default == ())


def _plain(value: object) -> object:
    if isinstance(value, Variant):
        return variant_to_data(value)
    return list(value) if isinstance(value, tuple) else value


def _check_version(version: object) -> None:
    if version not in (1, VERSION) or not isinstance(version, int) or isinstance(version, bool):
        raise SpecError(
            f"octavo: recipe format {shown(version)} is unknown, this Octavo reads 1 and {VERSION}; "
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
    """Return the options of a spec, granularity, estimator and format turned into their types."""
    options = dict(_mapping(value, place, known))
    for key, family in _FAMILIES.items():
        if options.get(key) is not None:
            options[key] = variant_from_data(options[key], f"{place}.{key}", family)
    return options


def variant_from_data(value: object, place: str, family: type[_V]) -> _V:
    """Return what a bare name or a mapping with one name describes: `mse`, `{mse: {candidates: 50}}`."""
    name, options = value, None
    if isinstance(value, dict) and len(value) == 1:
        name, options = next(iter(value.items()))
    if not isinstance(name, str):
        raise SpecError(
            f"{place} must be a name, or a mapping from one name to its options, got {shown(value)}"
        )
    table = family.variants()
    if not known(name, table):
        raise SpecError(f"{place}: unknown name {shown(name)}{_hint(name, table)}{broken_plugins()}")
    variant = table[name]
    described = {field.name: field for field in fields(variant)}  # type: ignore[arg-type]
    required = [key for key, field in described.items() if field.default is MISSING]
    given = _mapping({} if options is None else options, f"{place}.{name}", described, required)
    made = {}
    for key, entry in given.items():
        inner = described[key].metadata.get("family")
        where = f"{place}.{name}.{key}"
        made[key] = _frozen(entry) if inner is None else variant_from_data(entry, where, inner)
    with _at(f"{place}.{name}"):
        return variant(**made)


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


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
