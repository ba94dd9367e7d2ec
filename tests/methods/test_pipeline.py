from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from octavo.errors import CalibrationError, DataError, OctavoWarning
from octavo.graph import Encoder, QuantizedEncoder, State, attach, fix_weights
from octavo.methods import calibrate, quantize
from octavo.spec import (
    AllMinMax,
    Mse,
    Override,
    Percentile,
    PerEmbedding,
    PerGroup,
    Recipe,
    RunningMinMax,
    TensorSpec,
)
from tests.graph import families

Batch = dict[str, Tensor]
W8 = TensorSpec(symmetric=True)
ALL = Recipe(name="all", weights=W8, activations=TensorSpec(estimator=AllMinMax()))
RUNNING = Recipe(name="running", weights=W8, activations=TensorSpec(estimator=RunningMinMax()))
TEXTS = ["one", "two words", "three words here", "a text of five words", ("a pair", "of texts"), "word " * 12]


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


def ranges(model: QuantizedEncoder) -> dict[str, tuple[float, ...]]:
    return {name: (*q.scale.tolist(), *q.zero_point.tolist()) for name, q in model.quantizers.items()}


def same(first: QuantizedEncoder, second: QuantizedEncoder, rtol: float = 1e-5) -> bool:
    """Equal up to the order in which matrix products add up in batches of other sizes."""
    pairs = zip(first.quantizers.values(), second.quantizers.values(), strict=True)
    return all(
        torch.allclose(a.scale, b.scale, rtol=rtol) and int((a.zero_point - b.zero_point).abs().max()) <= 1
        for a, b in pairs
    )


def rows(batch: Batch, padded: bool) -> list[Batch]:
    """Every row as a batch of one, with its padding or without."""
    singles = [
        {name: tensor[i : i + 1] for name, tensor in batch.items()} for i in range(len(batch["input_ids"]))
    ]
    if padded:
        return singles
    lengths = batch["attention_mask"].sum(1).tolist()
    return [
        {name: t[:, :length] for name, t in s.items()} for s, length in zip(singles, lengths, strict=True)
    ]


# -- what data does ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator", [AllMinMax(), Percentile(percent=99.0), Mse()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "padded"])
def test_cutting_into_batches_does_not_matter(bert: Encoder, estimator: AllMinMax, padded: bool) -> None:
    recipe = Recipe(name="r", weights=None, activations=TensorSpec(estimator=estimator))
    batch = families.batch((16, 12), padded=True)
    # a bin's edge may fall between two ways to add up a matrix product
    tolerance = 1e-5 if isinstance(estimator, AllMinMax) else 2e-2
    assert same(quantize(bert, recipe, [batch]), quantize(bert, recipe, rows(batch, padded)), tolerance)


def test_padding_never_counts(bert: Encoder) -> None:
    batch = families.batch((4, 12), padded=True)
    other = {**batch, "input_ids": torch.where(batch["attention_mask"] == 1, batch["input_ids"], 7)}
    assert ranges(quantize(bert, ALL, [batch])) == ranges(quantize(bert, ALL, [other]))


def test_all_batches_count(bert: Encoder) -> None:
    batches = [families.batch((2, 8), seed=seed) for seed in range(3)]
    together = quantize(bert, ALL, batches)
    single = [quantize(bert, ALL, [batch]) for batch in batches]
    for name, quantizer in together.quantizers.items():
        if quantizer.site.kind == "activation":
            low = min(float(-q.zero_point * q.scale) for q in (m.quantizers[name] for m in single))
            step = float(quantizer.scale)
            assert float(-quantizer.zero_point * quantizer.scale) == pytest.approx(low, abs=1.01 * step)


def test_a_data_loader_is_calibration_too(bert: Encoder) -> None:
    rows_of_ids = [
        {name: tensor[0] for name, tensor in families.batch((1, 10), seed=s).items()} for s in range(6)
    ]
    loader = torch.utils.data.DataLoader(rows_of_ids, batch_size=3)  # type: ignore[arg-type, var-annotated]
    expected = quantize(bert, ALL, [families.batch((1, 10), seed=s) for s in range(6)])
    assert same(quantize(bert, ALL, loader), expected)


def test_labels_in_a_batch_are_ignored(bert: Encoder) -> None:
    batch = families.batch((2, 8))
    with_labels = {**batch, "labels": torch.tensor([0, 1])}
    assert ranges(quantize(bert, ALL, [batch])) == ranges(quantize(bert, ALL, [with_labels]))


# -- texts, on the real model --------------------------------------------------------------------------------


def test_texts_and_padded_batches_of_them_give_the_same(demo_encoder: Encoder) -> None:
    batch = next(iter(demo_encoder.batches(TEXTS, batch_size=len(TEXTS))))[1]
    assert int(batch["attention_mask"].min()) == 0
    assert same(quantize(demo_encoder, ALL, TEXTS), quantize(demo_encoder, ALL, [batch]))


def test_the_seed_orders_the_texts_and_nothing_else(demo_encoder: Encoder) -> None:
    first, again, other = (quantize(demo_encoder, RUNNING, TEXTS, seed=seed) for seed in (1, 1, 2))
    assert ranges(first) == ranges(again)
    assert ranges(first) != ranges(other)  # a moving average knows the order
    all_first, all_other = (quantize(demo_encoder, ALL, TEXTS, seed=seed) for seed in (1, 2))
    assert ranges(all_first) == ranges(all_other)
    assert first.provenance["seed"] == 1
    assert first.provenance["calibration"]["texts"] == len(TEXTS)


def test_long_texts_are_cut_with_one_warning(demo_encoder: Encoder) -> None:
    narrow = Recipe(
        name="n", weights=None, activations=None, overrides=(Override(sites=("embeddings.norm",), bits=8),)
    )
    with pytest.warns(
        OctavoWarning, match="2 of 3 texts are longer than 6 tokens and were truncated"
    ) as caught:
        quantize(demo_encoder, narrow, ["short", "word " * 30, "word " * 31], max_length=6)
    assert len(caught) == 1


# -- what stays as it is -------------------------------------------------------------------------------------


def test_the_float_encoder_stays_as_it_is(bert: Encoder) -> None:
    batch = families.batch((3, 9), padded=True)
    before = bert(batch)["logits"]
    parameters = {name: parameter.clone() for name, parameter in bert.graph.named_parameters()}
    code = bert.graph.code
    model = quantize(bert, ALL, [batch])
    model(batch)
    assert torch.equal(bert(batch)["logits"], before)
    assert all(torch.equal(parameter, parameters[name]) for name, parameter in bert.graph.named_parameters())
    assert bert.graph.code == code


def test_weights_alone_need_no_data(bert: Encoder) -> None:
    model = quantize(bert, Recipe(name="w4", weights=TensorSpec(bits=4, symmetric=True), activations=None))
    assert {q.state for q in model.quantizers.values()} == {State.FIX}


def test_dynamic_ranges_need_no_data(bert: Encoder) -> None:
    model = quantize(bert, Recipe(name="dynamic", weights=W8, activations=TensorSpec(dynamic=True)))
    assert model(families.batch((2, 8)))["logits"].isfinite().all()


def test_a_permutation_of_dynamic_groups_needs_data(bert: Encoder) -> None:
    permuted = Override(sites=("layers.*.ffn_output",), granularity=PerGroup(groups=4, permute=True))
    recipe = Recipe(name="d", weights=W8, activations=TensorSpec(dynamic=True), overrides=(permuted,))
    with pytest.raises(CalibrationError, match="finds activation ranges from data; give calibration texts"):
        quantize(bert, recipe)
    model = quantize(bert, recipe, [families.batch((2, 8))])
    index = model.quantizers["layers.0.ffn_output"].index
    assert not torch.equal(index, index.sort().values)


def test_progress_counts_batches(bert: Encoder) -> None:
    seen: list[tuple[int, int]] = []
    quantize(
        bert,
        ALL,
        [families.batch((1, 5 + s), seed=s) for s in range(3)],
        progress=lambda *step: seen.append(step),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


# -- what is refused -----------------------------------------------------------------------------------------


def test_static_ranges_need_data(bert: Encoder) -> None:
    with pytest.raises(
        CalibrationError, match="recipe 'all' finds activation ranges from data; give calibration texts"
    ):
        quantize(bert, ALL)


@pytest.mark.parametrize("nothing", [[], (), iter(())], ids=["list", "tuple", "iterator"])
def test_no_data_is_an_error(bert: Encoder, nothing: list[Batch] | Iterator[Batch]) -> None:
    with pytest.raises(CalibrationError, match="there is no calibration data; give at least one text"):
        quantize(bert, ALL, nothing)
    with pytest.raises(CalibrationError, match="there is no calibration data"):
        calibrate(attach(bert, ALL), [])


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ("one text", "calibration is a single item; give a list of texts or of batches"),
        (families.batch((2, 5)), "calibration is a single item"),
        (
            [torch.ones(2, 5)],
            "calibration holds a Tensor; give texts, pairs of texts, or batches with input_ids",
        ),
        ([{"ids": torch.ones(2, 5)}], "calibration holds a dict; give texts"),
        (["a text", 3], "calibration holds a str"),
    ],
    ids=["string", "batch", "tensor", "no input_ids", "mixed"],
)
def test_other_things_than_texts_and_batches_are_refused(
    bert: Encoder, calibration: object, message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        quantize(bert, ALL, calibration)  # type: ignore[arg-type]


def test_a_row_of_padding_is_refused(bert: Encoder) -> None:
    batch = families.batch((2, 5))
    batch["attention_mask"][1] = 0
    with pytest.raises(DataError, match="a calibration row is all padding; drop it"):
        quantize(bert, ALL, [batch])


def test_a_senseless_batch_size_is_refused(demo_encoder: Encoder) -> None:
    with pytest.raises(CalibrationError, match="a batch size of 0 was asked for; use 1 or more"):
        quantize(demo_encoder, ALL, TEXTS, batch_size=0)


def test_overrides_find_finer_ranges(bert: Encoder) -> None:
    finer = Override(sites=("layers.*.ffn_output",), granularity=PerEmbedding(), bits=16)
    model = quantize(
        bert,
        Recipe(name="f", weights=None, activations=TensorSpec(), overrides=(finer,)),
        [families.batch((2, 8))],
    )
    assert model.quantizers["layers.0.ffn_output"].scale.shape == (32,)
    assert model.quantizers["layers.0.ffn_input"].scale.shape == (1,)


def test_texts_of_one_length_pass_together_where_no_range_depends_on_their_order(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    run = QuantizedEncoder.__call__

    def counted(self: QuantizedEncoder, batch: Batch) -> Batch:
        sizes.append(len(batch["input_ids"]))
        return run(self, batch)

    monkeypatch.setattr(QuantizedEncoder, "__call__", counted)
    singles = [families.batch((1, 4 + seed % 3), seed=seed) for seed in range(12)]
    together = quantize(bert, ALL, singles)
    assert sizes == [4, 4, 4]
    sizes.clear()
    quantize(bert, RUNNING, singles)
    assert sizes == [1] * 12
    monkeypatch.undo()
    alone = attach(bert, ALL)
    fix_weights(alone)
    for single in singles:
        alone(single)
    for quantizer in alone.quantizers.values():
        quantizer.fix()
    assert same(together, alone)


# -- models that read padding --------------------------------------------------------------------------------


WIDE = Recipe(
    name="16 bits",
    weights=TensorSpec(bits=16, symmetric=True),
    activations=TensorSpec(bits=16, estimator=AllMinMax()),
)


def farthest(model: QuantizedEncoder, encoder: Encoder, batch: Batch) -> float:
    """Return the largest difference in tokens that are no padding, in parts of the largest output."""
    kept = batch["attention_mask"].bool()
    right = encoder(batch)["last_hidden_state"][kept]
    return float((model(batch)["last_hidden_state"][kept] - right).abs().max() / right.abs().max())


def test_a_model_that_reads_padding_is_calibrated_with_it_and_says_so() -> None:
    """Alone, FNet's texts leave the ranges of a padded batch far behind."""
    encoder = families.captured("fnet", "encoder")[1]
    rows = [families.batch((1, length), seed=length) for length in (4, 6, 9, 16)]
    message = r"^tiny fnet \(fnet\) reads padding: .* batch texts of equal length where that matters$"
    with pytest.warns(OctavoWarning, match=message):
        model = quantize(encoder, WIDE, calibration=rows)
    padded = {
        name: torch.cat([torch.nn.functional.pad(row[name], (0, 16 - row[name].shape[1]), value=fill)
                         for row in rows])
        for name, fill in (("input_ids", encoder.config.pad_token_id), ("attention_mask", 0))
    }  # fmt: skip
    assert farthest(model, encoder, padded) < 1e-3
    assert max(farthest(model, encoder, row) for row in rows) < 1e-3
    alone = attach(encoder, WIDE)
    fix_weights(alone)
    calibrate(alone, rows)
    assert farthest(alone, encoder, padded) > 5e-3


def test_padding_as_it_was_given_is_what_such_a_model_is_calibrated_with() -> None:
    encoder = families.captured("nystromformer", "encoder")[1]
    batches = [families.batch((3, length), padded=True, seed=length) for length in (5, 24)]
    with pytest.warns(OctavoWarning, match="reads padding"):
        model = quantize(encoder, WIDE, calibration=batches)
    assert max(farthest(model, encoder, batch) for batch in batches) < 1e-3
