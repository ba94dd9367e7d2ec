from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.errors import DataError, ModelError, OctavoWarning
from octavo.tasks import Classification, MultiLabel, Regression, evaluate
from octavo.tasks.kinds.task import Running
from tests.tasks.fake import FakeEncoder, Text

ROWS = [{"review": f"{word} film", "stars": stars} for word, stars in (("bad", 1), ("fair", 3), ("good", 5))]
TASK = Classification(dev=ROWS, text="review", label="stars")


def model(
    names: tuple[str, ...], choose: Callable[[Text], int], head: str = "sequence-classification"
) -> FakeEncoder:
    """A classifier that names its outputs and picks one by a function of the text."""
    fake = FakeEncoder(
        lambda text: {"logits": [float(index == choose(text)) for index in range(len(names))]},
        head=head,
        num_labels=len(names),
    )
    fake.config.id2label = dict(enumerate(names))
    return fake


def by_word(text: Text) -> int:
    return {"bad": 2, "fair": 0, "good": 1}[str(text).split()[0]]


def test_labels_are_matched_by_name_whatever_the_order_of_outputs() -> None:
    result = evaluate(model(("3", "5", "1"), by_word), task=TASK)
    assert (result.score, result.metrics["f1-macro"], result.examples) == (100.0, 100.0, 3)
    assert (result.task, result.split, result.source) == ("classification", "dev", "list")


def test_case_and_hyphens_do_not_matter() -> None:
    rows = [{"text": "good", "label": "very good"}, {"text": "bad", "label": "BAD"}]
    fake = model(("bad", "Very-Good"), lambda text: int(text == "good"))
    assert evaluate(fake, task=Classification(dev=rows)).score == 100.0


def test_whole_numbers_are_one_label_however_a_table_writes_them() -> None:
    rows = [{"text": "a", "label": "1.0"}, {"text": "b", "label": 3.0}, {"text": "c", "label": "3"}]
    task = Classification(train=rows, dev=rows)
    assert task.output_labels(task.read("dev")) == ("1", "3")
    for names in (("1", "3"), ("1.0", "3.0")):  # a model that was trained elsewhere may have the latter
        assert evaluate(model(names, lambda text: int(text != "a")), task=task).score == 100.0


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
def test_a_label_that_is_missing_names_its_row_and_one_called_none_is_a_label(missing: object) -> None:
    rows = [{"text": "a", "label": "None"}, {"text": "b", "label": "nan"}]
    assert list(Classification(dev=rows).read().labels) == ["None", "nan"]
    with pytest.raises(DataError, match=r"row 3: the label in column 'label' is empty"):
        Classification(dev=[*rows, {"text": "c", "label": missing}]).read()


def test_outputs_without_names_stand_for_numbers_or_for_what_the_task_says() -> None:
    rows = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
    unnamed = model(("LABEL_0", "LABEL_1"), lambda text: int(text == "b"))
    assert evaluate(unnamed, task=Classification(dev=rows)).score == 100.0
    named = [{"text": "a", "label": "no"}, {"text": "b", "label": "yes"}]
    assert evaluate(unnamed, task=Classification(dev=named, labels=("no", "yes"))).score == 100.0
    with pytest.raises(
        ModelError, match=r"does not name its 2 outputs, the data has no, yes; say in a task file"
    ):
        evaluate(unnamed, task=Classification(dev=named))
    with pytest.raises(ModelError, match=r"1 labels are given \(no\), fake has 2 outputs"):
        evaluate(unnamed, task=Classification(dev=named, labels=("no",)))


def test_a_label_unseen_in_training_names_its_row() -> None:
    with pytest.raises(DataError, match=r"row 3: label '5' is none of those that fake knows \(1, 3\)"):
        evaluate(model(("1", "3"), lambda text: 0), task=TASK)


def test_numbers_of_outputs_are_taken_where_the_task_says_so() -> None:
    rows = [{"text": "a", "label": 0}, {"text": "b", "label": 1}]
    fake = model(("negative", "positive"), lambda text: int(text == "b"))
    with pytest.raises(DataError, match=r"row 1: label '0' is none.*say so in a task file: labels: \[0, 1"):
        evaluate(fake, task=Classification(dev=rows))
    assert evaluate(fake, task=Classification(dev=rows, labels=("0", "1"))).score == 100.0


def test_agreement_of_two_models_needs_no_look_at_labels() -> None:
    result = evaluate(
        model(("3", "5", "1"), by_word), task=TASK, against=model(("1", "3", "5"), lambda text: 0)
    )
    assert result.against == "fake" and result.reference["accuracy"] == pytest.approx(100 / 3)
    assert result.agreement == {"agreement": pytest.approx(100 / 3)}


def test_heads_that_do_not_fit_are_said() -> None:
    bare = model(("1", "3"), lambda text: 0, head="encoder")
    with pytest.raises(
        ModelError, match="classification needs a sequence-classification head; fake has no head"
    ):
        evaluate(bare, task=TASK)
    with pytest.raises(
        ModelError,
        match="needs a head with at least 2 outputs; fake has 1; if its labels are numbers, say --task regr",
    ):
        evaluate(model(("1",), lambda text: 0), task=TASK)
    with pytest.raises(ModelError, match="regression needs a head with 1 output; fake has 2"):
        evaluate(model(("1", "3"), lambda text: 0), task=Regression(dev=ROWS, text="review", label="stars"))


def test_a_model_of_several_labels_is_warned_of_where_one_is_scored() -> None:
    fake = model(("1", "3", "5"), by_word)
    fake.config.problem_type = "multi_label_classification"
    with pytest.warns(
        OctavoWarning, match="the most likely one is scored, --task multi-label scores them all"
    ):
        evaluate(fake, task=TASK)


def test_labels_that_are_all_equal_are_warned_of() -> None:
    rows = [{"text": word, "label": 1.5} for word in "abc"]
    fake = model(("score",), lambda text: 0)
    with pytest.warns(OctavoWarning, match=r"list: all 3 labels are 1\.5; nothing correlates with them"):
        assert evaluate(fake, task=Regression(dev=rows)).score == 0.0


def test_one_class_only_cannot_be_trained_on() -> None:
    task = Classification(train=[{"text": f"text {number}", "label": "a"} for number in range(40)])
    with pytest.raises(
        DataError, match=r"list: column 'label' holds one class only \(a\); training needs two"
    ):
        task.output_labels(task.read("train"))


def test_what_is_held_out_is_decided_by_the_text() -> None:
    rows = [{"text": f"text {number % 50}", "label": number % 2} for number in range(100)]
    task = Classification(train=rows, holdout=0.3)
    train, dev = (set(task.read(split).texts) for split in ("train", "dev"))
    assert train and dev and not train & dev and len(train | dev) == 50
    assert set(Classification(train=rows[::-1], holdout=0.3).read("dev").texts) == dev
    with pytest.raises(
        DataError, match="list has 1 examples, of which dev would get none; give a file for dev"
    ):
        Classification(train=rows[:1]).read("dev")
    with pytest.raises(DataError, match="classification has no split 'test'; choose train or dev"):
        task.read("test")
    with pytest.raises(DataError, match="classification has no data for dev"):
        Classification().read("dev")


def test_an_empty_label_is_an_error() -> None:
    with pytest.raises(DataError, match="row 1: the label in column 'label' is empty"):
        Classification(dev=[{"text": "a", "label": " "}]).read()


# -- several labels, and numbers -----------------------------------------------------------------------------


def marking(text: Text) -> dict[str, list[float]]:
    return {"logits": [2.0 * (name in str(text)) - 1 for name in ("red", "blue")]}


def test_label_sets_as_lists_as_names_and_as_columns() -> None:
    fake = FakeEncoder(marking, head="sequence-classification")
    fake.config.id2label = {0: "red", 1: "blue"}
    lists = [{"text": "red and blue", "label": ["blue", "red"]}, {"text": "red", "label": ["blue"]}]
    names = [row | {"label": "; ".join(row["label"])} for row in lists]
    columns = [{"text": "red and blue", "red": 1, "blue": "1"}, {"text": "red", "red": 0, "blue": 1}]
    for rows, label in ((lists, "label"), (names, "label"), (columns, ("red", "blue"))):
        metrics = evaluate(fake, task=MultiLabel(dev=rows, label=label)).metrics
        assert metrics["exact"] == 50.0 and metrics["f1-micro"] == pytest.approx(100 * 4 / 6)
    with pytest.raises(DataError, match="row 1: 7 in column 'red' is neither 0 nor 1"):
        MultiLabel(dev=[columns[0] | {"red": 7}], label=("red", "blue")).read()


def test_numbers_are_correlated() -> None:
    fake = FakeEncoder(
        lambda text: {"logits": [len(str(text))]}, head="sequence-classification", num_labels=1
    )
    rows = [{"text": "a" * size, "label": str(score)} for size, score in ((1, 0.5), (2, 1.0), (5, 7.5))]
    result = evaluate(fake, task=Regression(dev=rows), against=fake)
    assert result.metrics["spearman"] == pytest.approx(100) and result.agreement["rank_correlation"] == 100
    with pytest.raises(DataError, match="row 1: 'high' in column 'label' is no number"):
        Regression(dev=[{"text": "a", "label": "high"}]).read()


# -- training ------------------------------------------------------------------------------------------------


def test_training_gets_the_index_of_each_class_among_the_outputs(
    tiny_bert_folder: Callable[..., Path],
) -> None:
    from octavo.methods import load

    names = {0: "good", 1: "bad"}
    folder = tiny_bert_folder("BertForSequenceClassification", id2label=names, label2id={"good": 0, "bad": 1})
    encoder = load(folder)
    task = Classification(dev=[{"text": "x", "label": "bad"}, {"text": "y", "label": "good"}])
    data = task.labelled(encoder, task.read(), 16)
    assert data.labels.tolist() == [1, 0]
    inputs, labels = data.batch(torch.arange(2), 3)
    with torch.no_grad():
        outputs = encoder.graph(*inputs)
    expected = torch.nn.functional.cross_entropy(outputs[0], labels)
    assert float(data.loss(outputs, inputs, labels)) == pytest.approx(float(expected))
    best = outputs[0].argmax(-1).tolist()
    assert task.predict(encoder, task.read(), Running()) == [names[index] for index in best]
