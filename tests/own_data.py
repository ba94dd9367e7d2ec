"""Small files as users have them, for the snippets of docs/your-data.md."""

from __future__ import annotations

import csv
import json
from pathlib import Path

_SENTENCES = {
    "delivery": ("The parcel came {}.", "My order arrived {} and the box was open."),
    "price": ("It costs {} than anywhere else.", "The price went up {} I had paid."),
    "quality": ("The seam came apart {}.", "The fabric feels cheap {}."),
    "size": ("It is two sizes too small {}.", "The sleeves are too long {}."),
    "praise": ("I wear it {} and love it.", "The best I ever bought {}."),
}
_ENDS = ("last week", "again", "in spring", "after all", "at once", "for once", "by now", "this time")
_CITIES = ("Rome", "Lima", "Oslo", "Cairo", "Quito", "Seoul", "Dakar", "Hanoi")
_NAMES = ("Anna", "Peter", "Maria", "John", "Sofia", "David", "Elena", "Omar")


def write_own_data(folder: Path) -> None:
    """Write train.csv and test.csv (five classes), ner.conll, squad.json, candidates.jsonl and `search`."""
    texts = [
        (form.format(end), kind) for kind, forms in _SENTENCES.items() for end in _ENDS for form in forms
    ]
    _table(folder / "train.csv", texts[::2] + texts[1::4])
    _table(folder / "test.csv", texts[3::4])
    people = list(zip(_NAMES, _CITIES, strict=True))
    lines = [f"{name}\tB-PER\nlives\tO\nin\tO\n{city}\tB-LOC\n.\tO\n" for name, city in people]
    (folder / "ner.conll").write_text("\n".join(lines), encoding="utf-8")
    paragraphs = [_paragraph(name, city) for name, city in people]
    squad = {"version": "1.1", "data": [{"title": "people", "paragraphs": paragraphs}]}
    (folder / "squad.json").write_text(json.dumps(squad), encoding="utf-8")
    rows = [
        {
            "query": f"Where does {name} live?",
            "positive": [f"{name} lives in {city}."],
            "negative": _others(name),
        }
        for name, city in people
    ]
    (folder / "candidates.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    _search(folder / "search", people)


def _table(file: Path, rows: list[tuple[str, str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("review", "topic"), *rows])


def _paragraph(name: str, city: str) -> dict[str, object]:
    context = f"{name} lives in {city}, near the river, and works in a bakery."
    answers = [{"text": city, "answer_start": context.index(city)}]
    return {
        "context": context,
        "qas": [{"id": name, "question": f"Where does {name} live?", "answers": answers}],
    }


def _others(name: str) -> list[str]:
    return [
        f"{other} lives in {city}." for other, city in zip(_NAMES, _CITIES, strict=True) if other != name
    ][:3]


def _search(folder: Path, people: list[tuple[str, str]]) -> None:
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": name, "title": "", "text": f"{name} lives in {city}."} for name, city in people]
    queries = [{"_id": name, "text": f"In which city is {name}?"} for name, _ in people]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    judged = "".join(f"{name}\t{name}\t1\n" for name, _ in people)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
