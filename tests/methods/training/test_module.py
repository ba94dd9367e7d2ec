from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from octavo.errors import ModelError
from octavo.graph import State
from octavo.methods import load, quantize
from octavo.methods.training.module import TrainableEncoder
from octavo.spec import FixedRanges, TensorSpec
from octavo.spec.presets import recipe
from tests.methods import tiny

TEXTS = tiny.texts(12)[0]
ALMOST_FLOAT = replace(recipe("w8a32"), name="w16", weights=TensorSpec(bits=16, symmetric=True))

HEADS: dict[str, tuple[str, dict[str, Any], Callable[[int, int], dict[str, Tensor]]]] = {
    "classes": (
        "BertForSequenceClassification",
        {"num_labels": 3},
        lambda n, length: {"labels": torch.arange(n) % 3},
    ),
    "labels": (
        "BertForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        lambda n, length: {"labels": (torch.arange(3 * n).reshape(n, 3) % 2).float()},
    ),
    "score": (
        "BertForSequenceClassification",
        {"num_labels": 1},
        lambda n, length: {"labels": torch.linspace(0, 1, n)},
    ),
    "tags": (
        "BertForTokenClassification",
        {"num_labels": 4},
        lambda n, length: {"labels": torch.arange(n * length).reshape(n, length) % 5 - 1},
    ),
    "spans": (
        "BertForQuestionAnswering",
        {},
        lambda n, length: {"start_positions": torch.full((n,), 1), "end_positions": torch.full((n,), 2)},
    ),
    "masks": (
        "BertForMaskedLM",
        {},
        lambda n, length: {"labels": torch.arange(n * length).reshape(n, length) % 50},
    ),
}


@pytest.mark.parametrize("kind", HEADS)
def test_its_loss_is_that_of_transformers_and_it_learns(
    tiny_bert_folder: Callable[..., Path], kind: str, tmp_path: Path
) -> None:
    architecture, settings, make = HEADS[kind]
    folder = tiny_bert_folder(architecture, **settings)
    encoder = load(str(folder))
    batch = dict(next(iter(encoder.batches(TEXTS)))[1])
    labels = make(*batch["input_ids"].shape)
    if kind == "tags":
        labels["labels"][labels["labels"] < 0] = -100
    module = TrainableEncoder(quantize(encoder, ALMOST_FLOAT))
    network = getattr(transformers, architecture).from_pretrained(folder).eval()
    wanted = float(network(**batch, **labels).loss.detach())
    output = module.eval()(**batch, **labels)
    assert float(output.loss.detach()) == pytest.approx(wanted, rel=1e-3)

    module = TrainableEncoder(quantize(encoder, recipe("w8a8"), TEXTS)).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = module(**batch, **labels).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    model = module.finish()
    assert all(quantizer.state is State.FIX for quantizer in model.quantizers.values())
    again = load(str(model.save(tmp_path / "model")))
    for name, result in model(batch).items():
        assert torch.allclose(again(batch)[name], result, atol=1e-4), name


def test_the_model_that_it_was_made_of_stays(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(str(tiny_bert_folder("BertForSequenceClassification")))
    model = quantize(encoder, recipe("w8a8"), TEXTS)
    batch = next(iter(encoder.batches(TEXTS)))[1]
    before, float_before = model(batch)["logits"], encoder(batch)["logits"]
    module = TrainableEncoder(model)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1)
    module.finish()
    assert torch.equal(model(batch)["logits"], before)
    assert torch.equal(encoder(batch)["logits"], float_before)


def test_fixed_ranges_are_no_parameters_that_learn(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(str(tiny_bert_folder("BertModel")))
    model = quantize(encoder, recipe("w8a8"), TEXTS)
    learned = [name for name, p in TrainableEncoder(model).named_parameters() if p.requires_grad]
    fixed = TrainableEncoder(model, training=FixedRanges())
    assert any("log_scale" in name for name in learned)
    assert not any("log_scale" in name for name, p in fixed.named_parameters() if p.requires_grad)


def test_what_cannot_be_asked_is_told(tiny_bert_folder: Callable[..., Path]) -> None:
    module = TrainableEncoder(quantize(load(str(tiny_bert_folder("BertModel"))), recipe("w8a8"), TEXTS))
    ids = torch.tensor([[2, 9, 3]])
    assert module(ids).last_hidden_state.requires_grad
    with pytest.raises(ModelError, match="has no head that labels could teach; compute a loss"):
        module(ids, labels=torch.tensor([1]))
    with pytest.raises(ModelError, match="called without input_ids"):
        module(attention_mask=ids)
    module.finish()
    with pytest.raises(ModelError, match="finished before"):
        module.finish()
    reader = load(str(tiny_bert_folder("BertForQuestionAnswering")))
    with pytest.raises(ModelError, match="start_positions and end_positions; give both"):
        TrainableEncoder(quantize(reader, recipe("w8a8"), TEXTS))(ids, start_positions=torch.tensor([1]))


def test_it_trains_in_the_trainer_of_transformers(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    encoder = load(str(tiny_bert_folder("BertForSequenceClassification")))
    assert encoder.tokenizer is not None
    module = TrainableEncoder(quantize(encoder, recipe("w8a8"), TEXTS))
    texts, labels = tiny.texts(64)
    fill = {"padding": "max_length", "max_length": 16, "truncation": True}
    rows = [
        {**encoder.tokenizer(text, **fill), "labels": label}
        for text, label in zip(texts, labels, strict=True)
    ]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "runs"),
        num_train_epochs=4,
        per_device_train_batch_size=16,
        learning_rate=2e-3,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        logging_steps=1000,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=module, args=arguments, train_dataset=rows, eval_dataset=rows)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    model = module.finish()
    assert tiny.accuracy(load(str(model.save(tmp_path / "model"))), tiny.data(encoder)) >= 0.5
