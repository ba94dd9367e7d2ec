from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_bench_shows_a_table_and_writes_a_plot(
    run: Run, tiny: Path, saved: Path, texts: Path, tmp_path: Path
) -> None:
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--no-check").exit_code == 0
    options = ["--batches", "1", "--lengths", "4,8", "--seconds", "0", "--no-memory", "--threads", "1"]
    out = ["--texts", texts, "-o", tmp_path / "bench"]
    done = run("bench", tiny, saved, tmp_path / "model.onnx", *options, *out)
    assert done.exit_code == 0, done.output
    assert "neighbours" in done.stdout and "ranks" in done.stdout
    assert "ms 1 x 8" in done.stdout and "simulated" in done.stdout and "integer" in done.stdout
    assert (tmp_path / "bench" / "bench.svg").read_text().startswith("<svg")
    assert len(json.loads((tmp_path / "bench" / "bench.json").read_text())["rows"]) == 3


def test_bench_refuses_lengths_that_are_no_numbers(run: Run, tiny: Path) -> None:
    done = run("bench", tiny, "--lengths", "short")
    assert done.exit_code == 2 and "--lengths must be numbers with commas between them" in done.stderr


def test_invariance_is_a_table_and_a_file(
    run: Run, tiny: Path, saved: Path, texts: Path, tmp_path: Path
) -> None:
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--no-check").exit_code == 0
    options = ["--batches", "2,4", "--lengths", "32", "--texts", texts]
    out = ["-o", tmp_path / "out"]
    done = run("bench", "--invariance", tiny, tmp_path / "model.onnx", *options, *out)
    assert done.exit_code == 0, done.output
    assert "4 texts, each against its result alone" in done.stdout and "padded to 32" in done.stdout
    rows = json.loads((tmp_path / "out" / "invariance.json").read_text())["rows"]
    assert [row["kind"] for row in rows] == ["float", "integer", "integer"]
    assert sum(change["moved"] for change in rows[2]["changes"]) == 0


def test_invariance_refuses_what_it_does_not_read(run: Run, tiny: Path) -> None:
    done = run("bench", "--invariance", tiny, "--seconds", "1", "--no-memory")
    assert done.exit_code == 2 and "--invariance does not read --seconds, --memory" in done.stderr
