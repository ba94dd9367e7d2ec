"""Data as users bring it, made of GLUE's files: five classes in CSV files, and a collection to search.

    python benchmarks/own_data.py classes --glue GLUE_DIR -o DIR    # train.csv and test.csv: text, source
    python benchmarks/own_data.py search --glue GLUE_DIR -o DIR     # a folder in BEIR's layout

The five classes are the data sets that sentences come from. The collection is QNLI's development set: every
sentence is a document, every question whose sentence answers it is a query with that one relevant document.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from pathlib import Path

SOURCES = {"cola": ("CoLA", 3, 0), "sst2": ("SST-2", 0, 1), "mrpc": ("MRPC", 3, 1), "stsb": ("STS-B", 7, 1)}
"""Folder, column of the sentence, lines of header; QNLI's questions are the fifth class."""


def column(file: Path, index: int, header: int = 1) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()[header:]
    return list(dict.fromkeys(line.split("\t")[index].strip() for line in lines if line.count("\t") >= index))


def write_classes(glue: Path, folder: Path, train: int, test: int) -> None:
    pools = {name: column(glue / place / "train.tsv", *where) for name, (place, *where) in SOURCES.items()}
    pools["qnli"] = column(glue / "QNLI" / "train.tsv", 1)
    rows = {"train": [], "test": []}
    for name, texts in pools.items():
        chosen = random.Random(0).sample(texts, train + test)
        rows["train"] += [(text, name) for text in chosen[:train]]
        rows["test"] += [(text, name) for text in chosen[train:]]
    for split, labelled in rows.items():
        random.Random(0).shuffle(labelled)
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "source"), *labelled])


def write_search(glue: Path, folder: Path) -> None:
    lines = (glue / "QNLI" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [fields for line in lines if len(fields := line.split("\t")) == 4]
    documents = {text: f"d{number}" for number, text in enumerate(dict.fromkeys(row[2] for row in rows))}
    answered = [(row[1], documents[row[2]]) for row in rows if row[3] == "entailment"]
    queries = {text: f"q{number}" for number, text in enumerate(dict.fromkeys(q for q, _ in answered))}
    write_lines(folder / "corpus.jsonl", [{"_id": i, "title": "", "text": t} for t, i in documents.items()])
    write_lines(folder / "queries.jsonl", [{"_id": i, "text": t} for t, i in queries.items()])
    (folder / "qrels").mkdir()
    judged = "".join(f"{queries[question]}\t{document}\t1\n" for question, document in answered)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")


def write_lines(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("classes", "search"))
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("-o", "--output", required=True, type=Path, help="a new folder")
    parser.add_argument("--train", type=int, default=200, help="texts of each class to train on")
    parser.add_argument("--test", type=int, default=60, help="texts of each class to score")
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    if options.what == "classes":
        write_classes(options.glue, options.output, options.train, options.test)
    else:
        write_search(options.glue, options.output)


if __name__ == "__main__":
    main()
