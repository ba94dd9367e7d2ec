from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.methods import tiny


def write_mrpc(folder: Path, train: int = 48, dev: int = 24) -> None:
    """A tiny MRPC whose label says whether the first text holds the letter a."""
    (folder / "MRPC").mkdir(parents=True)
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    for split, count, seed in (("train", train, 0), ("dev", dev, 1)):
        texts, labels = tiny.texts(count, seed)
        lines = [f"{label}\t1\t2\t{text}\tb" for text, label in zip(texts, labels, strict=True)]
        (folder / "MRPC" / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def tiny_glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny MRPC in GLUE's layout."""
    folder = tmp_path_factory.mktemp("glue")
    write_mrpc(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_bert_folder: Callable[..., Path]) -> str:
    """The folder of a tiny pre-trained model."""
    return str(tiny_bert_folder())
