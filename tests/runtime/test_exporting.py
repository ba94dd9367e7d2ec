from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import octavo
from octavo.errors import CalibrationError, MissingExtraError, ModelError, OutputError, SpecError
from octavo.graph import Encoder, QuantizedEncoder, attach
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends.backend import IntegerReport
from octavo.runtime.backends.onnx_files import OnnxBackend
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME, OnnxRuntime
from octavo.runtime.backends.openvino import OPENVINO
from octavo.runtime.exporting import check_exportable, export, export_onnx
from tests.graph import families
from tests.runtime.conftest import TEXTS

EXPORTED = (
    "int8",
    "w8a8",
    "w8a32",
    "w6a32",
    "w4a32",
    "w32a8",
    "w8a8-mp",
    "w8a32-e4",
    "w4a32-e2",
    "qbert-w8a8",
    "int8-weights",
    "int8-small",
    "w4a8",
)


def batch(encoder: Encoder) -> dict[str, torch.Tensor]:
    return next(iter(encoder.batches(list(TEXTS))))[1]


def outputs(path: Path, encoder: Encoder) -> dict[str, np.ndarray]:
    return open_onnx(path)({name: tensor.numpy() for name, tensor in batch(encoder).items()})


def test_a_float_model_is_the_same_in_onnxruntime(tiny_encoder: Encoder, tmp_path: Path) -> None:
    path = export(tiny_encoder, tmp_path / "float.onnx")
    expected = tiny_encoder(batch(tiny_encoder))["last_hidden_state"].numpy()
    np.testing.assert_allclose(outputs(path, tiny_encoder)["last_hidden_state"], expected, atol=2e-5)


@pytest.mark.filterwarnings("ignore:GPTQ. .* texts give")
@pytest.mark.parametrize("name", EXPORTED)
def test_every_static_preset_agrees_with_its_simulation(
    name: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe(name), calibration=list(TEXTS))
    path = export(model, tmp_path / "model.onnx")
    found = torch.from_numpy(outputs(path, model)["last_hidden_state"])
    expected = model(batch(model))["last_hidden_state"]
    assert torch.cosine_similarity(found, expected, dim=-1).min() > 0.9995


def test_a_classifier_predicts_the_same(tiny_classifier: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(tiny_classifier, octavo.recipe("int8"), calibration=list(TEXTS))
    found = outputs(export(model, tmp_path / "classifier.onnx"), model)["logits"]
    expected = model(batch(model))["logits"].numpy()
    assert (found.argmax(-1) == expected.argmax(-1)).all()


def test_inputs_and_outputs_have_the_names_and_free_sizes_users_expect(tiny_file: Path) -> None:
    graph = onnx.load(str(tiny_file)).graph
    assert [value.name for value in graph.input] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [value.name for value in graph.output] == ["last_hidden_state"]
    for value in graph.input:
        assert [size.dim_param for size in value.type.tensor_type.shape.dim] == ["batch", "length"]


@pytest.mark.parametrize("shape", [(1, 2), (1, 64), (5, 7)], ids=str)
def test_any_batch_and_length_runs(
    tiny_int8: QuantizedEncoder, tiny_file: Path, shape: tuple[int, int]
) -> None:
    ids = torch.randint(5, 30, shape, generator=torch.Generator().manual_seed(0))
    found = open_onnx(tiny_file)({"input_ids": ids.numpy()})["last_hidden_state"]
    assert found.shape == (*shape, 32)
    expected = tiny_int8({"input_ids": ids})["last_hidden_state"].numpy()
    assert np.abs(found - expected).max() < 0.2


def test_padding_changes_nothing(tiny_file: Path) -> None:
    run = open_onnx(tiny_file)
    ids = np.array([[2, 9, 10, 11, 3]])
    padded = np.array([[2, 9, 10, 11, 3, 0, 0]])
    alone = run({"input_ids": ids})["last_hidden_state"]
    beside = run({"input_ids": padded, "attention_mask": (padded > 0).astype(np.int64)})["last_hidden_state"]
    np.testing.assert_allclose(alone, beside[:, :5], atol=1e-5)


def test_weights_are_stored_once_as_integers(tiny_int8: QuantizedEncoder) -> None:
    graph = ONNXRUNTIME.onnx_model(tiny_int8).graph
    matrices = [tensor for tensor in graph.initializer if len(tensor.dims) == 2 and tensor.dims[1] > 1]
    stored = sum(int(np.prod(tensor.dims)) for tensor in matrices)  # query, key and value may be one matrix
    assert stored == sum(int(np.prod(site.shape)) for site in tiny_int8.weight_sites if len(site.shape) == 2)
    assert {tensor.data_type for tensor in matrices} == {onnx.TensorProto.INT8}


def test_the_file_is_no_larger_than_the_saved_model(demo_encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(demo_encoder, octavo.recipe("w8a32"))
    saved = model.save(tmp_path / "saved") / "model.safetensors"
    assert export(model, tmp_path / "model.onnx").stat().st_size < 1.1 * saved.stat().st_size


def test_no_file_points_to_data_outside_itself(tiny_file: Path) -> None:
    assert not any(tensor.external_data for tensor in onnx.load(str(tiny_file)).graph.initializer)


def test_openvino_leaves_products_of_attention_in_float(tiny_int8: QuantizedEncoder) -> None:
    def quantized(backend: OnnxBackend) -> set[str]:
        nodes = backend.onnx_model(tiny_int8).graph.node
        # the bytes of joined products are split again under the names of their sites
        made = [node for node in nodes if node.op_type in ("QuantizeLinear", "Split")]
        names = {name.removesuffix(".q") for node in made for name in node.output}
        return names & set(tiny_int8.quantizers)

    left_out = quantized(ONNXRUNTIME) - quantized(OPENVINO)
    roles = ("query", "key", "value", "attention_probs")
    assert left_out == {f"layers.{layer}.{role}" for layer in (0, 1) for role in roles}


# -- what is refused ---------------------------------------------------------------------------------------


def test_an_existing_file_is_kept(tiny_int8: QuantizedEncoder, tiny_file: Path) -> None:
    before = tiny_file.read_bytes()
    with pytest.raises(OutputError, match=r"tiny\.onnx exists already"):
        export(tiny_int8, tiny_file)
    assert tiny_file.read_bytes() == before


def test_an_onnx_file_is_not_called_by_the_name_of_openvinos_format(
    tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    with pytest.raises(
        SpecError, match=r"model\.xml would be an ONNX file by another name; end it in \.onnx"
    ):
        export(tiny_int8, tmp_path / "model.xml", backend="openvino")
    assert not list(tmp_path.iterdir())


def test_a_model_without_ranges_is_refused_and_nothing_is_written(
    tiny_encoder: Encoder, tmp_path: Path
) -> None:
    with pytest.raises(CalibrationError, match=r"embeddings\.norm.* more are not fixed; calibrate the model"):
        export(attach(tiny_encoder, octavo.recipe("int8")), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_groups_are_refused_with_the_sites_and_the_remedy(tiny_encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe("w8a8-peg3"), calibration=list(TEXTS))
    with pytest.raises(
        SpecError, match=r"layers\.0\.ffn_input.* several scales per tensor.*octavo\.split_groups"
    ):
        export(model, tmp_path / "model.onnx")


def test_dynamic_ranges_are_refused(tiny_encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe("q8bert"))
    with pytest.raises(SpecError, match="ranges found at run time, which a file cannot hold"):
        export(model, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("recipe", "opset", "message"),
    [
        ("int8", 12, "opset 12 is not one Octavo writes; use 17 to 23"),
        ("w8a8-mp", 20, "stored in 16 bits, which needs opset 21, got 20"),
        ("w4a32", 17, "stored in 4 bits, which needs opset 21, got 17"),
    ],
)
def test_an_opset_that_is_too_old_is_refused(
    recipe: str, opset: int, message: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe(recipe), calibration=list(TEXTS))
    with pytest.raises(SpecError, match=message):
        export(model, tmp_path / "model.onnx", opset=opset)


@pytest.mark.parametrize("opset", [17, 19, 20, 22])
def test_older_and_newer_opsets_run(opset: int, tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    path = export(tiny_int8, tmp_path / "model.onnx", opset=opset)
    assert np.isfinite(outputs(path, tiny_int8)["last_hidden_state"]).all()


def test_an_unknown_backend_is_refused(tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unknown backend 'openvin'; did you mean 'openvino'"):
        export(tiny_int8, tmp_path / "model.onnx", backend="openvin")


def test_a_missing_extra_is_named(
    tiny_int8: QuantizedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.runtime.backends.onnx_files.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'octavo\[onnx\]'"):
        export(tiny_int8, tmp_path / "model.onnx")


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_the_old_name_writes_the_same_file(backend: str, tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    one = export(tiny_int8, tmp_path / "new.onnx", backend=backend)
    other = export_onnx(tiny_int8, tmp_path / "old.onnx", runtime=backend)
    assert one.read_bytes() == other.read_bytes()


# -- checks before the file takes its place ----------------------------------------------------------------


def test_a_file_that_would_run_in_float_is_refused_before_it_is_there(
    tiny_int8: QuantizedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = IntegerReport(backend="onnxruntime", products=2, kernels=1, floats=("layers.0.ffn_output",))
    monkeypatch.setattr(OnnxRuntime, "count_integer_kernels", lambda self, path: report)
    with pytest.raises(ModelError, match=r"ffn_output.*in float.*int8 .*--no-check .*check=False"):
        export(tiny_int8, tmp_path / "model.onnx", check=True)
    assert not list(tmp_path.iterdir())
    assert export(tiny_int8, tmp_path / "model.onnx").is_file()


@pytest.mark.parametrize("recipe", ["int8", "w8a8", "w8a8-mp"])
def test_a_file_that_runs_in_integers_passes_the_check(
    recipe: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe(recipe), calibration=list(TEXTS))
    assert export(model, tmp_path / "model.onnx", check=True).is_file()


# -- can it be exported at all? ------------------------------------------------------------------------------


def test_a_model_that_exports_passes_quickly(tiny_encoder: Encoder, tiny_int8: QuantizedEncoder) -> None:
    check_exportable(tiny_encoder)
    check_exportable(tiny_int8)


def test_a_missing_operation_is_named_with_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.runtime.translate.operations import TABLE

    encoder = families.captured("fnet", "encoder")[1]
    check_exportable(encoder)
    monkeypatch.delitem(TABLE, "fft_fftn")
    where = r"aten\.fft_fftn\.default \(in encoder\.layer\.0\.fourier\.self, FNetBasicFourierTransform\)"
    with pytest.raises(ModelError, match=f"tiny fnet cannot be exported: the operation {where}"):
        check_exportable(encoder)
