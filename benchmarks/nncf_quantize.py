"""NNCF's transformer preset as a program, for benchmarks that run it beside Octavo's.

    python benchmarks/nncf_quantize.py FOLDER TEXTS OUT.xml

It needs nncf, openvino, torch and transformers, in an environment of their own, and nothing of Octavo.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

LENGTH = 128


def main() -> None:
    import nncf  # type: ignore[import-not-found]
    import openvino
    from transformers import AutoModel, AutoTokenizer

    folder, texts, out = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    feeds = [
        dict(tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt"))
        for text in Path(texts).read_text(encoding="utf-8").splitlines()
    ]
    start = time.perf_counter()
    converted = openvino.convert_model(model, example_input=feeds[0])
    between = time.perf_counter()
    arrays = [{name: tensor.numpy() for name, tensor in feed.items()} for feed in feeds]
    quantized = nncf.quantize(
        converted, nncf.Dataset(arrays), subset_size=len(arrays), model_type=nncf.ModelType.TRANSFORMER
    )
    end = time.perf_counter()
    openvino.save_model(quantized, out)
    print(json.dumps({"nncf_convert": round(between - start, 1), "nncf_quantize": round(end - between, 1)}))


if __name__ == "__main__":
    main()
