from __future__ import annotations

import torch
from torch import Tensor

from octavo.graph import Encoder, QuantizedEncoder, attach, fix_weights
from octavo.graph.batches import of_equal_length
from octavo.methods.rounding.moments import part_of
from octavo.methods.rounding.rounding import put_integers
from octavo.methods.rounding.tables import Lookup, find_lookups, round_table
from octavo.spec.presets import recipe
from tests.graph import families

PIECES = of_equal_length([families.batch((16, 12), seed=seed) for seed in range(4)])


def prepared() -> tuple[Encoder, QuantizedEncoder, list[Lookup]]:
    encoder = families.captured("bert")[1]
    model = attach(encoder, recipe("w4a32"))
    fix_weights(model)
    return encoder, model, find_lookups(model, encoder)


def sum_error(model: QuantizedEncoder, encoder: Encoder, lookup: Lookup) -> float:
    errors: list[Tensor] = []
    for piece in PIECES:
        totals = [part_of(e.graph, [lookup.total])(*e.arguments(piece))[0] for e in (model, encoder)]
        errors.append((totals[0] - totals[1]).detach().square().mean())
    return float(torch.stack(errors).mean())


def test_the_three_tables_of_bert_and_their_sum_are_found() -> None:
    _, _, lookups = prepared()
    assert [lookup.site.name.split(".")[1] for lookup in lookups] == ["token", "token_type", "position"]
    assert len({lookup.total for lookup in lookups}) == 1


def test_the_sum_comes_nearer_to_the_float_one() -> None:
    encoder, model, lookups = prepared()
    before = sum_error(model, encoder, lookups[0])
    for lookup in lookups:
        put_integers(model, lookup.site, round_table(model, encoder, lookup, PIECES))
    assert sum_error(model, encoder, lookups[0]) < 0.97 * before


def test_every_element_goes_to_a_neighbour_on_the_grid() -> None:
    encoder, model, lookups = prepared()
    quantizer, weight = model.quantizers[lookups[0].site.name], model.parameter(lookups[0].site).detach()
    steps = weight / quantizer.scale
    integers = round_table(model, encoder, lookups[0], PIECES)
    low, high = (edge.clamp(quantizer.low, quantizer.high) for edge in (steps.floor(), steps.ceil()))
    assert bool(((integers == low) | (integers == high)).all())


def test_tables_alone_are_rounded_to_nearest() -> None:
    """With the other tables in float there is no error to make up for."""
    encoder, model, lookups = prepared()
    for lookup in lookups[1:]:
        quantizer = model.quantizers[lookup.site.name]
        quantizer.constant = model.parameter(lookup.site).detach()
    token = lookups[0]
    nearest = model.quantizers[token.site.name].integers(model.parameter(token.site).detach())
    assert torch.equal(round_table(model, encoder, token, PIECES), nearest)
