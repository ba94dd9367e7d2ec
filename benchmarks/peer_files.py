"""What users would deploy instead: a float file, ONNX Runtime's dynamic int8 of it and NNCF's preset.

    python benchmarks/peer_files.py FOLDER GLUE_DIR OUT_DIR

It needs nncf, onnx, onnxscript, onnxruntime, openvino, torch and transformers, in an environment of their
own, and nothing of Octavo. The first 64 sentences of STS-B's training set calibrate NNCF, as they do `int8`
in `efficiency.py`, which measures the files.
"""

from __future__ import annotations

import csv
import inspect
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

LENGTH, CALIBRATION = 128, 64
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class HiddenState(torch.nn.Module):
    def __init__(self, model: Any, inputs: list[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.inputs, tensors, strict=True))).last_hidden_state


def export_float(model: Any, example: dict[str, torch.Tensor], path: Path) -> None:
    import onnx

    shape = {0: torch.export.Dim("batch", min=1, max=512), 1: torch.export.Dim("length", min=2, max=500)}
    torch.onnx.export(
        HiddenState(model, list(example)).eval(),
        tuple(example.values()),
        str(path),
        dynamo=True,
        external_data=False,
        opset_version=20,
        input_names=list(example),
        output_names=["hidden"],
        dynamic_shapes=((shape,) * len(example),),
    )
    graph = onnx.load(str(path))
    del graph.graph.value_info[:]  # the quantizer of ONNX Runtime trips over stale shapes
    onnx.save(graph, str(path))


def main() -> None:
    import nncf  # type: ignore[import-not-found]
    import openvino
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder, glue, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    known = inspect.signature(model.forward).parameters

    def encode(given: list[str], kind: str) -> dict[str, Any]:
        batch = tokenizer(given, padding=True, truncation=True, max_length=LENGTH, return_tensors=kind)
        return {name: batch[name] for name in INPUTS if name in batch and name in known}

    export_float(model, encode(["one short text", "another"], "pt"), out / "float.onnx")
    quantize_dynamic(out / "float.onnx", out / "dynamic.onnx", weight_type=QuantType.QInt8, per_channel=True)
    with (glue / "STS-B" / "train.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        feeds = [encode([row["sentence1"]], "np") for row, _ in zip(rows, range(CALIBRATION), strict=False)]
    quantized = nncf.quantize(
        openvino.Core().read_model(out / "float.onnx"),
        nncf.Dataset(feeds),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER,
    )
    openvino.save_model(quantized, out / "nncf.xml")
    made_with = {name: version(name) for name in ("nncf", "onnxruntime", "openvino", "torch")}
    (out / "versions.json").write_text(json.dumps(made_with), encoding="utf-8")


if __name__ == "__main__":
    main()
