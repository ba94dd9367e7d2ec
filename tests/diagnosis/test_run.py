from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.diagnosis import Diagnosis, Finding, chapters, diagnose
from octavo.diagnosis.chapter import Chapter, Observers
from octavo.diagnosis.chapters import CHAPTERS
from octavo.diagnosis.markup import figure, section
from octavo.diagnosis.watch import Shown
from octavo.drawing import Drawing
from octavo.errors import DataError, ModelError, OutputError
from octavo.graph import Encoder
from octavo.graph.capture.source import make_encoder
from octavo.methods import quantize
from octavo.progress import Progress
from octavo.spec.presets import recipe
from tests.diagnosis.conftest import PLANTED


def test_the_planted_outlier_is_found_named_and_blamed(diagnosed: Diagnosis) -> None:
    site = "layers.1.ffn_output"
    assert {(o.site, o.dimension) for o in diagnosed.outliers} >= {
        (site, PLANTED),
        ("layers.1.ffn_residual", PLANTED),
    }
    assert diagnosed.worst.name in (site, "layers.1.ffn_residual")
    first = diagnosed.findings[0]
    assert (first.level, first.title) == ("problem", f"1 dimension dwarfs the others ({PLANTED})")
    assert any(
        f"{site}: dimension {PLANTED} spans" in item and "6 of 6 texts" in item for item in first.evidence
    )
    assert any(finding.commands for finding in diagnosed.findings)


def test_every_scope_is_measured(diagnosed: Diagnosis) -> None:
    assert diagnosed.sensitivity is not None
    assert {variant.scope for variant in diagnosed.sensitivity.variants} == {
        "roles",
        "last",
        "layers",
        "sites",
    }


def test_the_public_function_is_the_packages_own() -> None:
    assert octavo.diagnose is diagnose


def test_stages_are_opened_in_order(plain: Encoder, texts: list[str]) -> None:
    from contextlib import contextmanager

    opened: list[str] = []

    @contextmanager
    def stage(title: str) -> Any:
        opened.append(title)
        yield lambda done, total: None

    diagnose(plain, texts, panels={"One": texts}, sensitivity=("last",), progress=stage)
    assert opened == ["Watching activations", "Trying recipes", "Sensitivity", "Tasks"]


def test_a_second_run_measures_nothing_again(
    planted: Encoder,
    texts: list[str],
    diagnosed: Diagnosis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("measured again")

    assert diagnosed.report is not None
    monkeypatch.setattr("octavo.diagnosis.chapter.Study.measure", never)
    monkeypatch.setattr("octavo.diagnosis.chapter.Study.fidelity", never)
    monkeypatch.setattr("octavo.diagnosis.chapter.Study.quantize", never)
    monkeypatch.setattr("octavo.diagnosis.run.watch_texts", never)
    # a copy: other tests look at the report of the first run
    copy = shutil.copytree(diagnosed.report.parent, tmp_path / "copy")
    again = diagnose(planted, texts, output=copy, sensitivity=("roles", "sites"))
    assert again.sensitivity is not None and diagnosed.sensitivity is not None
    assert again.sensitivity.of("roles") == diagnosed.sensitivity.of("roles")
    kept = ("sites", "outliers", "recurrences", "writers", "token_roles", "token_sites", "heads", "trials")
    for part in (*kept, "findings"):
        assert getattr(again, part) == getattr(diagnosed, part), part


def test_a_score_is_reported_beside_fidelity(plain: Encoder, texts: list[str]) -> None:
    found = diagnose(plain, texts, sensitivity=("last",), score=lambda model: 50.0, task="glue/x")
    assert found.sensitivity is not None
    assert (found.sensitivity.measure, found.sensitivity.float_score) == ("score", 50.0)
    assert found.provenance["task"] == "glue/x"


def test_a_model_without_attention_is_diagnosed_without_it(texts: list[str], plain: Encoder) -> None:
    import transformers

    settings = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 80}
    network = transformers.FNetModel(transformers.FNetConfig(**settings, max_position_embeddings=64))
    encoder = make_encoder("fnet", network, plain.tokenizer, "encoder")
    with pytest.raises(ModelError, match="fnet has no attention probabilities in its graph"):
        diagnose(encoder, texts, sensitivity=())
    found = diagnose(encoder, texts, sensitivity=(), attention=False)
    assert found.heads == ()


@pytest.mark.parametrize("texts", [[], "one string"], ids=["none", "a string"])
def test_no_texts(plain: Encoder, texts: Any) -> None:
    with pytest.raises(DataError, match="a list of at least one text"):
        diagnose(plain, texts)


def test_a_quantized_model_is_refused(plain: Encoder) -> None:
    with pytest.raises(ModelError, match="is quantized already; diagnose the float model"):
        diagnose(quantize(plain, recipe("w8a32")), ["abcdef"])


def test_a_model_without_a_tokenizer(plain: Encoder) -> None:
    bare = Encoder(**plain.parts() | {"tokenizer": None})
    with pytest.raises(ModelError, match="has no tokenizer files"):
        diagnose(bare, ["abcdef"])


def test_an_unwritable_folder_is_refused_before_the_work(
    plain: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "octavo.diagnosis.run.watch_texts", lambda *_, **__: pytest.fail("worked before it looked")
    )
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        diagnose(plain, texts, output=tmp_path / "file")


def test_a_head_with_logits(tiny_bert_folder: Callable[..., Path], texts: list[str]) -> None:
    encoder = octavo.load(tiny_bert_folder("BertForSequenceClassification"))
    found = diagnose(encoder, texts, sensitivity=("layers",))
    assert found.sensitivity is not None
    assert "head" in {variant.name for variant in found.sensitivity.variants}
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("family", ["mobilebert", "squeezebert"])
def test_several_ffns_a_layer_and_channels_before_tokens(
    family: str, plain: Encoder, texts: list[str]
) -> None:
    from tests.graph import families

    head = families.usual_head(family)
    encoder = make_encoder(family, families.network(family, head), plain.tokenizer, head)
    found = diagnose(encoder, texts, sensitivity=(), panels={"One": texts})
    assert len(found.heads) == 8
    assert {"ffn_input", "ffn_output", "ffn_residual"} <= set(found.token_roles)
    counted = next(iter(found.token_sites.values())).tokens
    assert sum(counted.values()) == sum(
        batch["input_ids"].numel() for _, batch in encoder.batches(texts, 8, pad=False)
    )


@dataclass(frozen=True, kw_only=True)
class Largest:
    site: str
    value: float


class LargestChapter(Chapter[Largest]):
    """All that a new chapter is: a class in a file of its own, and a line in the table."""

    name, title, record = "largest", "Largest value", Largest

    def observers(self) -> Observers:
        self._seen: dict[str, float] = {}
        return Observers(first=self._see)

    def _see(self, shown: Shown) -> None:
        largest = float(shown.x.abs().max())
        self._seen[shown.site.name] = max(largest, self._seen.get(shown.site.name, 0.0))

    def conclude(self, progress: Progress) -> Largest:
        site = max(self._seen, key=lambda name: self._seen[name])
        return Largest(site=site, value=self._seen[site])

    def findings(self) -> list[Finding]:
        return [
            Finding(level="note", title=f"The largest value is at {self.result.site}", text="Look there.")
        ]

    def to_dict(self) -> dict[str, Any]:
        return {"largest": {"site": self.result.site, "value": self.result.value}}

    def figures(self) -> dict[str, Drawing]:
        drawing = Drawing(100, 20, "Largest value")
        drawing.text(0, 10, self.result.site)
        return {"largest": drawing}

    def section(self, figures: Mapping[str, Drawing]) -> str:
        return section("largest", "Largest value", "One number.", figure(figures["largest"], "A caption."))


def test_every_chapter_of_a_module_is_in_the_table() -> None:
    folder = Path(chapters.__path__[0])
    modules = [import_module(f"octavo.diagnosis.chapters.{file.stem}") for file in folder.glob("[!_]*.py")]
    defined = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Chapter) and value.__module__ == module.__name__
    }
    assert defined == set(CHAPTERS)


def test_a_chapter_is_one_class_and_a_line_in_the_table(
    planted: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.diagnosis.run.CHAPTERS", (*CHAPTERS, LargestChapter))
    found = diagnose(planted, texts, output=tmp_path / "out", sensitivity=())
    assert found.results["largest"].site == "layers.1.ffn_residual"
    assert found.findings[-1].title == "The largest value is at layers.1.ffn_residual"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert '<a href="#largest">Largest value</a>' in page and '<section id="largest"' in page
    assert (tmp_path / "out" / "figures" / "largest.svg").is_file()
    written = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert written["largest"]["site"] == "layers.1.ffn_residual"
    monkeypatch.setattr("octavo.diagnosis.run.watch_texts", None)
    again = diagnose(planted, texts, output=tmp_path / "out", sensitivity=())
    assert again.results["largest"] == found.results["largest"]


def test_chapters_have_names_and_titles_of_their_own() -> None:
    assert len({chapter.name for chapter in CHAPTERS}) == len({chapter.title for chapter in CHAPTERS}) == 8


def test_a_folder_of_other_files_is_refused_unless_forced(
    plain: Encoder, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        diagnose(plain, texts, output=tmp_path, sensitivity=())
    diagnose(plain, texts, output=tmp_path, sensitivity=(), force=True)
    assert (tmp_path / "thesis.tex").is_file() and (tmp_path / "report.html").is_file()


def test_other_weights_are_another_diagnosis(
    plain: Encoder, planted: Encoder, texts: list[str], tmp_path: Path
) -> None:
    diagnose(plain, texts, output=tmp_path / "out", sensitivity=())
    other = Encoder(**planted.parts() | {"name": plain.name})
    with pytest.raises(OutputError, match="holds a diagnosis with another weights"):
        diagnose(other, texts, output=tmp_path / "out", sensitivity=())
    forced = diagnose(other, texts, output=tmp_path / "out", sensitivity=(), force=True)
    assert forced.outliers


def test_a_damaged_measurement_is_made_again(plain: Encoder, texts: list[str], tmp_path: Path) -> None:
    first = diagnose(plain, texts, output=tmp_path / "out", sensitivity=())
    kept = tmp_path / "out" / ".progress"
    (kept / "dimensions.safetensors").write_bytes(b"cut")
    (kept / "trial" / "w8a8.json").write_text("{", encoding="utf-8")
    again = diagnose(plain, texts, output=tmp_path / "out", sensitivity=())
    assert (again.outliers, again.trials, again.findings) == (first.outliers, first.trials, first.findings)


def test_another_chosen_text_is_watched_anew(plain: Encoder, texts: list[str], tmp_path: Path) -> None:
    pages = []
    for number in (1, 2, 1):
        found = diagnose(plain, texts, output=tmp_path / "out", sensitivity=(), sequence=number)
        assert found.sequence == number and found.report is not None
        pages.append(found.report.read_text(encoding="utf-8"))
    assert "Text 1 inside the model" in pages[0] and "Text 2 inside the model" in pages[1]
    tokens = [json.loads(page.split('id="data">')[1].split("</script>")[0])["tokens"] for page in pages]
    assert tokens[0] == tokens[2] != tokens[1]
