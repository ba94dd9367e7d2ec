from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def refused(run: Run, output: Path, *arguments: object) -> str:
    """Run `quantize`, which must fail with one sentence and leave nothing behind; the sentence."""
    before = sorted(output.parent.iterdir())
    result = run("quantize", *arguments, "-o", output)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert sorted(output.parent.iterdir()) == before
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Warning")]
    assert len(lines) == 1 and lines[0].startswith("Error: "), result.stderr
    return lines[0]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "quantized"


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to damage."""
    return Path(shutil.copytree(tiny, tmp_path / "copied"))


def test_it_saves_and_says_what_was_quantized(run: Run, tiny: Path, texts: Path, output: Path) -> None:
    result = run("quantize", tiny, "--recipe", "w8a8-mp", "--calibration", texts, "-o", output)
    assert result.exit_code == 0, result.output
    assert "23 in 8 bits, 6 in 16 bits" in result.stdout
    assert "times smaller than FP32" in result.stdout and str(output) in result.stdout
    assert (output / "octavo.json").is_file()


def test_what_to_type_next_may_be_pasted_where_names_have_spaces(
    run: Run, tiny: Path, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "my int8"
    done = run("quantize", tiny, "--recipe", "int8", "--calibration", texts, "-o", folder)
    assert f"octavo evaluate '{folder}' --against {tiny} --texts FILE" in done.stdout
    hub = run("export", folder, "-o", tmp_path / "my hub", "--layout", "hub", "--no-check")
    assert f"octavo push '{tmp_path / 'my hub'}' OWNER/NAME" in hub.stdout


def test_json_has_sites_sizes_and_provenance(run: Run, tiny: Path, texts: Path, output: Path) -> None:
    arguments = ("--calibration", texts, "--limit", 3, "--seed", 5, "--json")
    document = json.loads(run("quantize", tiny, "--recipe", "w8a8", *arguments, "-o", output).stdout)
    assert document["activation_sites"] == {"8": 29}
    assert document["weights_bytes"] == (output / "model.safetensors").stat().st_size
    assert document["folder_bytes"] > document["weights_bytes"]
    assert document["calibration"]["texts"] == 3
    assert document["seed"] == 5
    assert document["versions"]["octavo"]


def test_weights_alone_need_no_texts(run: Run, tiny: Path, output: Path) -> None:
    result = run("quantize", tiny, "--recipe", "w4a32", "-o", output)
    assert result.exit_code == 0, result.output
    assert "29 in float" in result.stdout


def test_the_same_seed_gives_the_same_file(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        run("quantize", tiny, "--recipe", "w8a8", "--calibration", texts, "--seed", 7, "-o", tmp_path / name)
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second"))
    assert first == second


def test_a_long_text_is_truncated_with_one_warning(run: Run, tiny: Path, texts: Path, output: Path) -> None:
    texts.write_text("short\n" + "long " * 100 + "\n" + "words " * 100, encoding="utf-8")
    result = run("quantize", tiny, "--recipe", "w8a8", "--calibration", texts, "-o", output)
    assert result.exit_code == 0, result.output
    expected = "Warning: 2 of 3 texts are longer than 64 tokens and were truncated (the first is number 2)\n"
    assert result.stderr == f"{texts}: 3 texts\n{expected}"


def test_max_length_truncates_earlier(run: Run, tiny: Path, texts: Path, output: Path) -> None:
    arguments = ("--calibration", texts, "--max-length", 8, "-o", output)
    result = run("quantize", tiny, "--recipe", "w8a8", *arguments)
    assert "longer than 8 tokens" in result.stderr


def test_an_existing_output_is_refused_before_any_work(run: Run, texts: Path, output: Path) -> None:
    output.mkdir()
    (output / "mine.txt").write_text("mine", encoding="utf-8")
    arguments = ("no-such-model", "--recipe", "w8a8", "--calibration", texts)
    assert "exists already" in refused(run, output, *arguments)
    assert [file.name for file in output.iterdir()] == ["mine.txt"]


def test_force_replaces_a_saved_model(run: Run, tiny: Path, output: Path) -> None:
    for recipe in ("w8a32", "w4a32"):
        assert run("quantize", tiny, "--recipe", recipe, "-o", output, "--force").exit_code == 0
    manifest = json.loads((output / "octavo.json").read_text(encoding="utf-8"))
    assert manifest["recipe"]["name"] == "w4a32"


def test_force_spares_other_files(run: Run, tiny: Path, output: Path) -> None:
    output.mkdir()
    (output / "thesis.tex").write_text("years of work", encoding="utf-8")
    assert "holds other files" in refused(run, output, tiny, "--recipe", "w8a32", "--force")
    assert (output / "thesis.tex").is_file()


def test_an_output_below_a_file_is_refused(run: Run, tiny: Path, texts: Path) -> None:
    result = run("quantize", tiny, "--recipe", "w8a32", "-o", texts / "below")
    assert result.exit_code == 2
    assert "is a file, not a folder" in result.stderr


@pytest.mark.parametrize("model", ["./nowhere", "no-such-model-anywhere", "demo:maxilm", ""])
def test_an_unknown_model(run: Run, output: Path, model: str) -> None:
    message = refused(run, output, model, "--recipe", "w8a32")
    assert "demo:minilm" in message


def test_a_folder_without_weights(run: Run, copied: Path, output: Path) -> None:
    (copied / "model.safetensors").unlink()
    assert "has no weights" in refused(run, output, copied, "--recipe", "w8a32")


@pytest.mark.parametrize("damage", [lambda data: data[:-1000], lambda data: b"rubbish" * 30])
def test_damaged_weights(run: Run, copied: Path, output: Path, damage: Callable[[bytes], bytes]) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    assert "corrupt or truncated" in refused(run, output, copied, "--recipe", "w8a32")


def test_an_unknown_recipe(run: Run, tiny: Path, output: Path) -> None:
    message = refused(run, output, tiny, "--recipe", "w8a9")
    assert "no preset 'w8a9'" in message and "did you mean" in message


@pytest.mark.parametrize(
    ("yaml", "expected"),
    [
        ("weights: {bitz: 8}\nactivations: null", "bits"),
        ("weights: null\nactivations: null", "quantizes nothing"),
        ("weights: {bits: 8}\nactivations: null\noverrides: [{sites: ['layer.*'], bits: 4}]", "'layer.*'"),
        (
            "weights: {bits: 8}\nactivations: null\noverrides: [{sites: ['*'], off: true}]",
            "quantizes nothing",
        ),
    ],
    ids=["unknown key", "empty recipe", "pattern without a match", "everything turned off"],
)
def test_a_bad_recipe_file(
    run: Run, tiny: Path, tmp_path: Path, output: Path, yaml: str, expected: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"octavo: 1\nname: mine\n{yaml}\n", encoding="utf-8")
    assert expected in refused(run, output, tiny, "--recipe", file)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "holds no text"),
        (b"\n \n", "holds no text"),
        (b"caf\xe9 noir\n", "is not UTF-8"),
        (b"a\tb\tc", "tabs"),
    ],
    ids=["empty", "blank", "latin-1", "two tabs"],
)
def test_a_bad_calibration_file(
    run: Run, tiny: Path, texts: Path, output: Path, data: bytes, expected: str
) -> None:
    texts.write_bytes(data)
    message = refused(run, output, tiny, "--recipe", "w8a8", "--calibration", texts)
    assert expected in message and str(texts) in message


def test_a_missing_calibration_file(run: Run, tiny: Path, tmp_path: Path, output: Path) -> None:
    arguments = (tiny, "--recipe", "w8a8", "--calibration", tmp_path / "absent.txt")
    assert "does not exist" in refused(run, output, *arguments)


def test_static_ranges_without_texts(run: Run, tiny: Path, output: Path) -> None:
    assert "give calibration texts" in refused(run, output, tiny, "--recipe", "w8a8")
