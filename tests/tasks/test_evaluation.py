from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo.errors import DataError, ModelError, OctavoError, OctavoWarning
from octavo.tasks.evaluation import evaluate
from octavo.tasks.glue_files import read_glue
from octavo.tasks.task_file import TASKS
from tests.tasks.fake import FakeEncoder, Text

RTE = "index\tsentence1\tsentence2\tlabel\n"
STSB = "index\tsentence1\tsentence2\tscore\n"
TEXTS = ["one", "three", "fifteen", ("a pair", "of texts")]


def hidden(noise: float = 0.0):
    def outputs(text: Text) -> dict[str, list[list[float]]]:
        size = len(str(text))
        return {"last_hidden_state": [[math.cos(size) + noise, math.sin(size)]] * 2}

    return outputs


def says(*answers: str):
    """Return a classifier's outputs: logit i is 1 where the second sentence ends in answer i."""

    def logits(text: Text) -> dict[str, list[float]]:
        return {"logits": [float(text[1].endswith(answer)) for answer in answers]}

    return logits


def classifier(outputs, **options) -> FakeEncoder:
    return FakeEncoder(outputs, head="sequence-classification", **options)


def rte(folder: Path) -> Path:
    rows = [
        "0\tA.\tyes\tentailment",
        "1\tB.\tno\tnot_entailment",
        "2\tC.\tyes\tnot_entailment",
        "3\tD.\tno\tnot_entailment",
    ]
    (folder / "RTE").mkdir()
    (folder / "RTE" / "dev.tsv").write_text(RTE + "\n".join(rows) + "\n")
    return folder


def stsb(folder: Path) -> Path:
    (folder / "STS-B").mkdir()
    (folder / "STS-B" / "dev.tsv").write_text(STSB + "0\taaaa\tb\t0.0\n1\taa\tbb\t2.5\n2\ta\tc\t5.0\n")
    return folder


def against(model: FakeEncoder, outputs, **options) -> FakeEncoder:
    """Return a reference that finds texts by the ids of the model's batches, as real models do by tokens."""
    reference = FakeEncoder(outputs, head=model.head, name="reference", **options)
    reference.texts = list(TEXTS)
    return reference


def test_fidelity_runs_both_on_the_same_batches() -> None:
    model = FakeEncoder(hidden())
    told: list[tuple[int, int]] = []
    evaluation = evaluate(
        model,
        against=against(model, hidden()),
        texts=TEXTS,
        batch_size=3,
        progress=lambda done, total: told.append((done, total)),
    )
    assert evaluation.fidelity is not None
    assert evaluation.fidelity.cosine is not None
    assert evaluation.fidelity.cosine.worst == pytest.approx(1.0)
    assert evaluation.fidelity.sqnr["last_hidden_state"] == math.inf
    assert evaluation.fidelity.neighbours is not None
    assert evaluation.fidelity.neighbours.kept == 1.0
    assert (evaluation.task, evaluation.examples, evaluation.score) == ("fidelity", 4, None)
    assert (evaluation.model, evaluation.against) == ("fake", "reference")
    assert told == [(3, 4), (4, 4)]


def test_fidelity_sees_a_difference() -> None:
    model = FakeEncoder(hidden(noise=0.2))
    evaluation = evaluate(model, against=against(model, hidden()), texts=TEXTS)
    assert evaluation.fidelity is not None
    assert evaluation.fidelity.cosine is not None
    assert evaluation.fidelity.cosine.worst < 0.999


def test_fidelity_of_a_classifier_has_agreement() -> None:
    model = classifier(lambda text: {"logits": [1.0, 0.0]})
    reference = against(model, lambda text: {"logits": [1.0, 2.0 * (text == "one")]})
    evaluation = evaluate(model, against=reference, texts=TEXTS)
    assert evaluation.fidelity is not None
    assert evaluation.fidelity.agreement == {"logits": 0.75}


def test_a_glue_score_carries_where_it_comes_from(tmp_path: Path) -> None:
    model = classifier(says("yes", "no"))
    evaluation = evaluate(model, task="glue/rte", data=rte(tmp_path), batch_size=3)
    assert evaluation.metrics == {"accuracy": 75.0}
    assert evaluation.score == 75.0
    assert (evaluation.task, evaluation.split, evaluation.examples) == ("glue/rte", "dev", 4)
    assert (evaluation.partial, evaluation.full) == (True, 277)
    assert evaluation.label_order == "index"
    assert evaluation.source == str(tmp_path / "RTE" / "dev.tsv")
    assert json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))["score"] == 75.0


def test_labels_of_the_model_are_matched_by_name(tmp_path: Path) -> None:
    model = classifier(says("no", "yes"), label2id={"NOT_ENTAILMENT": 0, "ENTAILMENT": 1})
    evaluation = evaluate(model, task="glue/rte", data=rte(tmp_path))
    assert (evaluation.score, evaluation.label_order) == (75.0, "name")


def test_foreign_label_names_are_warned_of(tmp_path: Path) -> None:
    model = classifier(says("yes", "no"), label2id={"ja": 0, "nein": 1})
    with pytest.warns(OctavoWarning, match="matched by index"):
        assert evaluate(model, task="glue/rte", data=rte(tmp_path)).score == 75.0


def test_stsb_scores_clamped_logits_with_two_correlations(tmp_path: Path) -> None:
    # -3 and 9 lie outside of [0, 5]: clamped, the logits equal the labels
    values = {"aaaa": -3.0, "aa": 2.5, "a": 9.0}
    model = classifier(lambda text: {"logits": [values[text[0]]]}, num_labels=1)
    evaluation = evaluate(model, task="glue/stsb", data=stsb(tmp_path))
    assert evaluation.metrics == {"pearson": pytest.approx(100.0), "spearman": pytest.approx(100.0)}
    assert evaluation.score == pytest.approx(100.0)
    assert evaluation.label_order is None


def test_similarity_scores_a_bare_encoder(tmp_path: Path) -> None:
    angles = {"aaaa": 0.0, "b": 3.0, "aa": 0.0, "bb": 1.5, "a": 0.0, "c": 0.1}
    model = FakeEncoder(
        lambda text: {"last_hidden_state": [[math.cos(angles[str(text)]), math.sin(angles[str(text)])]]}
    )
    evaluation = evaluate(model, task="similarity/stsb", data=stsb(tmp_path))
    assert evaluation.metrics == {"spearman": pytest.approx(100.0)}
    assert (evaluation.task, evaluation.examples, evaluation.partial) == ("similarity/stsb", 3, True)


def test_without_data_the_task_comes_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"sentence1": ["A.", "B."], "sentence2": ["yes", "no"], "label": [0, 1]}
    hub = SimpleNamespace(load_dataset=lambda *names, split: table)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    evaluation = evaluate(classifier(says("yes", "no")), task="glue/rte")
    assert evaluation.score == 100.0
    assert evaluation.source == "hub:nyu-mll/glue/rte/validation"


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("glue/rte", FakeEncoder(hidden()), r"sequence-classification head with 2 labels; fake has no head"),
        ("glue/mnli", classifier(hidden()), r"with 3 labels; fake has a sequence-classification head with 2"),
        ("glue/stsb", classifier(hidden()), r"with 1 label \(regression\); fake has .* with 2 labels"),
        ("glue/rte", FakeEncoder(hidden(), head="masked-lm"), "fake has a masked-lm head"),
        ("similarity/stsb", classifier(hidden()), "needs a bare encoder; fake has a sequence-classification"),
    ],
    ids=["bare", "three-labels", "regression", "masked-lm", "similarity"],
)
def test_a_head_that_does_not_fit_is_refused(task: str, model: FakeEncoder, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        evaluate(model, task=task, data="unused")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give against and texts for fidelity, or a task"),
        ({"texts": TEXTS}, "Give against and texts for fidelity"),
        ({"against": FakeEncoder(hidden())}, "Give against and texts for fidelity"),
        ({"task": "glue/rte", "texts": TEXTS}, "A task brings its own texts"),
        ({"data": "folder"}, "data and split belong to a task"),
        ({"task": "glue/rte", "batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"against": FakeEncoder(hidden()), "texts": "text"}, "texts is a single string; give a list"),
        ({"against": FakeEncoder(hidden()), "texts": []}, "at least one text"),
    ],
    ids=["nothing", "texts", "against", "both", "data", "batch-size", "string", "empty"],
)
def test_arguments_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(OctavoError, match=message):
        evaluate(FakeEncoder(hidden()), **options)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (classifier(hidden()), "fake has the head encoder, fake sequence-classification"),
        (FakeEncoder(hidden(), name="r", vocab_size=9), "fake has 100 token ids, r 9; .* same tokenizer"),
        (
            FakeEncoder(hidden(), name="r", inputs=("token_type_ids",)),
            "r reads token_type_ids, which fake has not",
        ),
    ],
    ids=["head", "vocabulary", "inputs"],
)
def test_models_that_cannot_be_compared_are_refused(reference: FakeEncoder, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        evaluate(FakeEncoder(hidden()), against=reference, texts=TEXTS)


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(DataError, match=r"Unknown task 'similarity/sts'.*did you mean 'similarity/stsb'"):
        evaluate(FakeEncoder(hidden()), task="similarity/sts")


def test_logits_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = classifier(lambda text: {"logits": [math.nan, 0.0]})
    with pytest.raises(ModelError, match="Logits of fake on glue/rte hold NaN"):
        evaluate(model, task="glue/rte", data=rte(tmp_path))


def test_every_task_is_listed() -> None:
    assert len(TASKS) == 10


@pytest.mark.glue
def test_always_the_frequent_class_scores_as_expected_on_real_cola_and_mrpc() -> None:
    folder = Path(os.environ["OCTAVO_GLUE"])
    model = classifier(lambda text: {"logits": [0.0, 1.0]})
    assert evaluate(model, task="glue/cola", data=folder).score == 0.0
    share = float(read_glue("glue/mrpc", folder).labels.mean())
    mrpc = evaluate(model, task="glue/mrpc", data=folder)
    assert not mrpc.partial
    assert mrpc.score == pytest.approx(50 * (share + 2 * share / (1 + share)))


def test_texts_are_cut_as_in_training(tmp_path: Path) -> None:
    model = classifier(says("yes", "no"))
    assert evaluate(model, task="glue/rte", data=rte(tmp_path)).max_length is None
    model.config.trained_max_length = 128
    assert evaluate(model, task="glue/rte", data=tmp_path).max_length == model.max_length == 128
    assert evaluate(model, task="glue/rte", data=tmp_path, max_length=64).max_length == model.max_length == 64
