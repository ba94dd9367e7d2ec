from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_findings_tables_and_the_report(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    result = run("diagnose", tiny, "--texts", texts, "-o", tmp_path / "out", "--sensitivity", "layers")
    assert result.exit_code == 0, result.output
    for piece in ("No dimension dwarfs the others", "Use w8a8", "layers.1", "octavo quantize", "Report: "):
        assert piece in result.stdout
    assert (tmp_path / "out" / "report.html").is_file()


def test_json_is_one_document(run: Run, tiny: Path, texts: Path) -> None:
    result = run("diagnose", tiny, "--texts", texts, "--sensitivity", "none", "--json")
    document = json.loads(result.stdout)
    assert (document["texts"], document["sensitivity"], document["report"]) == (4, None, None)
    assert len(document["sites"]) == 29


def test_the_same_command_continues(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    arguments = (
        "diagnose",
        tiny,
        "--texts",
        texts,
        "-o",
        tmp_path / "out",
        "--sensitivity",
        "last",
        "--json",
    )
    first, second = (json.loads(run(*arguments).stdout) for _ in range(2))
    assert first["sensitivity"] == second["sensitivity"]
    other = run("diagnose", tiny, "--texts", texts, "-o", tmp_path / "out", "--limit", "2")
    assert other.exit_code == 2
    assert "holds a diagnosis with another texts" in other.stderr and "use --force" in other.stderr


def test_panels_for_the_tasks_in_a_folder(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "glue" / "SST-2").mkdir(parents=True)
    lines = "sentence\tlabel\n" + "".join(f"text number {letter}\t1\n" for letter in "abcdefghijkl")
    (tmp_path / "glue" / "SST-2" / "dev.tsv").write_text(lines, encoding="utf-8")
    options = ("--data", tmp_path / "glue", "--sensitivity", "none", "--json")
    document = json.loads(run("diagnose", tiny, "--texts", texts, *options).stdout)
    assert [(p["task"], len(p["inputs"])) for p in document["distributions"]["panels"]] == [("SST-2", 10)]


def test_a_task_adds_scores(
    run: Run, tiny_bert_folder: Callable[..., Path], texts: Path, tmp_path: Path
) -> None:
    (tmp_path / "glue" / "SST-2").mkdir(parents=True)
    lines = "sentence\tlabel\n" + "".join(
        f"text number {letter}\t{n % 2}\n" for n, letter in enumerate("abcdef")
    )
    (tmp_path / "glue" / "SST-2" / "dev.tsv").write_text(lines, encoding="utf-8")
    model = tiny_bert_folder("BertForSequenceClassification")
    options = ("--task", "glue/sst2", "--data", tmp_path / "glue", "--sensitivity", "layers", "--json")
    document = json.loads(run("diagnose", model, "--texts", texts, *options).stdout)
    measured = document["sensitivity"]
    assert (measured["measure"], measured["float_score"]) == ("score", 50.0)
    assert all(0 <= variant["left_out"]["score"] <= 100 for variant in measured["variants"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sensitivity", "role"), "unknown sensitivity scope 'role'"),
        (("--task", "glue/rt"), "did you mean 'glue/rte'"),
        (("--data", "."), "holds none of GLUE's task folders"),
        (("--recipe", "w8a9"), "did you mean"),
        (("--sequence", "9"), "text 9 was chosen for the token figures; there are 4"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_sentence(
    run: Run,
    tiny: Path,
    texts: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("diagnose", tiny, "--texts", texts, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_interrupted_run_says_how_to_resume(
    run: Run, tiny: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.diagnosis.chapters.sensitivity.analyse", interrupt)
    result = run("diagnose", tiny, "--texts", texts, "-o", tmp_path / "out")
    assert result.exit_code == 130
    assert "the same command resumes there" in result.stderr
    monkeypatch.undo()
    assert (
        run("diagnose", tiny, "--texts", texts, "-o", tmp_path / "out", "--sensitivity", "last").exit_code
        == 0
    )


def test_an_unknown_task_is_refused_before_loading(run: Run, texts: Path) -> None:
    result = run("diagnose", "no-such-model", "--texts", texts, "--task", "glue/rtee")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean 'glue/rte'" in result.stderr
