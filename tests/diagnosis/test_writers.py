from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.diagnosis import diagnose
from octavo.diagnosis.chapters.dimensions import OutlierDimension
from octavo.diagnosis.running_moments import RunningMoments
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Shown, Watch
from octavo.diagnosis.writers import Peaks, PeakTally, Writer, find_writers
from octavo.graph import Encoder, Site
from octavo.graph.capture.source import make_encoder
from octavo.methods import load
from tests.diagnosis.conftest import COLUMN, LARGE, PLANTED, TEXTS

WIDTH, HIDDEN, X, REST = 64, 64, 10.0, 1 / 64  # sums of these are exact
OUTPUT, RESIDUAL = "layers.1.ffn_output", "layers.1.ffn_residual"
WEIGHT = "layers.1.ffn_output.weight"


@pytest.fixture
def known(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """One whose hidden units are all 10 in the second layer: its FFN output is arithmetic by hand."""
    encoder = load(tiny_bert_folder(hidden_size=WIDTH, intermediate_size=HIDDEN))
    with torch.no_grad():
        encoder.graph.get_parameter("encoder.layer.1.intermediate.dense.weight").zero_()
        encoder.graph.get_parameter("encoder.layer.1.intermediate.dense.bias").fill_(X)
        encoder.graph.get_parameter("encoder.layer.1.output.dense.weight")[PLANTED] = REST
    return encoder


def row(encoder: Encoder) -> torch.Tensor:
    return encoder.graph.get_parameter("encoder.layer.1.output.dense.weight")[PLANTED]


def bias(encoder: Encoder) -> torch.Tensor:
    return encoder.graph.get_parameter("encoder.layer.1.output.dense.bias")


def found_in(encoder: Encoder, site: str = OUTPUT, text: int = 0, position: int = 2) -> list[Writer]:
    """What writes the planted dimension at a token, however small it is."""
    outlier = OutlierDimension(
        site=site, role="", dimension=PLANTED, minimum=0, maximum=12, median_span=2, texts=1
    )
    peaks = Peaks(torch.ones(WIDTH), torch.full((WIDTH,), text), torch.full((WIDTH,), position))
    return list(find_writers(encoder, TEXTS, [outlier], {site: peaks}, TokenKinds(encoder)))


# -- by hand -------------------------------------------------------------------------------------------------


def test_a_single_weight_against_the_rest(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[COLUMN] = -30
        bias(known)[PLANTED] = 10.15625
    (found,) = found_in(known)
    # 10 x (-30 + 63 / 64) + 10.15625 = -280
    assert found.written == found.value == -280
    assert (found.site, found.dimension, found.weight, found.times) == (OUTPUT, PLANTED, WEIGHT, 6.0)
    assert (found.text, found.position, found.token) == (1, 2, "##h")  # [CLS] t ##h ##e
    (product,) = found.products  # no other has its sign
    assert (product.column, product.weight, product.input) == (COLUMN, -30, X)
    assert found.one == found.few == pytest.approx(300 / 280)
    assert found.bias == pytest.approx(-10.15625 / 280) and found.back == pytest.approx(20 / 280)
    assert (found.row_largest, found.cause, found.is_one) == (-30, "weights", True)
    assert not found.is_cut  # beside 30 all others of so small a matrix are nothing
    weight = known.graph.get_parameter("encoder.layer.1.output.dense.weight").detach().numpy()
    assert found.median == pytest.approx(np.median(np.abs(weight)), rel=1e-3)
    assert found.ratio == pytest.approx(30 / found.median) and found.input_median == pytest.approx(X)


def test_a_few_weights(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[:] = torch.cat((torch.tensor([3.0, 4.0, 3.0]), torch.zeros(HIDDEN - 3)))
    (found,) = found_in(known)
    assert found.value == pytest.approx(100) and (found.one, found.few) == pytest.approx((0.4, 1.0))
    assert [product.column for product in found.products][:1] == [1] and len(found.products) == 3
    assert (found.cause, found.is_one, found.back) == ("weights", False, 0.0)


def test_many_products(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[:] = 5
    (found,) = found_in(known)
    assert found.value == pytest.approx(3200) and found.few == pytest.approx(8 / HIDDEN)
    assert (found.cause, found.row_largest, len(found.products)) == ("spread", 5, 8)


def test_what_others_take_back_counts_against_few(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[:32], row(known)[32:] = 5, -4
    (found,) = found_in(known)
    # 8 of 32 make 400 of 320, which looks like all of it, but 1600 drive it and 1280 are taken back
    assert found.few == pytest.approx(400 / 320) and found.back == pytest.approx(1280 / 320)
    assert found.cause == "spread"


def test_the_bias(known: Encoder) -> None:
    with torch.no_grad():
        bias(known)[PLANTED] = 500
    (found,) = found_in(known)
    assert found.value == pytest.approx(510) and found.bias == pytest.approx(500 / 510)
    assert found.cause == "bias"


def test_a_large_input_at_an_ordinary_weight(known: Encoder) -> None:
    with torch.no_grad():
        known.graph.get_parameter("encoder.layer.1.intermediate.dense.bias")[COLUMN] = 5000
    (found,) = found_in(known)
    # 5000 / 64 of 5630 / 64
    assert found.one == pytest.approx(5000 / 5630) and found.cause == "inputs"
    assert (found.products[0].input, found.input_median) == pytest.approx((5000, X))


# -- through the graph ---------------------------------------------------------------------------------------


def test_a_residual_sum_leads_to_the_layer_that_writes_it(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[COLUMN] = 30
    (found,) = found_in(known, RESIDUAL)
    assert (found.site, found.weight) == (RESIDUAL, WEIGHT)
    assert found.written == pytest.approx(309.84375) and 0 < abs(found.value - found.written) < 5


@pytest.mark.parametrize("site", [RESIDUAL, "layers.1.layer_output"])
def test_what_a_norm_makes_large_has_no_writer(known: Encoder, site: str) -> None:
    layer = "attention.output" if site == RESIDUAL else "output"
    with torch.no_grad():
        known.graph.get_parameter(f"encoder.layer.1.{layer}.LayerNorm.weight")[PLANTED] = 1000
    assert found_in(known, site) == []


def test_a_term_that_is_less_than_half_of_a_sum_does_not_write_it(known: Encoder) -> None:
    with torch.no_grad():
        row(known)[:] = 0
        bias(known)[PLANTED] = 1.0
        known.graph.get_parameter("encoder.layer.1.attention.output.LayerNorm.weight")[PLANTED] = 0
        shift = known.graph.get_parameter("encoder.layer.1.attention.output.LayerNorm.bias")
        shift[PLANTED] = 0.9
        assert len(found_in(known, RESIDUAL)) == 1
        shift[PLANTED] = -0.9  # 1.0 - 0.9 = 0.1, of which the layer writes ten times as much
    assert [found.written for found in found_in(known, RESIDUAL)] == [pytest.approx(1.0)]
    with torch.no_grad():
        shift[PLANTED] = 1.1
    assert found_in(known, RESIDUAL) == []


def test_a_pre_norm_stream_leads_back_through_the_layers(plain: Encoder) -> None:
    import transformers

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.RobertaPreLayerNormConfig(**sizes, vocab_size=80, max_position_embeddings=66)
    torch.manual_seed(0)
    network = transformers.RobertaPreLayerNormModel(config, add_pooling_layer=False)
    with torch.no_grad():
        network.encoder.layer[0].output.dense.weight[PLANTED, COLUMN] = 4000
    encoder = make_encoder("prenorm", network, plain.tokenizer, "encoder")
    found = diagnose(encoder, TEXTS, sensitivity=(), attention=False)
    writers = {each.site: each for each in found.writers if each.dimension == PLANTED}
    assert {"layers.0.ffn_output", "layers.0.ffn_residual", "layers.2.ffn_residual"} <= set(writers)
    for each in writers.values():
        assert (each.weight, each.products[0].column) == ("layers.0.ffn_output.weight", COLUMN)
        assert each.cause == "weights" and each.is_one
    assert writers["layers.2.ffn_residual"].value != writers["layers.2.ffn_residual"].written


def test_the_numbers_are_those_of_the_tensors(written: Encoder) -> None:
    """The product of the weight and the tensor that other observers see is the tensor that they see."""
    found = {each.site: each for each in diagnose(written, TEXTS, sensitivity=()).writers}
    each = found[OUTPUT]
    assert (each.dimension, each.weight, each.products[0].column) == (PLANTED, WEIGHT, COLUMN)
    _, batch = next(iter(written.batches([TEXTS[each.text - 1]], 1)))
    seen: dict[str, torch.Tensor] = {}
    watch = Watch(written)
    watch.run(batch, [0], [lambda shown: seen.update({shown.site.name: shown.x[0].clone()})])
    hidden = seen["layers.1.ffn_hidden"][each.position].double()
    output = float(seen[OUTPUT][each.position, PLANTED])
    assert each.value == pytest.approx(output, rel=1e-5)
    assert each.products[0].share == pytest.approx(LARGE * float(hidden[COLUMN]) / output, rel=1e-4)
    assert abs(output) == max(
        float(shown.abs().max()) for shown in _outputs(written)
    )  # of all texts and tokens


def _outputs(encoder: Encoder) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for indices, batch in encoder.batches(TEXTS, 1, pad=False):
        Watch(encoder).run(
            batch,
            indices,
            [
                lambda shown: (
                    found.append(shown.x[..., PLANTED].clone()) if shown.site.name == OUTPUT else None
                )
            ],
        )
    return found


# -- peaks ---------------------------------------------------------------------------------------------------


def test_a_peak_is_remembered_with_its_text_and_token() -> None:
    site = Site(name="s", role="ffn_output", kind="activation", shape=("batch", "length", 2), targets=("x",))
    tally = PeakTally(["ffn_output"])
    moments = RunningMoments()

    def see(x: list[list[list[float]]], indices: list[int]) -> None:
        tensor = torch.tensor(x)
        batch = {"input_ids": torch.zeros(tensor.shape[:2], dtype=torch.long)}
        tally.see(Shown(site=site, x=tensor, batch=batch, indices=indices, moments=moments))

    see([[[1.0, 0.0], [0.0, -5.0], [0.0, 0.0]], [[0.0, 0.0], [-2.0, 0.0], [0.0, 4.0]]], [4, 9])
    see([[[3.0, 1.0], [0.0, 5.0]]], [7])
    peaks = tally.peaks["s"]
    assert (peaks.value.tolist(), peaks.text.tolist()) == ([3.0, 5.0], [7, 4])
    assert peaks.position.tolist() == [0, 1]
