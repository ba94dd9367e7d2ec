from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture(scope="session")
def classifier(tiny_bert_folder: Callable[..., Path]) -> Path:
    return tiny_bert_folder("BertForSequenceClassification", num_labels=2)


@pytest.fixture
def rte(tmp_path: Path) -> Path:
    """A GLUE folder with four examples of RTE."""
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    labels = ("entailment", "not_entailment") * 2
    rows = [f"{row}\tit rains.\tthere is water.\t{label}" for row, label in enumerate(labels)]
    text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
    (folder / "dev.tsv").write_text(text, encoding="utf-8")
    return folder.parent


def test_a_model_equals_itself(run: Run, tiny: Path, texts: Path) -> None:
    result = run("evaluate", tiny, "--against", tiny, "--texts", texts)
    assert result.exit_code == 0, result.output
    assert "cosine, mean" in result.stdout and "1.0000" in result.stdout
    assert "3 nearest neighbours kept" in result.stdout and "100.0%" in result.stdout


def test_fidelity_as_json(run: Run, tiny: Path, texts: Path) -> None:
    document = json.loads(run("evaluate", tiny, "--against", tiny, "--texts", texts, "--json").stdout)
    assert document["task"] == "fidelity"
    assert document["fidelity"]["cosine"]["mean"] == pytest.approx(1)
    assert document["fidelity"]["sqnr"]["embedding"] is None  # infinite, which JSON has not
    assert document["versions"]["torch"]


def test_a_classifier_has_agreement(run: Run, classifier: Path, texts: Path) -> None:
    shown = run("evaluate", classifier, "--against", classifier, "--texts", texts).stdout
    assert "same prediction, logits" in shown and "KL divergence" in shown


def test_a_task_has_a_score(run: Run, classifier: Path, rte: Path) -> None:
    arguments = ("evaluate", classifier, "--task", "glue/rte", "--data", rte)
    document = json.loads(run(*arguments, "--json").stdout)
    assert (document["examples"], document["partial"], document["score"]) == (4, True, 50.0)
    shown = run(*arguments).stdout
    assert "accuracy" in shown and "50.00" in shown and "4 of 277" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--against MODEL and --texts FILE"),
        (("--against", "x"), "--against MODEL and --texts FILE"),
        (("--task", "glue/rte", "--texts", "x"), "either a task, or --against and --texts"),
        (("--task", "glue/rte", "--against", "x"), "is scored for one model"),
        (("--text", "review"), "name columns of a table; give it as well: --data FILE"),
        (("--task", "glue/rte", "--text", "a"), "glue/rte knows its columns; leave out --text"),
        (("--split", "dev"), "belong to a task"),
        (("--max-length", "9"), "belong to a task"),
        (("--task", "glue/rtee"), "did you mean 'glue/rte'"),
    ],
    ids=[
        "nothing to do",
        "no texts",
        "task and texts",
        "task and reference",
        "columns without data",
        "columns of a task",
        "split without task",
        "length without task",
        "unknown task",
    ],
)
def test_bad_options_are_refused_before_loading(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    result = run("evaluate", "no-such-model", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr and result.stderr.count("\n") == 1


def test_models_with_different_heads_are_not_compared(
    run: Run, tiny: Path, classifier: Path, texts: Path
) -> None:
    result = run("evaluate", tiny, "--against", classifier, "--texts", texts)
    assert result.exit_code == 2
    assert "same head" in result.stderr


def test_a_task_for_which_the_model_has_no_head(run: Run, tiny: Path, rte: Path) -> None:
    result = run("evaluate", tiny, "--task", "glue/rte", "--data", rte)
    assert result.exit_code == 2
    assert "needs a sequence-classification head" in result.stderr


# -- exported files ------------------------------------------------------------------------------------------


def test_an_exported_file_is_evaluated_with_the_tokenizer_of_the_reference(
    run: Run, tiny: Path, texts: Path, tmp_path: Path
) -> None:
    file = tmp_path / "files" / "model.onnx"
    assert run("export", tiny, "-o", file, "--no-check").exit_code == 0
    document = json.loads(run("evaluate", file, "--against", tiny, "--texts", texts, "--json").stdout)
    assert document["model"] == "model.onnx"
    assert document["fidelity"]["cosine"]["worst"] == pytest.approx(1, abs=1e-5)


def test_an_exported_classifier_is_scored(run: Run, classifier: Path, rte: Path, tmp_path: Path) -> None:
    file = tmp_path / "files" / "model.onnx"
    assert run("export", classifier, "-o", file, "--no-check").exit_code == 0
    given = ("--task", "glue/rte", "--data", rte, "--json")
    of_file = json.loads(run("evaluate", file, "--tokenizer", classifier, *given).stdout)
    of_model = json.loads(run("evaluate", classifier, *given).stdout)
    assert of_file["score"] == of_model["score"]


def test_a_file_without_a_tokenizer_is_refused(run: Run, classifier: Path, rte: Path, tmp_path: Path) -> None:
    file = tmp_path / "files" / "model.onnx"
    run("export", classifier, "-o", file, "--no-check")
    result = run("evaluate", file, "--task", "glue/rte", "--data", rte)
    assert result.exit_code == 2 and "has no tokenizer beside it" in result.stderr
