from __future__ import annotations

import gc
import os
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from octavo.graph import Encoder

# Before torch is imported: workers of a test run share the cores, and threads that wait for each other crawl.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A deadline measures how busy the machine is, not whether the code is right.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")


@pytest.fixture(scope="session", autouse=True)
def captured_once() -> Iterator[None]:
    """Models of one kind share one export, see `tests.captures`."""
    from tests import captures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("octavo.graph.capture.source.capture", captures.capture)
        yield


@pytest.fixture(scope="module", autouse=True)
def older_objects_stay() -> None:
    """Spare the garbage collector what is older than a module of tests.

    Torch and transformers make 400,000 objects that live as long as the process. A diagnosis collects what
    each model that it tries leaves behind, and walking over all of those took most of its time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def demo_encoder() -> Encoder:
    """The real all-MiniLM-L6-v2, captured once; tests leave it as it is."""
    from octavo.methods import load

    return load("demo:minilm")


@pytest.fixture(scope="session")
def tiny_bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A factory of folders with a tiny untrained BERT and its tokenizer; tests copy what they change.

    Its options are the name of the class in transformers and values of the configuration. The tokenizer knows
    every word of Latin letters, one token a letter.
    """

    def make(architecture: str = "BertModel", **settings: Any) -> Path:
        import torch
        import transformers

        folder = tmp_path_factory.mktemp("tiny-bert")
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,?!", *string.ascii_lowercase]
        vocabulary += [f"##{letter}" for letter in string.ascii_lowercase]
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"vocab_size": len(vocabulary), "max_position_embeddings": 64}
        torch.manual_seed(0)
        model = getattr(transformers, architecture)(transformers.BertConfig(**{**sizes, **settings}))
        model.save_pretrained(folder)
        transformers.BertTokenizer.from_pretrained(folder).save_pretrained(folder)
        return folder

    return make
