from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.errors import DataError, ModelError
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME
from octavo.runtime.exporting import export
from octavo.runtime.invariance import Change, Invariance, measure_invariance
from tests.runtime.conftest import TEXTS


@pytest.fixture(scope="module")
def measured(tiny_bert_folder: Callable[..., Path], tiny_file: Path, tiny_saved: Path) -> Invariance:
    models = [str(tiny_bert_folder()), str(tiny_file)]
    return measure_invariance(models, list(TEXTS), batch_sizes=(2, 5), lengths=(32, 64, 512))


def test_static_ranges_leave_every_vector_as_it_is(measured: Invariance) -> None:
    ours = measured.rows[-1]
    assert ours.kind == "integer" and measured.texts == len(TEXTS)
    assert [change.moved for change in ours.changes] == [0] * len(ours.changes)
    assert all(change.worst > 1 - 1e-6 for change in ours.changes)


def test_dynamic_ranges_change_with_the_batch_and_the_float_model_does_not(measured: Invariance) -> None:
    plain, dynamic, _ = measured.rows
    assert dynamic.name.endswith("dynamic int8 of ONNX Runtime") and plain.name.endswith("float")
    moved = {change.circumstance: change.moved for change in dynamic.changes}
    assert moved["batches of 5"] > 0
    assert all(change.moved == 0 for change in plain.changes)


def test_every_circumstance_is_tried_that_the_model_can_be_in(measured: Invariance) -> None:
    for row in measured.rows:
        assert [change.circumstance for change in row.changes] == [
            "batches of 2",
            "batches of 5",
            "batches of 5, shuffled",
            "padded to 32",
            "padded to 64",  # and not to 512, of which the model has no positions
            "2 threads",
            "2 threads, batches of 5",
        ]
    assert isinstance(measured.to_dict()["rows"][0]["changes"][0]["worst"], float)


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_models_with_a_head_are_compared_by_their_logits(
    head: str, tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_bert_folder(f"BertFor{head}")
    file = export(octavo.load(folder), tmp_path / "model.onnx")
    found = measure_invariance([str(file)], list(TEXTS), tokenizer=folder, batch_sizes=(3,), lengths=(40,))
    assert all(change.moved == 0 for change in found.rows[0].changes)


def test_a_vector_that_moves_is_counted(
    tiny_file: Path, tiny_saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.runtime.backends.onnxruntime import OnnxRuntimeModel

    run = OnnxRuntimeModel.__call__

    def disturbed(self: OnnxRuntimeModel, batch: dict) -> dict:  # type: ignore[type-arg]
        outputs = run(self, batch)
        if len(batch["input_ids"]) > 1:
            outputs["last_hidden_state"][0, :, 0] += 1
        return outputs

    monkeypatch.setattr(OnnxRuntimeModel, "__call__", disturbed)
    found = measure_invariance(
        [str(tiny_file)], list(TEXTS), tokenizer=tiny_saved, batch_sizes=(len(TEXTS),), lengths=()
    )
    first, *_ = found.rows[0].changes
    assert isinstance(first, Change) and (first.changed, first.moved) == (1, 1) and first.worst < 1


def test_what_cannot_be_measured_is_refused(tiny_saved: Path, tiny_file: Path) -> None:
    with pytest.raises(ModelError, match="is simulated; export it, and give the file"):
        measure_invariance([str(tiny_saved)], list(TEXTS))
    with pytest.raises(DataError, match="no texts were given"):
        measure_invariance([str(tiny_file)], [])


def test_integers_at_every_site_are_those_of_the_text_alone(
    tiny_file: Path, tiny_int8: octavo.QuantizedEncoder
) -> None:
    (chosen, batch), *_ = tiny_int8.batches(list(TEXTS), batch_size=len(TEXTS))
    together = ONNXRUNTIME.site_integers(tiny_file, {n: x.numpy() for n, x in batch.items()})
    texts, length = batch["input_ids"].shape
    compared = 0
    for row, index in enumerate(chosen):
        (_, single), *_ = tiny_int8.batches([TEXTS[index]])
        alone = ONNXRUNTIME.site_integers(tiny_file, {n: x.numpy() for n, x in single.items()})
        tokens = single["input_ids"].shape[1]
        for name, integers in alone.items():
            # one row a token; what attention makes of pairs of tokens has other shapes
            if name.endswith(".q") and integers.ndim == 2 and len(integers) == tokens:
                whole = together[name].reshape(texts, length, -1)
                assert np.array_equal(whole[row, :tokens], integers), f"{name} of {TEXTS[index]!r}"
                compared += 1
    assert compared >= 8 * texts
