"""What sensitivity switches: sites by role, by role in the last layers, by layer, and one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from octavo.diagnosis.watch import layer_of
from octavo.errors import OctavoError, did_you_mean
from octavo.graph import Site

Scope = Literal["roles", "last", "layers", "sites"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Mode = Literal["leave-one-out", "enable-one"]
LAST_LAYERS = 2
# How the paper's table 2 calls the roles it leaves out.
TABLE_2 = {
    "attention_scores": "softmax input",
    "embedding_sum": "sum of embeddings",
    "attention_output": "self-attention output",
    "attention_probs": "softmax output",
    "ffn_residual": "residual connections after FFN",
}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Sites that are switched together."""

    scope: Scope
    name: str
    label: str
    sites: tuple[str, ...]


def check_scopes(scopes: Sequence[str]) -> tuple[Scope, ...]:
    """The scopes in their order; an unknown one is an error."""
    for scope in scopes:
        if scope not in SCOPES:
            hint = did_you_mean(scope, SCOPES)
            raise OctavoError(f"unknown sensitivity scope {scope!r}; choose among {', '.join(SCOPES)}{hint}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def groups(sites: Sequence[Site], scope: Scope, worst: Iterable[str] = ()) -> list[Group]:
    """The groups of a scope; single sites come in the order of `worst`, which are measured first."""
    if scope == "roles":
        return _by_role(sites, "roles")
    if scope == "last":
        return _by_role(_last(sites), "last")
    if scope == "layers":
        return _by_layer(sites)
    names = [site.name for site in sites]
    order = [name for name in worst if name in names]
    order += [name for name in names if name not in order]
    return [Group(scope="sites", name=name, label=name, sites=(name,)) for name in order]


def _by_role(sites: Iterable[Site], scope: Scope) -> list[Group]:
    members: dict[str, list[str]] = {}
    for site in sites:
        members.setdefault(site.role, []).append(site.name)
    return [
        Group(scope=scope, name=role, label=_label(role), sites=tuple(names))
        for role, names in members.items()
    ]


def _label(role: str) -> str:
    return f"{TABLE_2[role]} ({role})" if role in TABLE_2 else role


def _last(sites: Iterable[Site]) -> list[Site]:
    layers = {site.name: layer_of(site.name) for site in sites}
    count = 1 + max((layer for layer in layers.values() if layer is not None), default=-1)
    return [
        site
        for site in sites
        if (layers[site.name] or 0) >= count - LAST_LAYERS and layers[site.name] is not None
    ]


def _by_layer(sites: Iterable[Site]) -> list[Group]:
    members: dict[str, list[str]] = {}
    for site in sites:
        layer = layer_of(site.name)
        outside = "embeddings" if site.name.startswith("embeddings.") else "head"
        members.setdefault(outside if layer is None else f"layers.{layer}", []).append(site.name)
    return [
        Group(scope="layers", name=name, label=name, sites=tuple(found)) for name, found in members.items()
    ]
