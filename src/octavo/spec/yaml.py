"""Recipes as YAML text and files."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from octavo.errors import OctavoWarning, SpecError
from octavo.spec.checks import shown
from octavo.spec.document import read_recipe, recipe_from_dict, recipe_to_dict
from octavo.spec.recipe import Recipe

__all__ = ["dump_recipe", "load_recipe", "parse_recipe", "recipe_from_dict", "recipe_to_dict"]

_TEXT = "tag:yaml.org,2002:str"
_BOOL = "tag:yaml.org,2002:bool"


def load_recipe(path: str | PathLike[str]) -> Recipe:
    """Read a recipe from a YAML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SpecError(f"no recipe file at {path}; check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text; a recipe is a YAML file") from error
    except OSError as error:
        raise SpecError(
            f"cannot read the recipe {path}: {error.strerror}; give a readable YAML file"
        ) from error
    return parse_recipe(text, source=str(path))


def parse_recipe(text: str, source: str = "recipe") -> Recipe:
    """Read a recipe from YAML text; every message starts with `source`."""
    try:
        recipe, notes = read_recipe(_parse(text))
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from error
    if notes:
        warnings.warn(
            f"{source} is a recipe of format 1, read as format 2: {'; '.join(notes)}. "
            f"`octavo recipes {source}` shows it rewritten",
            OctavoWarning,
            stacklevel=2,
        )
    return recipe


def dump_recipe(recipe: Recipe) -> str:
    """Return the recipe as YAML text that `parse_recipe` reads back to an equal recipe."""
    data = recipe_to_dict(recipe)
    for key in ("weights", "activations"):
        data[key] = _inline(data[key])
    if recipe.passes:
        data["passes"] = [_inline(entry) for entry in data["passes"]]
    if recipe.overrides:
        data["overrides"] = [
            {_Word(field): _inline(value) for field, value in override.items()}
            for override in data["overrides"]
        ]
    return yaml.dump(data, Dumper=_RecipeDumper, sort_keys=False, allow_unicode=True, width=float("inf"))


def _parse(text: str) -> object:
    """Return the plain values of a YAML document in which no key is given twice."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_mappings(root)
        return SafeConstructor().construct_document(root) if root is not None else None
    # A date such as 2024-99-99 makes the YAML reader itself raise ValueError.
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise SpecError("not a recipe: the YAML is nested too deeply") from error


def _check_mappings(root: yaml.Node | None) -> None:
    """Check the keys of every mapping in a document."""
    pending = [root]
    visited: set[int] = set()  # aliases may make the document a graph
    while pending:
        node = pending.pop()
        if node is None or id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            _check_keys([key for key, _ in node.value])
            pending.extend(value for _, value in node.value)


def _check_keys(keys: list[yaml.Node]) -> None:
    """Refuse a key given twice, of which YAML keeps the last without a word, and read `off` as a word."""
    seen: set[str] = set()
    for key in keys:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise SpecError(
                    f"line {key.start_mark.line + 1}: the key {shown(key.value)} is given twice; keep one"
                )
            seen.add(key.value)
            if key.tag == _BOOL:  # YAML 1.1 takes a bare `off` for false
                key.tag = _TEXT


class _Word(str):
    """A key written without quotes, even `off`."""


class _Inline(dict[str, Any]):
    """A mapping written on one line: `{bits: 8, symmetric: true}`."""


class _InlineList(list[str]):
    """A list of quoted strings written on one line: `["layers.*.ffn_input"]`."""


def _inline(value: object) -> object:
    """Mark mappings and lists to be written on one line."""
    if isinstance(value, dict):
        return _Inline({key: _inline(entry) for key, entry in value.items()})
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return _InlineList(value)
    return value


class _RecipeDumper(yaml.SafeDumper):
    """Writes recipes the way people do: indented lists, specs on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    # Single quotes fold line breaks, of which Unicode has several, into plain ones; escapes keep them.
    return dumper.represent_scalar(_TEXT, data, style=None if data.isprintable() else '"')


def _represent_word(dumper: yaml.SafeDumper, data: _Word) -> yaml.Node:
    return dumper.represent_scalar(_BOOL if data == "off" else _TEXT, data)


def _represent_inline(dumper: yaml.SafeDumper, data: _Inline) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)


def _represent_list(dumper: yaml.SafeDumper, data: _InlineList) -> yaml.Node:
    # Quoted, since a pattern that starts with `*` would be an alias.
    entries = [dumper.represent_scalar(_TEXT, entry, style='"') for entry in data]
    return yaml.SequenceNode("tag:yaml.org,2002:seq", entries, flow_style=True)


_RecipeDumper.add_representer(str, _represent_text)
_RecipeDumper.add_representer(_Word, _represent_word)
_RecipeDumper.add_representer(_Inline, _represent_inline)
_RecipeDumper.add_representer(_InlineList, _represent_list)
