from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.diagnosis import Diagnosis, diagnose
from octavo.errors import DataError, ModelError, OutputError
from octavo.graph import Encoder
from octavo.graph.capture.source import make_encoder
from octavo.methods import quantize
from octavo.spec.presets import recipe
from tests.diagnosis.conftest import PLANTED


def test_the_planted_outlier_is_found_named_and_blamed(diagnosed: Diagnosis) -> None:
    site = "layers.1.ffn_output"
    assert {(o.site, o.dimension) for o in diagnosed.outliers} >= {
        (site, PLANTED),
        ("layers.1.ffn_residual", PLANTED),
    }
    assert diagnosed.worst.name in (site, "layers.1.ffn_residual")
    first = diagnosed.findings[0]
    assert (first.level, first.title) == ("problem", f"1 dimension dwarfs the others ({PLANTED})")
    assert any(
        f"{site}: dimension {PLANTED} spans" in item and "6 of 6 texts" in item for item in first.evidence
    )
    assert any(finding.commands for finding in diagnosed.findings)


def test_every_scope_is_measured(diagnosed: Diagnosis) -> None:
    assert diagnosed.sensitivity is not None
    assert {variant.scope for variant in diagnosed.sensitivity.variants} == {
        "roles",
        "last",
        "layers",
        "sites",
    }


def test_the_public_function_is_the_packages_own() -> None:
    assert octavo.diagnose is diagnose


def test_stages_are_opened_in_order(plain: Encoder, texts: list[str]) -> None:
    from contextlib import contextmanager

    opened: list[str] = []

    @contextmanager
    def stage(title: str) -> Any:
        opened.append(title)
        yield lambda done, total: None

    diagnose(plain, texts, panels={"One": texts}, sensitivity=("last",), progress=stage)
    assert opened == ["Watching activations", "Trying recipes", "Sensitivity", "Tasks"]


def test_a_second_run_measures_nothing_again(
    planted: Encoder, texts: list[str], diagnosed: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("measured again")

    assert diagnosed.report is not None
    monkeypatch.setattr("octavo.diagnosis.quality.Reference.measure", never)
    again = diagnose(planted, texts, output=diagnosed.report.parent, sensitivity=("roles", "sites"))
    assert again.sensitivity is not None and diagnosed.sensitivity is not None
    assert again.sensitivity.of("roles") == diagnosed.sensitivity.of("roles")


def test_a_score_is_reported_beside_fidelity(plain: Encoder, texts: list[str]) -> None:
    found = diagnose(plain, texts, sensitivity=("last",), score=lambda model: 50.0, task="glue/x")
    assert found.sensitivity is not None
    assert (found.sensitivity.measure, found.sensitivity.float_score) == ("score", 50.0)
    assert found.provenance["task"] == "glue/x"


def test_a_model_without_attention_is_diagnosed_without_it(texts: list[str], plain: Encoder) -> None:
    import transformers

    settings = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 80}
    network = transformers.FNetModel(transformers.FNetConfig(**settings, max_position_embeddings=64))
    encoder = make_encoder("fnet", network, plain.tokenizer, "encoder")
    with pytest.raises(ModelError, match="fnet has no attention probabilities in its graph"):
        diagnose(encoder, texts, sensitivity=())
    found = diagnose(encoder, texts, sensitivity=(), attention=False)
    assert found.heads == ()


@pytest.mark.parametrize("texts", [[], "one string"], ids=["none", "a string"])
def test_no_texts(plain: Encoder, texts: Any) -> None:
    with pytest.raises(DataError, match="a list of at least one text"):
        diagnose(plain, texts)


def test_a_quantized_model_is_refused(plain: Encoder) -> None:
    with pytest.raises(ModelError, match="is quantized already; diagnose the float model"):
        diagnose(quantize(plain, recipe("w8a32")), ["abcdef"])


def test_a_model_without_a_tokenizer(plain: Encoder) -> None:
    bare = Encoder(**plain.parts() | {"tokenizer": None})
    with pytest.raises(ModelError, match="has no tokenizer files"):
        diagnose(bare, ["abcdef"])


def test_an_unwritable_folder_is_refused_before_the_work(
    plain: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "octavo.diagnosis.run.collect", lambda *_, **__: pytest.fail("worked before it looked")
    )
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        diagnose(plain, texts, output=tmp_path / "file")


def test_a_head_with_logits(tiny_bert_folder: Callable[..., Path], texts: list[str]) -> None:
    encoder = octavo.load(tiny_bert_folder("BertForSequenceClassification"))
    found = diagnose(encoder, texts, sensitivity=("layers",))
    assert found.sensitivity is not None
    assert "head" in {variant.name for variant in found.sensitivity.variants}
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("family", ["mobilebert", "squeezebert"])
def test_several_ffns_a_layer_and_channels_before_tokens(
    family: str, plain: Encoder, texts: list[str]
) -> None:
    from tests.graph import families

    head = families.usual_head(family)
    encoder = make_encoder(family, families.network(family, head), plain.tokenizer, head)
    found = diagnose(encoder, texts, sensitivity=(), panels={"One": texts})
    assert len(found.heads) == 8
    assert {"ffn_input", "ffn_output", "ffn_residual"} <= set(found.token_roles)
    counted = next(iter(found.token_sites.values())).tokens
    assert sum(counted.values()) == sum(
        batch["input_ids"].numel() for _, batch in encoder.batches(texts, 8, pad=False)
    )
