from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from octavo.fidelity import Cosine, Quality
from octavo.runtime.benchmark import Row, Timing
from octavo.runtime.plot import draw


def row(name: str, speed: float, cosine: float | None, kind: str = "integer") -> Row:
    timing = Timing(batch=32, length=128, median_ms=1.0, fastest_ms=1.0, repeats=5, texts_per_second=speed)
    quality = Quality(cosine=None if cosine is None else Cosine(mean=cosine, worst=cosine), sqnr=20.0)
    return Row(
        name=name,
        kind=kind,
        backend="onnxruntime",
        megabytes=None,
        peak_megabytes=None,
        timings=(timing,),
        quality=quality,
    )


def labels(text: str) -> dict[str, tuple[float, float, str]]:
    found = re.findall(
        r'<text class="label" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(.*?)</text>', text
    )
    return {name: (float(x), float(y), anchor) for x, y, anchor, name in found}


def test_a_dot_and_a_name_for_every_artifact() -> None:
    rows = [row("<float>", 50, 1.0, "float"), row("saved", 20, 0.97, "simulated")]
    text = draw(rows, (32, 128)).document()
    ET.fromstring(text)
    assert {"&lt;float&gt;", "saved (simulated)"} <= labels(text).keys()
    assert text.count("<circle") == 2 and 'class="quiet"' in text


def test_names_do_not_cover_each_other() -> None:
    rows = [row("first-model.onnx (onnxruntime)", 100, 0.996), row("second-model.onnx", 120, 0.996)]
    found = labels(draw(rows, (32, 128)).document())
    first, second = found["first-model.onnx (onnxruntime)"], found["second-model.onnx"]
    assert first[2] == "end" and first[0] < second[0] and second[2] == "start"


def test_a_model_without_a_cosine_is_left_out() -> None:
    text = draw([row("one logit", 50, None), row("embedder", 60, 0.99)], (32, 128)).document()
    assert "one logit" not in text and "embedder" in text
