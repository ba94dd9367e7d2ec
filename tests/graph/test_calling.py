from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.pipelines import PIPELINE_REGISTRY

import octavo
from octavo.errors import ModelError, OctavoWarning
from octavo.graph import Encoder

TEXTS = ["the dog barks.", "a cat sleeps on the mat.", "rain again"]
LABELS = {0: "O", 1: "B-X", 2: "I-X", 3: "B-Y"}
MODELS = {
    "feature-extraction": ("BertModel", {}),
    "text-classification": ("BertForSequenceClassification", {"num_labels": 3}),
    "token-classification": ("BertForTokenClassification", {"id2label": LABELS}),
    "question-answering": ("BertForQuestionAnswering", {}),
    "fill-mask": ("BertForMaskedLM", {}),
}


@pytest.fixture(scope="session")
def models(tiny_bert_folder: Callable[..., Path]) -> dict[str, tuple[Path, Encoder]]:
    """A tiny model of every head: its folder, and as Octavo loads it."""
    folders = {task: tiny_bert_folder(name, **settings) for task, (name, settings) in MODELS.items()}
    return {task: (folder, octavo.load(folder)) for task, folder in folders.items()}


def network(task: str, folder: Path) -> Any:
    return getattr(transformers, MODELS[task][0]).from_pretrained(folder).eval()


@pytest.mark.parametrize("task", MODELS)
def test_a_model_answers_as_hugging_faces_does(task: str, models: Any) -> None:
    folder, model = models[task]
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = network(task, folder)(**batch)
    found = model(**batch)
    assert isinstance(found, transformers.utils.ModelOutput)
    for name in model.output_names:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-5)
        assert getattr(found, name) is found[name]
    assert [x.shape for x in found.to_tuple()] == [found[name].shape for name in model.output_names]


@pytest.mark.parametrize("task", MODELS)
def test_all_ways_to_call_give_the_same_bits(task: str, models: Any) -> None:
    _, model = models[task]
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    by_mapping = model(batch)
    assert type(by_mapping) is dict and tuple(by_mapping) == model.output_names
    ids = batch["input_ids"]
    others = [
        model(**batch).to_tuple(),
        model(**batch, return_dict=False),
        model.forward(**batch, output_hidden_states=False, labels=None).to_tuple(),
        model.eval()(ids, attention_mask=batch["attention_mask"]).to_tuple(),
        tuple(model(batch=batch).values()),
    ]
    for found in others:
        assert all(torch.equal(x, y) for x, y in zip(found, by_mapping.values(), strict=True))


@pytest.mark.parametrize("given", [TEXTS, TEXTS[0], [[2, 3]]], ids=["texts", "text", "lists"])
def test_what_is_no_tensor_is_refused_with_the_call_that_works(given: Any, models: Any) -> None:
    with pytest.raises(ModelError, match=r"was called with a (list|str) for input_ids, which must be a ten"):
        models["text-classification"][1](given)


def test_what_a_model_cannot_be_asked_for_is_named(models: Any) -> None:
    _, model = models["text-classification"]
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with pytest.raises(
        ModelError, match=r"cannot be called with labels, output_attentions; it takes input_ids"
    ):
        model(**batch, labels=torch.zeros(3), output_attentions=True)
    with pytest.raises(ModelError, match="was called without input_ids"):
        model(attention_mask=batch["attention_mask"])
    with pytest.raises(ModelError, match="as one mapping or by name, not both"):
        model(batch, return_dict=False)


INPUTS: dict[str, Any] = {
    "feature-extraction": "rain again",
    "text-classification": "rain again",
    "token-classification": "the dog barks.",
    "fill-mask": "the dog [MASK].",
    "question-answering": {"question": "who?", "context": "the dog barks."},
}
LISTED = [
    pytest.param(
        task,
        marks=pytest.mark.skipif(
            task not in PIPELINE_REGISTRY.get_supported_tasks(), reason="transformers no longer has it"
        ),
    )
    for task in MODELS
]


def same(found: Any, expected: Any) -> None:
    """Compare what pipelines return: numbers nearly, all else exactly."""
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, str | int):
        assert found == expected
    else:
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("task", LISTED)
@pytest.mark.parametrize("kind", ["loaded", "file"])
def test_pipelines_run_octavos_models(
    task: Any, kind: str, models: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, model = models[task]
    expected = transformers.pipeline(task, model=network(task, folder), tokenizer=model.tokenizer)
    if kind == "file":
        model = octavo.open(octavo.export(model, tmp_path / "model.onnx"), folder)
    logging.getLogger("transformers").propagate = True
    with caplog.at_level(logging.WARNING, logger="transformers"):
        pipe = transformers.pipeline(task, model=model, tokenizer=model.tokenizer)
    assert "not supported" not in caplog.text
    same(pipe(INPUTS[task]), expected(INPUTS[task]))
    if isinstance(INPUTS[task], str):
        same(pipe([INPUTS[task]] * 3, batch_size=2), expected([INPUTS[task]] * 3, batch_size=2))
    assert type(model).__name__ in repr(pipe)


def test_a_file_says_that_it_stays_on_the_cpu(models: Any, tmp_path: Path) -> None:
    folder, model = models["feature-extraction"]
    opened = octavo.open(octavo.export(model, tmp_path / "model.onnx"), folder)
    assert opened.to("cpu") is opened and opened.device.type == "cpu" and opened.dtype == torch.float32
    with pytest.warns(OctavoWarning, match="runs on the CPU and is not moved to cuda"):
        opened.to("cuda")
