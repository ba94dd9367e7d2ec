from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import DataError, OctavoError, SpecError
from octavo.tasks import Classification, MultiLabel, Retrieval
from octavo.tasks.task_file import find_task, read_task_file, task_from_dict


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "task.yaml"


def test_a_file_says_once_what_a_task_is(tmp_path: Path) -> None:
    text = "kind: classification\ntrain: a.csv\ntext: [question, answer]\nlabel: stars\nholdout: 0.2\n"
    text += "labels: [1, 5]\n"
    assert read_task_file(write(tmp_path, text)) == Classification(
        train=tmp_path / "a.csv", text=("question", "answer"), label="stars", labels=("1", "5"), holdout=0.2
    )


def test_single_names_become_lists_where_a_list_is_meant() -> None:
    assert task_from_dict({"kind": "retrieval", "vectors": "int8", "metrics": "ndcg@10"}) == Retrieval(
        vectors=("int8",), metrics=("ndcg@10",)
    )
    assert task_from_dict({"kind": "multi-label", "label": ["a", "b"]}) == MultiLabel(label=("a", "b"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: clasification", "unknown kind 'clasification'; there are classification.*did you mean"),
        ("text: a", r"task\.yaml: no kind is given; there are classification, "),
        ("kind: regression\nlabels: a", "unknown key 'labels'; regression has kind, name, train, dev"),
        ("kind: regression\nlable: a", "did you mean 'label'"),
        ("kind: regression\nholdout: x", "holdout must be a number such as 0.1, got 'x'"),
        ("kind: regression\nholdout: 2", "holdout must be between 0 and 1, got 2"),
        ("kind: regression\nlabel: [a, b]", "regression has one column of labels, got a, b"),
        ("kind: similarity\ntext: a", "similarity is of pairs; name two columns"),
        ("kind: classification\nlabels: [yes, no]", "labels must be text, got True; put it in quotes"),
        ("kind: regression\nmetrics: [accuracy]", "regression has no metric 'accuracy': there are pearson"),
        ("kind: retrieval\nvectors: [int4]", "vectors are stored as float, int8, binary, not as 'int4'"),
        ("- a", "is no task file; write keys such as kind"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises((DataError, SpecError), match=expected):
        read_task_file(write(tmp_path, text))


def test_names_of_tasks(tmp_path: Path) -> None:
    assert find_task("glue/rte", "anywhere") == "glue/rte"
    assert find_task("classification", "a.csv") == Classification(dev="a.csv")
    assert find_task(Classification(dev="a.csv"), "b.csv") == Classification(dev="b.csv")
    assert find_task(str(write(tmp_path, "kind: regression")), "a.csv").dev == "a.csv"  # type: ignore[union-attr]
    with pytest.raises(
        OctavoError, match=r"Unknown task 'clasification': there are glue/cola, .*did you mean"
    ):
        find_task("clasification")
    with pytest.raises(DataError, match=r"none\.yaml does not exist"):
        find_task("none.yaml")
