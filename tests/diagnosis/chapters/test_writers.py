from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from octavo.diagnosis import Finding, diagnose
from octavo.diagnosis.chapters.remedies import Remedies
from octavo.diagnosis.chapters.writers import Writers, WritersChapter, draw_writers, sentence
from octavo.diagnosis.trials import Trial
from octavo.diagnosis.writers import Product, Writer
from octavo.fidelity import Cosine, Quality
from octavo.graph import Encoder
from octavo.methods import load
from tests.diagnosis.conftest import COLUMN, LARGE, PLANTED


def products(*shares: float, weight: float = 15.6) -> tuple[Product, ...]:
    return tuple(
        Product(column=2051 + n, weight=weight, input=72.5, share=share) for n, share in enumerate(shares)
    )


ONE = Writer(
    site="layers.5.ffn_output",
    dimension=138,
    times=80.0,
    text=3,
    position=0,
    token="<s>",
    value=1203.0,
    written=1203.0,
    weight="layers.5.ffn_output.weight",
    products=products(0.94),
    bias=0.0,
    back=0.02,
    row_largest=15.6,
    median=0.03,
    limit=20.0,
    input_median=0.1,
)
SUM = replace(ONE, site="layers.5.ffn_residual", value=1250.0, times=90.0)


@pytest.mark.parametrize(
    ("writer", "said"),
    [
        (
            ONE,
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', 94 % of it written by one weight: "
            "[138, 2051] of layers.5.ffn_output.weight is 15.6 beside a median of 0.03 in its matrix.",
        ),
        (
            SUM,
            "Dimension 138 of layers.5.ffn_residual reaches 1250 at '<s>', where layers.5.ffn_output.weight "
            "writes 1203, 94 % of it written by one weight: [138, 2051] is 15.6 beside a median of 0.03 in "
            "its matrix.",
        ),
        (
            replace(ONE, limit=1.73),
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', 94 % of it written by one weight: "
            "[138, 2051] of layers.5.ffn_output.weight is 15.6 beside a median of 0.03 in its matrix, cut to "
            "1.73 by least squared error.",
        ),
        (
            replace(ONE, products=products(0.45, 0.4), back=0.25),
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', 85 % of it written by 2 weights, "
            "45 % by the first of them: [138, 2051] of layers.5.ffn_output.weight is 15.6 beside a median of "
            "0.03 in its matrix; others take 25 % back.",
        ),
        (
            replace(ONE, products=products(0.94, weight=0.05)),
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', 94 % of it written by one input: "
            "[138, 2051] of layers.5.ffn_output.weight is only 0.05 beside a median of 0.03 in its matrix, "
            "but reads 72.5 beside a median of 0.1.",
        ),
        (
            replace(ONE, products=products(0.1, 0.1), bias=0.8),
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', 80 % of it the bias.",
        ),
        (
            replace(ONE, products=products(0.1, 0.1), row_largest=-0.3),
            "Dimension 138 of layers.5.ffn_output reaches 1203 at '<s>', the sum of many products: the 2 "
            "largest are 20 % of it, and the largest weight of that row is -0.3 beside a median of 0.03 in "
            "its matrix.",
        ),
    ],
    ids=["one weight", "cut", "in a sum", "a few weights", "an input", "the bias", "spread"],
)
def test_what_is_said(writer: Writer, said: str) -> None:
    assert sentence(writer) == said


def test_a_row_is_told_once_at_the_layer_that_writes_it() -> None:
    other = replace(ONE, dimension=3, times=85.0, products=products(0.1))
    writers = Writers(writers=(ONE, other, SUM))
    cut = Writers(writers=(replace(ONE, limit=1.73), other, replace(SUM, limit=1.73)))
    assert writers.rows == [ONE, other]  # in the place of the sum, which is the worst
    assert writers.weights == () and cut.weights == ("layers.5.ffn_output.weight",)
    assert Writers(writers=(replace(other, limit=1.73),)).weights == ()  # spread


def finding(cut: float | None, *writers: Writer) -> Finding:
    def quality(cosine: float) -> Quality:
        return Quality(cosine=Cosine(mean=cosine, worst=cosine), sqnr=10.0)

    values = {"w8a8": 0.5} | ({} if cut is None else {"w8a8-cut": cut})
    trials = tuple(Trial(recipe=name, quality=quality(value)) for name, value in values.items())
    results = {"writers": Writers(writers=writers), "remedies": Remedies(trials=trials)}
    (found,) = WritersChapter(cast(Any, SimpleNamespace(results=results))).findings()
    return found


@pytest.mark.parametrize("cut", [0.9, 0.4], ids=["better", "worse"])
def test_what_cutting_does_is_told_whether_it_helps_or_not(cut: float) -> None:
    found = finding(cut, ONE, SUM, replace(ONE, dimension=3, times=1.0, products=products(0.1)))
    assert (found.level, found.title) == ("note", "A few large weights write the worst outlier")
    counted = "1 from at most 8 large weights each, 1 from many products together."
    assert f"2 outliers come from linear layers: {counted}" in found.text
    assert found.text.endswith(f"w8a8 keeps cosine {cut:.3f} (w8a8-cut) instead of cosine 0.500.")
    assert len(found.evidence) == 1 and "dimension 3" in found.evidence[0].lower()


def test_where_nothing_was_cut_nothing_is_told_of_it() -> None:
    found = finding(None, replace(ONE, bias=0.9, products=()))
    assert found.title == "A bias writes the worst outlier" and "w8a8" not in found.text


def test_text_of_the_data_is_only_text() -> None:
    hostile = replace(ONE, token="<script>alert(1)</script>")
    chapter = WritersChapter(cast(Any, SimpleNamespace(results={"writers": Writers(writers=(hostile,))})))
    drawn = draw_writers([hostile])
    page = chapter.section({"writers": drawn}) + drawn.document()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page


# -- whole diagnoses -----------------------------------------------------------------------------------------


def test_the_planted_weight_is_named_cut_and_shown(
    written: Encoder, texts: list[str], tmp_path: Path
) -> None:
    found = diagnose(written, texts, output=tmp_path / "out", sensitivity=())
    assert found.report is not None
    where = f"[{PLANTED}, {COLUMN}] of layers.1.ffn_output.weight is 2 beside a median of 0.0135"
    told = next(
        each for each in found.findings if each.title == "A few large weights write the worst outlier"
    )
    assert where in told.text and "by one weight" in told.text
    trials = {trial.recipe: trial.quality for trial in found.trials}
    assert list(trials) == ["w8a8", "w8a8-peg6", "w8a8-mp", "w8a8-cut", "int8"]
    page = found.report.read_text(encoding="utf-8")
    assert '<section id="writers"' in page and f"layers.1.ffn_output.weight [{PLANTED}, {COLUMN}]" in page
    assert "<th scope=row>w8a8-cut</th>" in page
    document = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    first = next(each for each in document["writers"] if each["site"] == "layers.1.ffn_output")
    assert (first["cause"], first["dimension"], first["products"][0]["weight"]) == ("weights", PLANTED, LARGE)
    assert first["one"] > 0.9 and first["ratio"] == pytest.approx(LARGE / first["median"])
    assert [trial["make"] is not None for trial in document["trials"]] == [False] * 3 + [True, False]


def test_outliers_of_a_whole_row_are_spread_and_cut_nothing(
    tiny_bert_folder: Callable[..., Path], texts: list[str]
) -> None:
    encoder = load(tiny_bert_folder(hidden_size=64, intermediate_size=1024))
    with torch.no_grad():
        encoder.graph.get_parameter("encoder.layer.1.output.dense.weight")[PLANTED] *= 5000
    found = diagnose(encoder, texts, sensitivity=())
    assert {each.dimension for each in found.writers} == {PLANTED}
    assert {each.cause for each in found.writers} == {"spread"}
    assert any(each.title == "No few weights write the worst outlier" for each in found.findings)
    assert "w8a8-cut" not in [trial.recipe for trial in found.trials]


def test_a_balanced_model_has_no_writers(plain: Encoder, texts: list[str], tmp_path: Path) -> None:
    found = diagnose(plain, texts, output=tmp_path / "out", sensitivity=())
    assert found.writers == () and found.to_dict()["writers"] == [] and found.report is not None
    assert 'id="writers"' not in found.report.read_text(encoding="utf-8")


def test_a_second_run_traces_nothing_again(
    written: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = diagnose(written, texts, output=tmp_path / "out", sensitivity=())
    monkeypatch.setattr("octavo.diagnosis.chapters.writers.find_writers", None)
    again = diagnose(written, texts, output=tmp_path / "out", sensitivity=())
    assert again.writers == first.writers and again.findings == first.findings
