from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

import octavo
from octavo.errors import ModelError, OctavoWarning, OutputError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime import Classifier, Embedder
from octavo.runtime.backends.openvino import OPENVINO
from octavo.runtime.hub.card import NOT_MEASURED
from octavo.runtime.hub.layout import write_hub_folder
from octavo.runtime.text_file import open_text_file
from octavo.spec import load_recipe
from tests.runtime.conftest import TEXTS

MODELS = {
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "openvino/openvino_model_qint8_quantized.bin",
    "openvino/openvino_model_qint8_quantized.xml",
}


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def laid_out(
    tiny_int8: QuantizedEncoder, tiny_encoder: Encoder, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("layout") / "tiny-hub"
    write_hub_folder(tiny_int8, folder, texts=list(TEXTS), against=tiny_encoder)
    return folder


def test_others_find_the_files_that_they_look_for(laid_out: Path) -> None:
    found = files_of(laid_out)
    assert MODELS | {"config.json", "tokenizer.json", "tokenizer_config.json", "README.md"} <= found
    # Infinity (0.0.78, `get_onnx_files`) takes a file with "quantize" in its name where it prefers those
    quantized = [name for name in found if name.endswith(".onnx") and "quantize" in Path(name).name]
    assert quantized == ["onnx/model_quantized.onnx"]
    assert load_recipe(laid_out / "recipe.yaml").name == "int8"


def test_every_file_gives_the_same_vectors(
    laid_out: Path, tiny_file: Path, tiny_saved: Path, tiny_int8: QuantizedEncoder
) -> None:
    expected = Embedder(tiny_file, tiny_saved).encode(list(TEXTS))
    for name in sorted(MODELS):
        if not name.endswith(".bin"):
            opened = open_text_file(laid_out / name)
            assert opened.metadata["recipe"] == "int8" and opened.max_length == tiny_int8.text_length
            found = Embedder(laid_out / name).encode(list(TEXTS))
            close = 1e-6 if name.endswith(".onnx") else 5e-2  # OpenVINO's floats may have 16 bits
            assert np.allclose(found, expected, atol=close), name
    assert np.allclose(octavo.sentence_transformer(laid_out).encode(list(TEXTS)), expected, atol=1e-6)


def test_the_card_tells_what_was_measured_and_how_to_use_it(laid_out: Path) -> None:
    card = (laid_out / "README.md").read_text(encoding="utf-8")
    _, header, body = card.split("---\n", 2)
    assert yaml.safe_load(header)["tags"][0] == "int8"
    assert f"on {len(TEXTS)} texts" in body and "cosine, worst" in body and NOT_MEASURED not in body
    assert "dtype: 'q8'" in body and "placement: linear-inputs" in body and "octavo quantize" in body
    assert "agreement" not in body and "| file | MB |" in body
    assert str(laid_out.parent) not in card, "a folder of this machine"


def test_a_card_without_measurements_says_so(tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    write_hub_folder(tiny_int8, tmp_path / "hub", check=False)
    card = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    assert NOT_MEASURED in card and "--texts FILE" in card and "cosine" not in card


def test_the_plain_file_may_be_float(
    tiny_int8: QuantizedEncoder, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    done = write_hub_folder(
        tiny_int8, tmp_path / "hub", texts=list(TEXTS), against=tiny_encoder, float_onnx=True
    )
    plain, quantized = (file.quality for file in done.files[:2])
    assert plain is not None and plain.cosine is not None and plain.cosine.worst == pytest.approx(1, abs=1e-5)
    assert quantized is not None and quantized.cosine is not None and quantized.cosine.worst < 0.99999


def made_for(path: Path) -> str:
    return next(each.value for each in onnx.load(str(path)).metadata_props if each.key == "target")


@pytest.mark.parametrize(("options", "quantized"), [({}, "web"), ({"for_browsers": False}, "vnni")], ids=str)
def test_the_quantized_file_is_for_browsers_or_for_servers_and_the_card_says_so(
    options: dict[str, bool], quantized: str, tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    folder = write_hub_folder(tiny_int8, tmp_path / "hub", check=False, **options).folder
    assert made_for(folder / "onnx/model.onnx") == "vnni"
    assert made_for(folder / "onnx/model_quantized.onnx") == quantized
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"* `onnx/model_quantized.onnx` (`--target {quantized}`): made for " in card
    (xml,) = (folder / "openvino").glob("*.xml")
    assert 'value="made for x86 with VNNI' in xml.read_text(encoding="utf-8")


def test_a_float_classifier_has_no_quantized_files(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    source = octavo.load(tiny_bert_folder("BertForSequenceClassification", id2label={0: "no", 1: "yes"}))
    write_hub_folder(source, tmp_path / "hub", texts=list(TEXTS))
    found = files_of(tmp_path / "hub")
    assert {"onnx/model.onnx", "openvino/openvino_model.xml"} <= found
    assert not any("quantized" in name for name in found) and "recipe.yaml" not in found
    card = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    assert "text-classification" in card and "agreement" in card
    for file in ("onnx/model.onnx", "openvino/openvino_model.xml"):
        assert Classifier(tmp_path / "hub" / file).labels == ("no", "yes")


def test_a_model_without_a_tokenizer_is_warned_of(tiny_encoder: Encoder, tmp_path: Path) -> None:
    with pytest.warns(OctavoWarning, match="has no tokenizer, without which others' tools read no texts"):
        write_hub_folder(replace(tiny_encoder, tokenizer=None), tmp_path / "hub")
    assert "tokenizer.json" not in files_of(tmp_path / "hub")


def test_a_model_that_no_file_can_hold_leaves_nothing_behind(tiny_encoder: Encoder, tmp_path: Path) -> None:
    grouped = octavo.quantize(tiny_encoder, octavo.recipe("w8a8-peg6"), calibration=list(TEXTS))
    with pytest.raises(SpecError, match="several scales per tensor, which integer kernels cannot express"):
        write_hub_folder(grouped, tmp_path / "hub")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_laid_out_twice_needs_force_and_others_are_spared(
    laid_out: Path, tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match=r"exists already; .*--force"):
        write_hub_folder(tiny_int8, laid_out)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"holds other files \(it has no onnx/model\.onnx\)"):
        write_hub_folder(tiny_int8, tmp_path / "mine", force=True)
    assert files_of(tmp_path / "mine") == {"thesis.txt"}
    write_hub_folder(tiny_int8, tmp_path / "hub", check=False)
    write_hub_folder(tiny_int8, tmp_path / "hub", check=False, force=True)
    assert MODELS <= files_of(tmp_path / "hub")


def test_what_is_missing_is_named(
    tiny_int8: QuantizedEncoder, tiny_classifier: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="to measure fidelity, the float model is needed"):
        write_hub_folder(tiny_int8, tmp_path / "hub", texts=list(TEXTS))
    with pytest.raises(ModelError, match=r"to write onnx/model.onnx in float, the float model is needed"):
        write_hub_folder(tiny_int8, tmp_path / "hub", float_onnx=True)
    with pytest.raises(ModelError, match="give the float model that was quantized"):
        write_hub_folder(tiny_int8, tmp_path / "hub", against=tiny_classifier)
    assert not (tmp_path / "hub").exists()
    monkeypatch.setattr(type(OPENVINO), "is_installed", False)
    done = write_hub_folder(tiny_int8, tmp_path / "hub", check=False)
    assert [file.path for file in done.files] == ["onnx/model.onnx", "onnx/model_quantized.onnx"]
    assert not (tmp_path / "hub" / "openvino").exists()
