from __future__ import annotations

import pytest

from octavo.diagnosis.chapters.sensitivity import TABLE_2
from octavo.errors import SpecError
from octavo.experiments.paper import FINETUNING, QAT_4_BITS
from octavo.experiments.settings import load_settings, settings_for
from octavo.experiments.table import TableRow, load_table, parse_table, table_names
from octavo.graph import attach
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.quantized import qat
from octavo.spec import AdaRound, Mse, PerEmbedding, PerGroup, PerTensor, Recipe, RunningRanges
from octavo.spec.presets import recipe
from tests.graph import families
from tests.methods import tiny

HEAD = "octavo: 1\nname: t\ntitle: T\nsource: nowhere\n"
ROW = "rows: [{name: a, title: A, method: quantize, recipe: w8a8, "


def table_row(table: str, name: str) -> TableRow:
    return next(row for row in load_table(table).rows if row.name == name)


def built(table: str, name: str, task: str = "stsb", layers: int = 2) -> Recipe:
    made = table_row(table, name).on(task).build_recipe(layers)
    assert made is not None
    return made


@pytest.mark.parametrize("name", table_names())
def test_every_row_of_every_table_has_a_recipe(name: str) -> None:
    table = load_table(name)
    assert len({row.name for row in table.rows}) == len(table.rows)
    for row in table.rows:
        for task in table.tasks:
            made = row.on(task).build_recipe(layers=12)
            assert (made is None) is (row.method == "finetune")


def test_the_papers_numbers_are_consistent() -> None:
    for name in ("initial", "main", "low-bit-full"):
        for row in load_table(name).rows:
            scores = [value for task, value in row.paper.items() if task != "mean"]
            if len(scores) == 8:
                # medians of means are not means of medians
                assert sum(scores) / 8 == pytest.approx(row.paper["mean"], abs=0.1), row.name


def test_rows_shared_by_tables_are_the_same_experiment() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for name in table_names():
        for row in load_table(name).rows:
            for task in load_table(name).tasks:
                here = row.on(task)
                what = (
                    here.recipe,
                    repr(here.estimators),
                    here.overrides,
                    here.passes,
                    here.ranges,
                    here.batch_size,
                    here.batches,
                    here.method,
                )
                assert seen.setdefault(f"{row.name}/{task}", what) == what, row.name


def test_a_row_changes_its_recipe() -> None:
    row = TableRow(
        name="r",
        title="R",
        method="quantize",
        recipe="w8a8",
        estimators={"weights": "mse"},
        overrides=({"sites": ["layers.-1.ffn_residual"], "bits": 16},),
    )
    made = row.build_recipe(layers=6)
    assert made is not None and made.weights is not None
    assert made.weights.estimator == Mse()
    found = made.spec("layers.5.ffn_residual", "activation")
    assert found is not None and found.bits == 16


def test_one_task_may_differ() -> None:
    row = next(row for row in load_table("main").rows if row.name == "w8a8-mp")
    assert row.on("stsb").recipe == "w8a8-mp-output" and row.on("rte").recipe == "w8a8-mp"


@pytest.mark.parametrize("family", ["bert", "distilbert", "mobilebert"])
def test_table_2_leaves_out_what_the_diagnosis_calls_so(family: str) -> None:
    """One definition of each line, by roles that every family has: one embedding sum has no number."""
    encoder = families.captured(family)[1]
    everything = set(attach(encoder, built("leave-one-out", "loo-all")).quantizers)
    titles = {
        title.removeprefix("all, except "): row
        for row in load_table("leave-one-out").rows
        if (title := row.title).startswith("all, except ")
    }
    assert set(titles) == set(TABLE_2.values())
    for role, title in TABLE_2.items():
        left = everything - set(attach(encoder, built("leave-one-out", titles[title].name)).quantizers)
        assert left == {site.name for site in encoder.activation_sites if site.role == role} != set(), title


def test_self_attention_output_is_what_the_product_with_the_values_gives() -> None:
    assert TABLE_2["attention_context"] == "self-attention output" and "attention_output" not in TABLE_2


def test_per_embedding_covers_every_tensor_as_wide_as_the_model() -> None:
    """The paper's row 768 (= per-embd.): all but scores, probabilities, the FFN's inside and the logits."""
    encoder = families.captured("bert", families.usual_head("bert"))[1]
    model = attach(encoder, built("peg", "w8a8-per-embedding-all"))
    by_kind = {PerEmbedding(): set[str](), PerTensor(): set[str]()}
    for quantizer in model.quantizers.values():
        if quantizer.site.kind == "activation":
            by_kind[quantizer.spec.granularity].add(quantizer.site.role)
    assert by_kind[PerTensor()] == {"attention_scores", "attention_probs", "ffn_hidden", "logits"}
    assert by_kind[PerEmbedding()] >= {
        "embedding_sum",
        "embedding_norm",
        "query",
        "attention_context",
        "pooler",
    }


@pytest.mark.parametrize("table", ["mixed-precision", "peg", "main"])
def test_rows_of_section_5_have_a_twin_calibrated_as_the_paper_does(table: str) -> None:
    """Ranges of one sequence, and of weights by the estimator that is best on the task."""
    rows = {row.name: row for row in load_table(table).rows}
    twins = {name.removesuffix("-single"): row for name, row in rows.items() if row.ranges == "single"}
    expected = {
        "mixed-precision": {"w8a8", "w8a8-mp-residual", "w8a8-mp-ffn", "w8a8-mp-output"},
        "peg": {name for name in rows if not name.endswith("-single")} - {"fp32"},
        "main": {"w8a8-mp", "w8a8-peg6"},
    }
    assert set(twins) == expected[table]
    for name, twin in twins.items():
        plain = rows[name]
        assert twin.paper == plain.paper and twin.overrides == plain.overrides and twin.recipe == plain.recipe


def test_table_1_has_a_row_of_the_best_ranges_for_each_of_its_own() -> None:
    best = {row.name: row.recipe for row in load_table("initial").rows if row.ranges == "best"}
    assert best == {"w8a8-best": "w8a8", "w32a8-best": "w32a8", "w8a32-best": "w8a32"}
    assert table_row("main", "w8a8-best").paper == table_row("initial", "w8a8").paper


def test_trained_rows_of_qbert_have_the_papers_numbers() -> None:
    eight = table_row("main", "qbert-w8a8-qat")
    assert eight.method == "train" and eight.seeds == 3 and eight.paper == {"sst2": 92.88, "mnli": 83.87}
    grouped = table_row("low-bit-full", "qbert-w4a8-qat")
    assert grouped.method == "train" and grouped.paper == {"sst2": 92.66, "mnli": 84.03}
    plain = table_row("low-bit-full", "qbert-w4a8-qat-ungrouped")
    assert plain.method == "train" and plain.paper == {"sst2": 85.67, "mnli": 76.85}
    encoder = families.captured("bert", families.usual_head("bert"))[1]
    recipes = {name: built("low-bit-full", name) for name in (grouped.name, plain.name)}
    for name, granularity in ((grouped.name, PerGroup(groups=128, at_most=True)), (plain.name, PerTensor())):
        model = attach(encoder, recipes[name])
        weights = [q for q in model.quantizers.values() if q.site.kind == "weight"]
        assert {quantizer.spec.granularity for quantizer in weights} == {granularity}
        assert "logits.weight" not in model.quantizers and "logits" not in model.quantizers
        bits = {quantizer.site.role: quantizer.spec.bits for quantizer in weights}
        assert bits == {"linear_weight": 4, "embedding_weight": 8}
        assert recipes[name].passes == (RunningRanges(),)


@pytest.mark.parametrize("table", ["low-bit", "low-bit-full"])
def test_adaround_is_shown_with_and_without_flips_and_as_long_as_in_the_paper(table: str) -> None:
    name = "w4a32-adaround"
    passes = {row: built(table, row).passes for row in (name, f"{name}-no-flips", f"{name}-10k")}
    assert passes[name] == (AdaRound(iterations=1000),)
    assert passes[f"{name}-no-flips"] == (AdaRound(iterations=1000, flips=False),)
    assert passes[f"{name}-10k"] == (AdaRound(iterations=10_000),)
    assert built(table, f"{name}-10k-no-flips").passes == (AdaRound(iterations=10_000, flips=False),)
    for row in load_table(table).rows:
        if row.name.startswith(name):
            assert (row.batch_size, row.batches) == (16, 64)  # 1024 sequences
            assert row.paper == table_row(table, name).paper


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: t", "a table starts with octavo: 1"),
        (HEAD, "a table needs rows"),
        (
            HEAD + "rows: [{name: a, title: A, method: finetun}]",
            "unknown method 'finetun'; did you mean 'finetune'",
        ),
        (HEAD + "rows: [{name: a, title: A, method: quantize}]", "the other methods need one"),
        (
            HEAD + "row: []\nrows: [{name: a, title: A, method: finetune}]",
            "unknown key 'row'; did you mean 'rows'",
        ),
        (HEAD + ROW + "ranges: singl}]", "unknown ranges 'singl'; did you mean 'single'"),
        (
            HEAD + ROW + "ranges: single, batches: 4}]",
            "ranges single says how ranges are found; drop batches",
        ),
        (HEAD + "rows: [", "expected the node content"),
    ],
)
def test_bad_tables_are_explained(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_table(text, "mine.yaml")


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="no table 'mian' and no such file; did you mean 'main'"):
        load_table("mian")


def test_settings_change_the_papers_and_search_lists() -> None:
    settings = load_settings("minilm")
    assert [(each.learning_rate, each.epochs) for each in settings.finetuning("cola")] == [(5e-5, 20)]
    found = settings.training("sst2", recipe("w8a8-qat"))
    assert [each.learning_rate for each in found] == [1e-4, 5e-5] and {each.epochs for each in found} == {3}
    assert settings.finetuning("rte") == [FINETUNING["glue/rte"]]
    assert load_settings("paper").training("qqp", recipe("w4a8-qat")) == [QAT_4_BITS["glue/qqp"]]
    assert [settings_for(*model).name for model in (("bert", 384), ("bert", 768), ("mpnet", 768))] == [
        "minilm",
        "paper",
        "mpnet",
    ]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(SpecError, match="no settings 'papr' and no such file; did you mean 'paper'"):
        load_settings("papr")


@pytest.mark.parametrize("name", ["qbert-w4a8-qat", "qbert-w4a8-qat-ungrouped"])
def test_rows_of_qbert_can_be_trained(name: str, tiny_model: str) -> None:
    encoder = tiny.encoder(tiny_model)
    data = tiny.data(encoder, 32)
    hyper = Hyperparameters(learning_rate=1e-3, batch_size=16, epochs=1, keep="last")
    model, result = qat(encoder, built("low-bit-full", name), data, hyper, calibration=tiny.texts(8)[0])
    assert result.steps == 2
    weight = model.quantizers["layers.0.ffn_hidden.weight"]
    assert weight.scale.numel() == (1 if name.endswith("ungrouped") else weight.site.shape[0])
