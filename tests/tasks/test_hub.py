from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from octavo.errors import DataError, MissingExtraError
from octavo.tasks.hub import read_glue_hub


class FakeHub:
    """Stands in for the package datasets and remembers what was asked."""

    def __init__(self, table: dict[str, list[Any]] | Exception) -> None:
        self.table = table
        self.asked: tuple[str, str, str] | None = None

    def load_dataset(self, repository: str, config: str, *, split: str) -> dict[str, list[Any]]:
        self.asked = (repository, config, split)
        if isinstance(self.table, Exception):
            raise self.table
        return self.table


def install(monkeypatch: pytest.MonkeyPatch, table: dict[str, list[Any]] | Exception) -> FakeHub:
    hub = FakeHub(table)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=hub.load_dataset))
    return hub


def test_pairs_come_from_the_columns_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = install(monkeypatch, {"premise": ["A.", "B."], "hypothesis": ["C.", "D."], "label": [2, 0]})
    examples = read_glue_hub("glue/mnli")
    assert hub.asked == ("nyu-mll/glue", "mnli", "validation_matched")
    assert examples.texts == (("A.", "C."), ("B.", "D."))
    assert examples.labels.tolist() == [2, 0]
    assert examples.split == "dev_matched"
    assert examples.source == "hub:nyu-mll/glue/mnli/validation_matched"


def test_single_sentences_stay_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = install(monkeypatch, {"sentence": ["A."], "label": [1]})
    assert read_glue_hub("glue/sst2", "train").texts == ("A.",)
    assert hub.asked == ("nyu-mll/glue", "sst2", "train")


def test_regression_keeps_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"sentence1": ["A."], "sentence2": ["B."], "label": [4.2]})
    assert read_glue_hub("glue/stsb").labels.tolist() == [4.2]


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"--data.*pip install 'octavo\[hub\]'"):
        read_glue_hub("glue/rte")


def test_no_connection_is_a_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, ConnectionError("no route"))
    with pytest.raises(DataError, match=r"could not be read from the hub \(no route\); check the connection"):
        read_glue_hub("glue/rte")
