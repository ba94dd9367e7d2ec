from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.experiments.conftest import write_mrpc

FAST = ("--epochs", "1", "--learning-rate", "1e-3", "--batch-size", "16", "--device", "cpu")


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glue")
    write_mrpc(folder)
    return folder


def test_finetune_then_qat_then_evaluate(run: Run, tiny: Path, glue: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "float", tmp_path / "quantized"
    result = run("finetune", tiny, "--task", "glue/mrpc", "--data", glue, "-o", first, "--seeds", 2, *FAST)
    assert result.exit_code == 0, result.output
    assert "Scores of all seeds" in result.stdout and "partial: train, dev" in result.stderr
    assert json.loads((first / "config.json").read_text())["id2label"]["1"] == "equivalent"
    result = run(
        "qat",
        first,
        "--recipe",
        "w8a8-qat",
        "--task",
        "glue/mrpc",
        "--data",
        glue,
        "-o",
        second,
        "--json",
        *FAST,
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["training"]["steps"] == 3 and document["hyperparameters"]["warmup"] == 0.1
    result = run("evaluate", second, "--task", "glue/mrpc", "--data", glue, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["score"] == pytest.approx(document["score"])
    assert not list(tmp_path.glob(".*checkpoint"))


def test_a_model_is_scored_with_the_length_it_was_trained_with(
    run: Run, tiny: Path, glue: Path, tmp_path: Path
) -> None:
    output, score = tmp_path / "float", ("--task", "glue/mrpc", "--data", glue, "--json", "--device", "cpu")
    short = ("finetune", tiny, "-o", output, *score[:-2], "--max-length", "6", *FAST)
    result = run(*short)
    assert result.exit_code == 0, result.output
    trained = json.loads(result.stdout)
    scored = json.loads(run("evaluate", output, *score).stdout)
    assert scored["max_length"] == 6 and scored["metrics"] == pytest.approx(trained["metrics"])
    assert json.loads(run("evaluate", output, *score, "--max-length", "32").stdout)["max_length"] == 32


def sentence(run: Run, *arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_what_cannot_be_is_one_sentence(run: Run, tiny: Path, glue: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    assert "Unknown task 'glue/mrp'" in sentence(
        run, "finetune", tiny, "--task", "glue/mrp", "--data", glue, *out
    )
    broken = tmp_path / "broken"
    write_mrpc(broken)
    (broken / "MRPC" / "train.tsv").write_text("Quality\t#1 String\t#2 String\n7\ta\tb\n", encoding="utf-8")
    told = sentence(run, "finetune", tiny, "--task", "glue/mrpc", "--data", broken, *out, *FAST)
    assert "train.tsv, line 2: label '7' is outside glue/mrpc; allowed are 0, 1" in told
    told = sentence(run, "qat", tiny, "--recipe", "w8a8-qat", "--task", "glue/mrpc", "--data", glue, *out)
    assert "has no classification head, glue/mrpc needs 2; fine-tune it first" in told
    told = sentence(
        run, "finetune", tiny, "--task", "glue/mrpc", "--data", glue, *out, "--mixed-precision", "int3"
    )
    assert "unknown mixed precision 'int3'" in told
    assert not (tmp_path / "out").exists()
