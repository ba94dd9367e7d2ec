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
    assert "ms 1 x 8" in done.stdout and "simulated" in done.stdout and "integer" in done.stdout
    assert (tmp_path / "bench" / "bench.svg").read_text().startswith("<svg")
    assert len(json.loads((tmp_path / "bench" / "bench.json").read_text())["rows"]) == 3


def test_bench_refuses_lengths_that_are_no_numbers(run: Run, tiny: Path) -> None:
    done = run("bench", tiny, "--lengths", "short")
    assert done.exit_code == 2 and "--lengths must be numbers with commas between them" in done.stderr
