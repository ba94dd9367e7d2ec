from __future__ import annotations

import pytest

from octavo.diagnosis.variants import TABLE_2, check_scopes, groups
from octavo.errors import OctavoError
from octavo.graph import Encoder


def test_roles_cover_every_site_once(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "roles")
    assert sorted(name for group in found for name in group.sites) == sorted(
        s.name for s in plain.activation_sites
    )
    assert set(TABLE_2) <= {group.name for group in found}
    assert (
        next(g for g in found if g.name == "ffn_residual").label
        == "residual connections after FFN (ffn_residual)"
    )


def test_last_layers_leave_the_embeddings_out(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "last")
    assert {name.split(".")[1] for group in found for name in group.sites} == {
        "0",
        "1",
    }  # both are the last two


def test_layers(plain: Encoder) -> None:
    assert [group.name for group in groups(plain.activation_sites, "layers")] == [
        "embeddings",
        "layers.0",
        "layers.1",
    ]


def test_the_worst_sites_come_first(plain: Encoder) -> None:
    found = groups(plain.activation_sites, "sites", ["layers.1.ffn_output", "layers.0.query"])
    assert [group.name for group in found[:2]] == ["layers.1.ffn_output", "layers.0.query"]
    assert len(found) == len(plain.activation_sites)


def test_an_unknown_scope_names_the_nearest() -> None:
    assert check_scopes(["sites", "roles"]) == ("roles", "sites")
    with pytest.raises(OctavoError, match=r"unknown sensitivity scope 'role'.*did you mean 'roles'"):
        check_scopes(["role"])
