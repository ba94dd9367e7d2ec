from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import octavo
from octavo.errors import DataError, ModelError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime import Classifier, Embedder
from octavo.runtime.exporting import export
from octavo.runtime.hub.layout import write_hub_folder
from octavo.runtime.text_file import open_text_file


@pytest.fixture(scope="session")
def hub_folder(tiny_bert_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with its file in `onnx/`, tokenizer and configuration above."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    source = tiny_bert_folder("BertForSequenceClassification", id2label={0: "no", 1: "yes", 2: "perhaps"})
    shutil.copytree(source, folder)
    (folder / "onnx").mkdir()
    export(octavo.load(source), folder / "onnx" / "model.onnx")
    return folder


def test_a_folder_laid_out_as_on_the_hub_is_opened_by_its_file(hub_folder: Path) -> None:
    opened = open_text_file(hub_folder)
    assert opened.path == hub_folder / "onnx" / "model.onnx" and opened.folder == hub_folder
    assert (opened.head, opened.labels) == ("sequence-classification", ("no", "yes", "perhaps"))
    assert opened.max_length == 64


def test_the_quantized_file_is_opened_and_of_two_the_one_for_servers(
    tiny_encoder: Encoder, tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    for float_onnx, expected in ((True, "model_quantized.onnx"), (False, "model.onnx")):
        folder = tmp_path / expected
        write_hub_folder(tiny_int8, folder, against=tiny_encoder, float_onnx=float_onnx, check=False)
        opened = open_text_file(folder)
        assert opened.path.name == expected and opened.metadata["recipe"] == "int8"


@pytest.mark.parametrize(
    ("texts", "batch_size", "message"),
    [
        (np.array(["a"]), 1, r"texts are a ndarray; give a list, such as list\(texts\)"),
        ([], 1, "no texts were given"),
        (["a", None], 1, "text 2 is None; give a string, or a pair of strings"),
        ([("a", "b", "c")], 1, r"text 1 is \('a', 'b', 'c'\); give a string, or a pair"),
        ([("a", 1)], 1, "text 1 is"),
        (["a"], 0, "0 texts per batch were asked for; use 1 or more"),
    ],
    ids=str,
)
def test_what_is_no_list_of_texts_is_refused(
    texts: Any, batch_size: int, message: str, hub_folder: Path
) -> None:
    with pytest.raises(DataError, match=message):
        Classifier(hub_folder).predict(texts, batch_size)


def test_threads_are_at_least_one(hub_folder: Path) -> None:
    with pytest.raises(SpecError, match="-3 threads were asked for; use 1 or more"):
        octavo.open(hub_folder, threads=-3)


def test_labels_come_from_the_configuration_where_the_file_has_none(hub_folder: Path, tmp_path: Path) -> None:
    import onnx

    folder = Path(shutil.copytree(hub_folder, tmp_path / "model"))
    file = folder / "onnx" / "model.onnx"
    model = onnx.load(file)
    kept = [entry for entry in model.metadata_props if entry.key != "labels"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, file)
    assert open_text_file(file).labels == ("no", "yes", "perhaps")


def test_a_folder_without_a_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no exported file .*octavo export --layout hub"):
        open_text_file(tmp_path)


def test_a_configuration_that_is_no_json_is_named(hub_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(hub_folder, tmp_path / "model"))
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json cannot be read .*copy it again"):
        open_text_file(folder)


def test_a_head_that_serves_another_purpose_is_refused(
    hub_folder: Path, tiny_file: Path, tiny_saved: Path
) -> None:
    with pytest.raises(ModelError, match="has a sequence-classification head; only a bare encoder makes"):
        Embedder(hub_folder)
    with pytest.raises(
        ModelError, match="has the head encoder; only a sequence-classification head classifies"
    ):
        Classifier(tiny_file, tiny_saved)


def test_files_are_read_without_torch(hub_folder: Path) -> None:
    code = (
        "import sys\nfrom octavo.runtime import Classifier\n"
        f"print(Classifier({str(hub_folder)!r}).predict('rain').label)\n"
        "assert 'octavo.graph' not in sys.modules, 'octavo.graph brings torch'"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(octavo.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("no", "yes", "perhaps")
