from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from octavo.diagnosis import Diagnosis, diagnose
from octavo.diagnosis.chapters.attention import Attention, Head, attention_data
from octavo.diagnosis.chapters.dimensions import MAP_ROLES, Channels, maps
from octavo.diagnosis.chapters.ranking import Ranking, SiteStatistics
from octavo.diagnosis.chapters.tokens import token_data
from octavo.diagnosis.chosen_text import ChosenText, token_limit
from octavo.diagnosis.markup import packed_bytes, packed_halves, script_data
from octavo.graph import Encoder, Site


@pytest.fixture(scope="module")
def page(diagnosed: Diagnosis) -> str:
    assert diagnosed.report is not None
    return diagnosed.report.read_text(encoding="utf-8")


def test_files_of_a_report(diagnosed: Diagnosis) -> None:
    assert diagnosed.report is not None
    folder = diagnosed.report.parent
    assert sorted(path.name for path in folder.iterdir()) == [
        ".progress",
        "figures",
        "report.html",
        "report.json",
    ]
    assert {path.stem for path in (folder / "figures").iterdir()} == {
        "heads", "outliers-ffn-input", "outliers-ffn-output", "ranking", "sensitivity-last",
        "sensitivity-layers", "sensitivity-roles", "sensitivity-sites", "tasks-inputs", "tasks-outputs",
        "tokens", "writers",
    }  # fmt: skip


def test_figures_are_well_formed_and_stand_alone(diagnosed: Diagnosis) -> None:
    assert diagnosed.report is not None
    for file in (diagnosed.report.parent / "figures").iterdir():
        root = ET.parse(file).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in file.read_text(encoding="utf-8")
        assert "nan" not in file.read_text(encoding="utf-8").lower().replace("dominant", "")


def test_the_page_needs_nothing_else(page: str) -> None:
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", page)
    assert not re.findall(r"@import|url\(", page)
    assert "default-src 'none'" in page
    assert "{{" not in page


def test_report_json_says_the_same(diagnosed: Diagnosis) -> None:
    assert diagnosed.report is not None
    written = json.loads((diagnosed.report.parent / "report.json").read_text(encoding="utf-8"))
    expected = json.loads(json.dumps(diagnosed.to_dict(), allow_nan=False)) | {"report": "report.html"}
    assert written == expected
    assert written["provenance"]["versions"]["octavo"]


def test_hostile_names_are_escaped(plain: Encoder, texts: list[str], tmp_path: Any) -> None:
    hostile = "</script><script>alert(1)</script>&\"'"
    encoder = Encoder(**plain.parts() | {"name": hostile})
    options: dict[str, Any] = {"panels": {hostile: texts[:1]}, "sensitivity": ("last",), "source": hostile}
    found = diagnose(encoder, [*texts, hostile], output=tmp_path / "out", sequence=len(texts) + 1, **options)
    assert found.report is not None
    text = found.report.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    for file in (tmp_path / "out" / "figures").iterdir():
        ET.parse(file)


def test_half_floats_and_bytes_round_trip() -> None:
    import base64

    import numpy as np

    values = torch.tensor([0.0, 1.0, -194.875, 1e-6, 1e9])
    found = np.frombuffer(base64.b64decode(packed_halves(values)), dtype="<f2")
    assert found[:3].tolist() == [0.0, 1.0, -194.875]
    assert found[4] == 65504
    assert list(base64.b64decode(packed_bytes(torch.tensor([0.0, 0.5, 1.0])))) == [0, 128, 255]


def test_twelve_layers_of_bert_base_stay_below_five_megabytes() -> None:
    width, heads, layers = 768, 12, range(12)
    shape: tuple[int | str, ...] = ("batch", "length", width)
    roles = ("query", "key", *MAP_ROLES)
    sites = [
        Site(name=f"layers.{n}.{role}", role=role, kind="activation", shape=shape, targets=("x",))
        for n in layers for role in roles
    ]  # fmt: skip
    encoder = cast(Any, SimpleNamespace(activation_sites=sites))
    tokens = token_limit(encoder)
    assert tokens >= 32
    channel = Channels(torch.randn(width), torch.randn(width), torch.ones(width))
    numbers = dict.fromkeys(
        ("minimum", "maximum", "mean", "std", "kurtosis", "beyond", "sqnr_db", "typical_sqnr_db"), 1.0
    )
    ranking = Ranking(
        sites=tuple(SiteStatistics(name=s.name, role=s.role, shape=shape, **numbers) for s in sites)
    )
    text = ChosenText(index=0, tokens=["token"] * tokens, kinds=["word"] * tokens, batch={}, cut=False)
    roles = ("ffn_input", "ffn_output")
    values = {f"layers.{n}.{role}": torch.randn(tokens, width) for n in layers for role in roles}
    split = {n: torch.randn(heads, tokens, width // heads) for n in layers}
    head = Head(layer=0, head=0, shares={"separator": 0.5, "class": 0.1}, no_op=True)
    attention = Attention(
        heads=(head,),
        patterns={n: torch.rand(heads, tokens, tokens) for n in layers},
        queries=split,
        keys=split,
    )
    names = [(site.name, site.role) for site in sites]
    document = {
        "maps": maps(names, {site.name: channel for site in sites}, 10),
        "tokens": token_data(text, values, ranking),
        "attention": attention_data(attention),
    }
    assert len(document["maps"]) == len(MAP_ROLES)
    assert 2_000_000 < len(script_data(document)) < 4_500_000
