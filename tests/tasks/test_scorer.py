from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.methods import load
from octavo.tasks import score_task
from octavo.tasks.scorer import check_task, task_scorer


@pytest.mark.parametrize("known", ["glue/rte", "similarity/stsb"])
def test_a_known_task_passes(known: str) -> None:
    check_task(known)


def test_an_unknown_task_is_refused_before_any_model_or_data() -> None:
    with pytest.raises(DataError, match="did you mean 'glue/rte'"):
        check_task("glue/rtee")
    with pytest.raises(DataError, match="Unknown task 'glue/x'"):
        task_scorer("glue/x", "nowhere")


def test_it_scores_as_score_task_does(tiny_bert_folder: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "SST-2").mkdir()
    lines = "sentence\tlabel\n" + "".join(f"text {letter}\t{n % 2}\n" for n, letter in enumerate("abcd"))
    (tmp_path / "SST-2" / "dev.tsv").write_text(lines, encoding="utf-8")
    model = load(tiny_bert_folder("BertForSequenceClassification"))
    assert task_scorer("glue/sst2", tmp_path)(model) == score_task(model, "glue/sst2", data=tmp_path).score
