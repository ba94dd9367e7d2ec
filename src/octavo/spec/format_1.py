"""Format 1 of recipes, said in format 2: what was a key or a granularity there is a pass now.

| format 1                          | format 2                                              |
|-----------------------------------|-------------------------------------------------------|
| `granularity: {folded: {power}}`  | the pass `fold`, for the sites that the override named |
| `rounding: {adaround: {...}}`     | the pass `adaround`                                   |
| `integer_functions: true`         | the pass `integer-functions`                          |
| `training: running`               | the pass `running-ranges`; likewise learned and fixed |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import SpecError
from octavo.spec.checks import shown

_TRAININGS = {"learned": "learned-ranges", "fixed": "fixed-ranges", "running": "running-ranges"}


def upgraded(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a recipe of format 1 as one of format 2, with a note for every key that is gone.

    What is wrong in it stays wrong and is refused by whoever reads the result.
    """
    rest = {key: value for key, value in data.items() if key not in _GONE}
    rest, folds = _without_folds(rest)
    made = {key: say(data[key]) for key, say in _GONE.items() if key in data}
    passes = [*folds, *(entry for entries in made.values() for entry in entries)]
    notes = [f"{key} is now {'a pass' if entries else 'left out'}" for key, entries in made.items()]
    notes += ["granularity folded is now the pass fold"] if folds else []
    return rest | {"octavo": 2} | ({"passes": passes} if passes else {}), notes


def _rounding(value: object) -> list[Any]:
    return [] if value == "nearest" or value == {"nearest": None} or value == {"nearest": {}} else [value]


def _functions(value: object) -> list[Any]:
    if not isinstance(value, bool):
        raise SpecError(f"integer_functions must be true or false, got {shown(value)}")
    return ["integer-functions"] if value else []


def _training(value: object) -> list[Any]:
    if isinstance(value, str):
        return [_TRAININGS.get(value, value)]
    if isinstance(value, dict):
        return [{_TRAININGS.get(key, key): options for key, options in value.items()}]
    return [value]


# In the order of their passes: after folding, before one another.
_GONE = {"rounding": _rounding, "integer_functions": _functions, "training": _training}


# -- folding -------------------------------------------------------------------------------------------------


def _without_folds(data: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the recipe without the granularity `folded`, and the passes that fold the same sites.

    A site was folded if the last override that gave it a granularity said so: each pass skips the sites of
    later overrides that give one, or that turn sites off.
    """
    entries = data.get("overrides", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return data, []  # refused by whoever reads it
    folds: list[Any] = []
    base = data.get("activations")
    if isinstance(base, dict) and _power(base) is not None:
        folds.append(_fold({"sites": ["*"], "optional": True}, _power(base), entries))
        data = data | {"activations": {key: base[key] for key in base if key != "granularity"}}
    grouped = _has_several_ranges(data.get("activations"))
    kept: list[dict[str, Any]] = []
    for position, override in enumerate(entries):
        power = _power(override)
        if power is not None:
            folds.append(_fold(override, power, entries[position + 1 :]))
            override = {key: value for key, value in override.items() if key != "granularity"}
            # one range for the tensor, as a folded site has, where an earlier spec may have given it several
            # or turned it off
            earlier = [entry for entry in kept if _has_several_ranges(entry) or entry.get("off") is True]
            if grouped or any(_may_meet(entry, override) for entry in earlier):
                override |= {"granularity": "per-tensor"}
        if {*override} - {"sites", "roles", "optional"}:
            kept.append(override)
    return (data | {"overrides": kept} if folds else data), folds


def _may_meet(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Say whether two overrides may name the same site; of patterns that is not known."""
    if _texts(first, "sites") or _texts(second, "sites"):
        return True
    return bool({*_texts(first, "roles")} & {*_texts(second, "roles")})


def _has_several_ranges(spec: object) -> bool:
    return isinstance(spec, dict) and spec.get("granularity", "per-tensor") != "per-tensor"


def _power(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of `folded` where a spec asks for it."""
    granularity = spec.get("granularity")
    if granularity == "folded":
        return {}
    if isinstance(granularity, dict) and list(granularity) == ["folded"]:
        return granularity["folded"] or {}
    return None


def _fold(
    where: Mapping[str, Any], options: dict[str, Any] | None, later: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    skips = [e for e in later if "granularity" in e or e.get("off") is True]
    selected = {
        "sites": _texts(where, "sites"),
        "roles": _texts(where, "roles"),
        "skip_sites": [text for entry in skips for text in _texts(entry, "sites")],
        "skip_roles": [text for entry in skips for text in _texts(entry, "roles")],
    }
    optional = {"optional": True} if where.get("optional") else {}
    return {"fold": {key: value for key, value in selected.items() if value} | optional | (options or {})}


def _texts(entry: Mapping[str, Any], key: str) -> list[Any]:
    value = entry.get(key, [])
    return list(value) if isinstance(value, list) else [value]
