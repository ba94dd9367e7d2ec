from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.runtime.backends.backend import IntegerReport
from octavo.runtime.backends.onnxruntime import OnnxRuntime
from tests.cli.conftest import Run


def test_export_writes_checks_and_reports(run: Run, saved: Path, tmp_path: Path) -> None:
    done = run("export", saved, "-o", tmp_path / "model.onnx", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    # a layer has query, key and value as one, scores, context, output and the two of the FFN
    assert found["integers"]["products"] == found["integers"]["kernels"] == 2 * 6
    assert (tmp_path / "model.onnx").stat().st_size == pytest.approx(found["megabytes"] * 1e6)


def test_a_float_model_is_said_to_run_in_float(run: Run, tiny: Path, tmp_path: Path) -> None:
    done = run("export", tiny, "-o", tmp_path / "model.onnx")
    assert done.exit_code == 0 and "not quantized: everything is computed in float" in done.stdout


@pytest.mark.parametrize(
    ("backend", "option"),
    [("onnxruntime", "qdq_matmulnbits_accuracy_level=1"), ("openvino", "DYNAMIC_QUANTIZATION_GROUP_SIZE=0")],
)
def test_what_a_runtime_does_to_weights_only_files_is_said(
    run: Run, tiny: Path, backend: str, option: str, tmp_path: Path
) -> None:
    pytest.importorskip(backend)
    assert run("quantize", tiny, "--recipe", "int8-weights", "-o", tmp_path / "saved").exit_code == 0
    done = run("export", tmp_path / "saved", "--backend", backend, "-o", tmp_path / "model.onnx")
    said = " ".join(done.stdout.split())
    assert f"{backend} rounds what they multiply to 8 bits by itself, unless" in said
    assert option in "".join(done.stdout.split())


def test_encodings_are_json(run: Run, saved: Path, tmp_path: Path) -> None:
    done = run("export", saved, "--to", "encodings", "-o", tmp_path / "encodings.json")
    assert done.exit_code == 0 and "Wrote" in done.stdout
    assert json.loads((tmp_path / "encodings.json").read_text())["recipe"] == "int8"


def test_a_float_model_has_no_encodings(run: Run, tiny: Path, tmp_path: Path) -> None:
    done = run("export", tiny, "--to", "encodings", "-o", tmp_path / "encodings.json")
    assert done.exit_code == 2 and "run octavo quantize first" in done.stderr


def test_an_existing_file_needs_force(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    done = run("export", saved, "-o", tmp_path / "model.onnx")
    assert done.exit_code == 2 and "exists already" in done.stderr
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--force", "--no-check").exit_code == 0


def test_a_name_of_another_format_is_refused_before_the_model_is_looked_for(run: Run, tmp_path: Path) -> None:
    done = run("export", tmp_path / "no model", "--backend", "openvino", "-o", tmp_path / "model.xml")
    assert done.exit_code == 2 and "would be an ONNX file by another name" in " ".join(done.stderr.split())


@pytest.mark.parametrize("option", [("--runtime", "openvino"), ("--opset", "17"), ("--no-check",)], ids=str)
def test_encodings_refuse_options_of_onnx(run: Run, tiny: Path, tmp_path: Path, option: tuple[str]) -> None:
    done = run("export", tiny, "--to", "encodings", "-o", tmp_path / "encodings.json", *option)
    assert done.exit_code == 2 and "--to encodings does not read" in done.stderr


def test_a_refused_file_is_not_left_behind_and_the_message_says_what_to_do(
    run: Run, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = IntegerReport(backend="onnxruntime", products=2, kernels=1, floats=("layers.0.ffn_output",))
    monkeypatch.setattr(OnnxRuntime, "count_integer_kernels", lambda self, path: report)
    done = run("export", saved, "-o", tmp_path / "model.onnx")
    assert done.exit_code == 2 and "--no-check" in done.stderr
    assert not (tmp_path / "model.onnx").exists()
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--no-check").exit_code == 0


def test_the_sequence_of_the_readme_ends_in_a_file(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run("quantize", tiny, "--recipe", "w8a8-mp", "--calibration", texts, "-o", folder).exit_code == 0
    done = run("export", folder, "-o", tmp_path / "out.onnx")
    assert done.exit_code == 0 and (tmp_path / "out.onnx").is_file(), done.output


def test_weights_of_7_bits_are_an_option(run: Run, saved: Path, tmp_path: Path) -> None:
    done = run("export", saved, "-o", tmp_path / "model.onnx", "--reduce-range", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["reduce_range"] is True


def test_bench_reads_files_alone(run: Run, saved: Path, texts: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        file = tmp_path / name / "model.onnx"
        assert run("export", saved, "-o", file, "--no-check").exit_code == 0
    files = [tmp_path / "a" / "model.onnx", tmp_path / "b" / "model.onnx"]
    options = [
        "--batches",
        "1",
        "--lengths",
        "4",
        "--seconds",
        "0",
        "--no-memory",
        "--threads",
        "1",
        "--json",
    ]
    done = run("bench", *files, *options, "--texts", texts, "--tokenizer", saved)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == ["a/model.onnx (onnxruntime)", "b/model.onnx (onnxruntime)"]
    assert all(row["quality"] is not None for row in rows)
    untold = run("bench", *files, *options)
    assert untold.exit_code == 0 and "give --tokenizer MODEL" in untold.stderr
    assert all(row["quality"] is None for row in json.loads(untold.stdout)["rows"])


def test_a_folder_for_the_hub_is_measured_against_the_model_that_was_quantized(
    run: Run, saved: Path, tiny: Path, texts: Path, tmp_path: Path
) -> None:
    done = run("export", saved, "-o", tmp_path / "hub", "--layout", "hub", "--texts", texts, "--json")
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    assert [file["path"] for file in files][:2] == ["onnx/model.onnx", "onnx/model_quantized.onnx"]
    assert all(file["quality"]["cosine"]["mean"] > 0.9 for file in files)
    again = run("export", saved, "-o", tmp_path / "hub", "--layout", "hub")
    assert again.exit_code == 2 and "exists already" in again.stderr


def test_a_float_model_that_is_gone_is_asked_for(run: Run, saved: Path, texts: Path, tmp_path: Path) -> None:
    manifest = json.loads((saved / "octavo.json").read_text())
    manifest["provenance"]["model"] = "gone"
    (saved / "octavo.json").write_text(json.dumps(manifest))
    done = run("export", saved, "-o", tmp_path / "hub", "--layout", "hub", "--texts", texts)
    assert done.exit_code == 2 and "the float model gone is not here; give it with --against" in done.stderr
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--texts", "t"], "one file does not read --texts; drop it, or use --layout hub"),
        (["--layout", "hub", "--opset", "17"], "--layout hub does not read --opset"),
        (["--layout", "hub", "--to", "encodings"], "--layout hub does not read --to encodings"),
    ],
    ids=str,
)
def test_options_of_the_other_layout_are_refused(
    run: Run, tiny: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    done = run("export", tiny, "-o", tmp_path / "out", *options)
    assert done.exit_code == 2 and message in done.stderr
