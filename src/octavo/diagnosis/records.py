"""Records: a chapter's result as plain data and tensors for the ledger, and back, by its declared types."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from torch import Tensor


def pack(record: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a dataclass as JSON would have it, and the tensors in it by the path that stands for them."""
    tensors: dict[str, Tensor] = {}
    return _packed(record, "", tensors), tensors


def unpack(kind: type[Any], plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the dataclass that `pack` was given; its fields' types say what stands where."""
    return _unpacked(kind, plain, tensors)


def _packed(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors[path] = value
        return path
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _packed(entry, f"{path}/{key}", tensors) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(entry, f"{path}/{index}", tensors) for index, entry in enumerate(value)]
    return value


def _unpacked(kind: Any, plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Tensor:
        return tensors[plain]
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{f.name: _unpacked(hints[f.name], plain[f.name], tensors) for f in fields(kind)})
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        return plain if plain is None or len(rest) > 1 else _unpacked(rest[0], plain, tensors)
    if origin in (list, tuple):
        return origin(_unpacked(arguments[0], entry, tensors) for entry in plain)
    if origin is dict:
        key, value = arguments
        return {key(name): _unpacked(value, entry, tensors) for name, entry in plain.items()}
    return plain
