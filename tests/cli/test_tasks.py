"""Users' own data on the command line: what works, and what is one sentence."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.tasks.reading.test_beir import write

FAST = ("--epochs", "1", "--learning-rate", "1e-3", "--batch-size", "16", "--device", "cpu")
COLUMNS = ("--text", "review", "--label", "stars")
WORDS = ("awful", "poor", "fair", "good", "great")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of five classes."""
    file = tmp_path_factory.mktemp("data") / "reviews.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        rows = [(f"{WORDS[n % 5]}, number {'abcdefgh'[n % 8]}{n}", n % 5 + 1) for n in range(60)]
        csv.writer(opened).writerows([("review", "stars"), *rows])
    return file


@pytest.fixture(scope="module")
def stars(tiny_bert_folder: Callable[..., Path]) -> Path:
    """A classifier that knows the five classes."""
    names = {str(number): str(number + 1) for number in range(5)}
    labels = {label: int(index) for index, label in names.items()}
    return tiny_bert_folder("BertForSequenceClassification", id2label=names, label2id=labels)


def document(run: Run, *arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    read: dict[str, Any] = json.loads(result.stdout)
    return read


def sentence(run: Run, *arguments: object) -> str:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_from_a_csv_of_five_classes_to_a_file_that_runs_in_integers(
    run: Run, tiny: Path, reviews: Path, tmp_path: Path
) -> None:
    trained, saved, file = tmp_path / "stars", tmp_path / "stars-int8", tmp_path / "stars-int8.onnx"
    result = run("finetune", tiny, "--data", reviews, *COLUMNS, "-o", trained, *FAST)
    assert result.exit_code == 0, result.output
    assert "are held out (octavo evaluate --split dev)" in result.stderr
    assert json.loads((trained / "config.json").read_text())["id2label"]["4"] == "5"
    calibration = f"{reviews}:review"
    result = run("quantize", trained, "--recipe", "int8", "--calibration", calibration, "-o", saved)
    assert result.exit_code == 0, result.output
    scored = document(run, "evaluate", saved, "--against", trained, "--data", reviews, *COLUMNS)
    assert scored["examples"] == 60 and set(scored["agreement"]) == {"agreement"}
    assert run("export", saved, "-o", file).exit_code == 0
    of_file = document(run, "evaluate", file, "--tokenizer", saved, "--data", reviews, *COLUMNS)
    assert of_file["metrics"]["accuracy"] == pytest.approx(scored["metrics"]["accuracy"], abs=10)
    quick = ("--seconds", 0, "--batches", 1, "--lengths", 8, "--no-memory")
    measured = document(run, "bench", trained, file, "--data", reviews, *COLUMNS, *quick)
    assert measured["rows"][0]["score"] == pytest.approx(scored["reference"]["accuracy"])
    assert measured["rows"][1]["score"] == pytest.approx(of_file["score"])


def test_what_training_held_out_is_a_split_of_the_file(run: Run, stars: Path, reviews: Path) -> None:
    counts = [
        document(run, "evaluate", stars, "--data", reviews, *COLUMNS, "--split", split)["examples"]
        for split in ("train", "dev")
    ]
    assert sum(counts) == 60 and 0 < counts[1] < counts[0]


def test_qat_compare_and_diagnose_take_the_same_data(
    run: Run, stars: Path, reviews: Path, texts: Path, tmp_path: Path
) -> None:
    data = ("--data", reviews, *COLUMNS)
    trained = document(run, "qat", stars, "--recipe", "w8a8-qat", *data, "-o", tmp_path / "qat", *FAST)
    assert set(trained["metrics"]) == {"accuracy", "f1-macro", "matthews"}
    assert trained["score"] == trained["metrics"]["accuracy"]
    compared = document(run, "compare", stars, "--recipes", "int8", "--calibration", texts, *data)
    assert compared["task"]["kind"] == "classification" and all("score" in row for row in compared["rows"])
    result = run(
        "diagnose", stars, "--texts", texts, *data, "--sensitivity", "none", "--no-attention", "--json"
    )
    assert result.exit_code == 0, result.output


def test_pairs_with_numbers_train_an_embedder_as_similarity(run: Run, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.csv"
    rows = [(f"{WORDS[n % 5]} one", f"{WORDS[n % 3]} two {n}", n % 4 / 2) for n in range(40)]
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("first", "second", "score"), *rows])
    columns = ("--text", "first", "--text", "second", "--label", "score")
    trained = document(
        run, "qat", tiny, "--recipe", "w8a8-qat", "--data", file, *columns, "-o", tmp_path / "q", *FAST
    )
    assert set(trained["metrics"]) == {"spearman", "pearson"}


def test_a_task_file_says_it_once(run: Run, stars: Path, reviews: Path, tmp_path: Path) -> None:
    file = tmp_path / "stars.yaml"
    file.write_text(f"kind: classification\ndev: {reviews}\ntext: review\nlabel: stars\nname: stars\n")
    scored = document(run, "evaluate", stars, "--task", file)
    assert (scored["task"], scored["examples"], scored["source"]) == ("stars", 60, "reviews.csv")
    assert "the task file names the columns; leave out --text and --label" in sentence(
        run, "evaluate", stars, "--task", file, *COLUMNS
    )


def test_files_of_options_stand_in_for_those_of_a_task_file(
    run: Run, tiny: Path, stars: Path, reviews: Path, tmp_path: Path
) -> None:
    lines = reviews.read_text(encoding="utf-8").splitlines()
    some, others = tmp_path / "some.csv", tmp_path / "others.csv"
    some.write_text("\n".join(lines[:41]) + "\n")
    others.write_text("\n".join([lines[0], *lines[41:]]) + "\n")
    file = tmp_path / "stars.yaml"
    file.write_text(f"kind: classification\ntrain: {reviews}\ntext: review\nlabel: stars\n")
    given = ("--task", file, "--data", some, "--dev", others)
    trained = document(run, "finetune", tiny, *given, "-o", tmp_path / "out", *FAST)
    assert [trained["data"][split]["examples"] for split in ("train", "dev")] == [40, 20]
    trained = document(run, "finetune", tiny, "--task", file, "--dev", others, "-o", tmp_path / "all", *FAST)
    assert [trained["data"][split]["examples"] for split in ("train", "dev")] == [60, 20]
    assert document(run, "evaluate", stars, "--task", file, "--data", some)["examples"] == 40
    held = document(run, "evaluate", stars, "--task", file, "--data", some, "--split", "dev")["examples"]
    assert 0 < held < 20
    search = tmp_path / "search.yaml"
    search.write_text(f"kind: retrieval\ndev: {write(tmp_path / 'beir')}\n")
    assert (
        "int8/ndcg@10"
        in document(run, "evaluate", tiny, "--task", search, "--vectors", "float,int8")["metrics"]
    )
    told = sentence(run, "evaluate", stars, "--task", file, "--vectors", "int8")
    assert "classification does not read --vectors" in told


def test_a_folder_to_search_with_vectors_in_8_bits(run: Run, tiny: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "beir")
    scored = document(run, "evaluate", tiny, "--data", folder, "--vectors", "float,int8", "--against", tiny)
    assert scored["task"] == "retrieval" and scored["agreement"]["top_ten"] == 100.0
    assert "int8/ndcg@10" in scored["metrics"]
    shown = run("evaluate", tiny, "--data", folder, "--vectors", "float,int8", "--against", tiny).stdout
    assert "same ten documents, int8" in shown and "same ten documents, both models" in shown


def test_embedders_learn_to_find_and_to_rerank(run: Run, tiny: Path, tmp_path: Path) -> None:
    folder, rows = write(tmp_path / "beir"), tmp_path / "candidates.jsonl"
    (folder / "qrels" / "train.tsv").write_text((folder / "qrels" / "test.tsv").read_text())
    rows.write_text('{"query": "town", "positive": ["Rome"], "negative": ["a river"]}\n' * 4)
    for data, metric in ((folder, "ndcg@10"), (rows, "mrr@10")):
        given = ("--data", data, *(("--dev", data) if data is rows else ()))
        out = tmp_path / f"trained-{metric[:3]}"
        trained = document(run, "qat", tiny, "--recipe", "w8a8-qat", *given, "-o", out, *FAST)
        assert trained["metrics"][metric] == pytest.approx(
            document(run, "evaluate", out, "--data", data)["metrics"][metric]
        )
    assert run("finetune", tiny, "--data", folder, "-o", tmp_path / "tuned", *FAST).exit_code == 0


def test_taggers_are_fine_tuned_and_scored_by_entities(run: Run, tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "ner.conll"
    file.write_text(
        "anna B-PER\nis O\nin O\nrome B-LOC\n\n" * 3
        + "who O\n\n"
        + "".join(f"x{'abcdefghij'[n]} O\n\n" for n in range(10))
    )
    trained = document(run, "finetune", tiny, "--data", file, "--dev", file, "-o", tmp_path / "ner", *FAST)
    assert list(trained["metrics"]) == ["f1", "precision", "recall", "accuracy"]
    scored = document(run, "evaluate", tmp_path / "ner", "--data", file)
    assert scored["metrics"] == pytest.approx(trained["metrics"])


def test_readers_are_fine_tuned_and_scored_by_answers(run: Run, tiny: Path, tmp_path: Path) -> None:
    rows = [{"question": "who?", "context": f"anna {x} is here.", "answers": [f"anna {x}"]} for x in "abcdef"]
    file = tmp_path / "qa.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    trained = document(run, "finetune", tiny, "--data", file, "--dev", file, "-o", tmp_path / "qa", *FAST)
    assert list(trained["metrics"]) == ["f1", "exact"]
    assert document(run, "evaluate", tmp_path / "qa", "--data", file)["metrics"] == trained["metrics"]


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"text,stars\na,1\n", "line 2: no column 'review'; there are text, stars"),
        (b"review,stars\n ,1\n", "line 2: the text in column 'review' is empty"),
        (b"review,stars\ncaf\xe9,1\n", "line 2: byte 4 of the line (0xe9) is not UTF-8"),
        (b'review,stars\na,1\n"b,2\n', "line 3: the quotes of the row that begins here are broken"),
        (b"review,stars\na,1\nb,9\n", "line 3: label '9' is none of those that"),
        (b"review,stars\na,\n", "line 2: the label in column 'stars' is empty"),
    ],
    ids=["missing column", "empty text", "other encoding", "broken quotes", "unseen label", "no label"],
)
def test_a_table_that_is_wrong_is_one_sentence(
    run: Run, stars: Path, tmp_path: Path, content: bytes, expected: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes(content)
    assert f"{file}, {expected}" in sentence(run, "evaluate", stars, "--data", file, *COLUMNS)


def test_training_on_what_cannot_be_trained_on_leaves_nothing(
    run: Run, tiny: Path, stars: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    one = tmp_path / "one.csv"
    one.write_text("review,stars\n" + "".join(f"text {n},5\n" for n in range(40)))
    given = ("finetune", tiny, "-o", out, "--data")
    assert "one.csv: column 'stars' holds one class only (5)" in sentence(run, *given, one, *COLUMNS)
    good, dev = tmp_path / "good.csv", tmp_path / "dev.csv"
    good.write_text("review,stars\na,1\nb,2\n")
    dev.write_text("review,stars\na,1\nb,3\n")
    told = sentence(run, *given, good, "--dev", dev, *COLUMNS)
    assert "dev.csv, line 3: label '3' is none of those that" in told
    assert "train.tsv does not exist; there are test" in sentence(run, *given, write(tmp_path / "beir"))
    assert "There is nothing to train on" in sentence(run, "finetune", tiny, "-o", out)
    given = ("qat", stars, "--recipe", "w8a8-qat", "-o", out, "--data")
    assert "one.csv: column 'stars' holds one class only (5)" in sentence(run, *given, one, *COLUMNS)
    told = sentence(run, "qat", tiny, "--recipe", "w8a8-qat", "-o", out, "--data", good, *COLUMNS)
    assert "classification needs a sequence-classification head" in told and "has no head" in told
    assert not out.exists()


def test_labels_and_heads_are_looked_at_before_any_work(
    run: Run, tiny: Path, stars: Path, texts: Path, reviews: Path, tmp_path: Path
) -> None:
    bad, report, kept = tmp_path / "bad.csv", tmp_path / "report", tmp_path / "kept"
    bad.write_text("review,stars\na,1\nb,9\n")
    diagnose = ("diagnose", "--texts", texts, "-o", report, *COLUMNS)
    compare = ("compare", "--recipes", "int8", "--calibration", texts, "-o", kept, *COLUMNS)
    for command in (diagnose, compare):
        told = sentence(run, *command, stars, "--data", bad)
        assert "bad.csv, line 3: label '9' is none of those that" in told
        assert "has no head" in sentence(run, *command, tiny, "--data", reviews)
    assert not report.exists() and not kept.exists()


def test_other_files_that_are_wrong(run: Run, tiny: Path, stars: Path, tmp_path: Path) -> None:
    conll = tmp_path / "a.conll"
    conll.write_text("EU B-ORG\nrejects\n")
    assert "a.conll, line 2: 1 columns where the first word has 2" in sentence(
        run, "evaluate", tiny, "--data", conll
    )
    beir = write(tmp_path / "beir", "q1\td9\t1\n")
    assert "line 2: document 'd9' is not in corpus.jsonl" in sentence(run, "evaluate", tiny, "--data", beir)
    told = sentence(run, "evaluate", stars, "--data", write(tmp_path / "other"))
    assert "retrieval needs no head (an embedding model)" in told and "has a sequence-classification" in told
    assert "does not read --vectors" in sentence(
        run, "evaluate", stars, "--task", "classification", "--data", tmp_path / "a.csv", "--vectors", "int8"
    )
