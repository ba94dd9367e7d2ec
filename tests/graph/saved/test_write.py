from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import octavo
from octavo.errors import ModelError, OutputError, SavedModelError, SpecError
from octavo.graph import Encoder, QuantizedEncoder, State
from octavo.graph.saved import read as reading
from octavo.graph.saved import write as storage_module
from octavo.methods import load, quantize
from octavo.spec import (
    AllMinMax,
    Mse,
    Override,
    PerChannel,
    PerEmbedding,
    PerGroup,
    PerToken,
    Recipe,
    TensorSpec,
)
from tests.graph import families

W8 = TensorSpec(symmetric=True)
A8 = TensorSpec(estimator=AllMinMax())
FFN = ("layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual")
BATCH = families.batch((3, 9), padded=True)
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="w8a8", weights=W8, activations=A8),
        Recipe(name="w4a32", weights=TensorSpec(bits=4, symmetric=True, estimator=Mse()), activations=None),
        Recipe(name="w32a8", weights=None, activations=A8),
        Recipe(name="asymmetric", weights=TensorSpec(bits=3), activations=A8),
        Recipe(
            name="per-channel",
            weights=TensorSpec(bits=5, symmetric=True, granularity=PerChannel()),
            activations=A8,
        ),
        Recipe(
            name="groups", weights=TensorSpec(symmetric=True, granularity=PerGroup(groups=2)), activations=A8,
            overrides=(
                Override(roles=("norm_weight", "embedding_weight"), bits=16),
                Override(sites=FFN, granularity=PerGroup(groups=5, permute=True)),
                Override(sites=("pooler",), granularity=PerEmbedding()),
                Override(sites=("logits.weight",), off=True),
            ),
        ),
        Recipe(
            name="dynamic", weights=W8, activations=TensorSpec(dynamic=True, symmetric=True),
            overrides=(
                Override(sites=("layers.0.*_input", "layers.1.ffn_hidden"), granularity=PerToken()),
                Override(sites=FFN, granularity=PerGroup(groups=4, permute=True)),
            ),
        ),
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(bert: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved W8A8 model; tests copy it before they break it."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    return quantize(bert, RECIPES["w8a8"], [BATCH]).save(folder)


@pytest.fixture
def quick(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the captured graph instead of capturing it again, for tests of what comes after."""

    def copied(name: str, *_: object) -> Encoder:
        return Encoder(**{**bert.parts(), "name": name, "graph": deepcopy(bert.graph)})

    monkeypatch.setattr(reading, "make_encoder", copied)


@pytest.fixture
def broken(saved: Path, tmp_path: Path, quick: None) -> Path:
    """A copy to break."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in saved.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "octavo.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    change(manifest)
    file.write_text(json.dumps(manifest), encoding="utf-8")


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


# -- round trips ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", RECIPES)
def test_a_loaded_model_gives_the_same_bits(bert: Encoder, tmp_path: Path, name: str) -> None:
    model = quantize(bert, RECIPES[name], [BATCH])
    loaded = load(model.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert loaded.recipe == model.recipe
    for batch in (BATCH, families.batch((2, 31), seed=5)):
        assert torch.equal(loaded(batch)["logits"], model(batch)["logits"])
    for site, quantizer in model.quantizers.items():
        assert torch.equal(loaded.quantizers[site].index, quantizer.index), site


@pytest.mark.parametrize(
    ("family", "head"), [("albert", "masked-lm"), ("bert", "masked-lm"), ("mobilebert", "masked-lm")]
)
def test_shared_and_tied_weights_are_stored_once_and_stay_tied(
    family: str, head: Any, tmp_path: Path
) -> None:
    _, encoder = families.captured(family, head)
    model = quantize(encoder, RECIPES["w8a8"], [BATCH])
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert torch.equal(loaded(BATCH)["logits"], model(BATCH)["logits"])
    with safe_open(tmp_path / "model" / "model.safetensors", framework="pt") as opened:
        stored = [key for key in opened.keys() if ":" not in key]
    assert len(stored) == len(
        {str(n.target) for n in encoder.graph.graph.nodes if n.op == "get_attr"} & set(stored)
    )
    token = next(site for site in loaded.weight_sites if site.name == "embeddings.token.weight")
    assert (
        sum(load_file(tmp_path / "model" / "model.safetensors")[t].numel() for t in token.targets)
        == 100 * token.shape[1]
    )


@pytest.mark.parametrize("family", ["squeezebert", "roformer"])
def test_other_families_come_back_too(family: str, tmp_path: Path) -> None:
    model = quantize(families.captured(family)[1], RECIPES["groups"], [BATCH])
    loaded = load(model.save(tmp_path / "model"))
    assert torch.equal(loaded(BATCH)["logits"], model(BATCH)["logits"])


REPLACING = {
    "modernbert": Recipe(
        name="a shift, then a spill",
        placement="linear-inputs",
        weights=W8,
        activations=A8,
        overrides=(Override(roles=("norm_weight",), off=True),),
        passes=(
            octavo.ShiftAndScale(roles=("ffn_input",)),
            octavo.Spill(roles=("ffn_hidden",), share=0.2),
        ),
    ),
    "nomic-bert": Recipe(
        name="a correction, then a split",
        weights=W8,
        activations=A8,
        overrides=(Override(sites=FFN, granularity=PerGroup(groups=2)),),
        passes=(octavo.BiasCorrection(), octavo.SplitGroups()),
    ),
}


@pytest.mark.parametrize("family", REPLACING)
def test_what_a_pass_added_and_a_later_one_replaced_comes_back(family: str, tmp_path: Path) -> None:
    """These families have no biases: the first pass adds some, the second puts others in their place."""
    model = quantize(families.captured(family, "encoder")[1], REPLACING[family], [BATCH])
    folder = model.save(tmp_path / "model")
    assert json.loads((folder / "octavo.json").read_text(encoding="utf-8"))["replaced"]
    loaded = load(folder)
    assert torch.equal(loaded(BATCH)["last_hidden_state"], model(BATCH)["last_hidden_state"])
    assert isinstance(loaded, QuantizedEncoder) and loaded.added == model.added


def test_saving_a_loaded_model_writes_the_same_weights(saved: Path, tmp_path: Path) -> None:
    loaded = load(saved)
    assert isinstance(loaded, QuantizedEncoder)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        saved / "model.safetensors"
    ).read_bytes()


FRESH = """
import sys, torch
import octavo
from safetensors.torch import load_file
model = octavo.load(sys.argv[1])
data = load_file(sys.argv[2])
result = model({name: data[name] for name in ("input_ids", "attention_mask")})["logits"]
sys.exit(0 if torch.equal(result, data["logits"]) else 1)
"""


def test_a_fresh_process_gives_the_same_bits(bert: Encoder, tmp_path: Path) -> None:
    model = quantize(bert, RECIPES["groups"], [BATCH])
    model.save(tmp_path / "model")
    save_file({**BATCH, "logits": model(BATCH)["logits"]}, tmp_path / "expected.safetensors")
    source = str(Path(octavo.__file__).parents[1])
    arguments = [sys.executable, "-c", FRESH, str(tmp_path / "model"), str(tmp_path / "expected.safetensors")]
    finished = subprocess.run(
        arguments, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr


def test_weights_are_packed_at_their_width(bert: Encoder, tmp_path: Path) -> None:
    path = "bert.encoder.layer.0.intermediate.dense.weight"
    for bits, expected in ((2, 512), (3, 768), (4, 1024), (8, 2048), (16, 4096)):
        recipe = Recipe(name=f"w{bits}", weights=TensorSpec(bits=bits, symmetric=True), activations=None)
        quantize(bert, recipe).save(tmp_path / str(bits))
        stored = load_file(tmp_path / str(bits) / "model.safetensors")[path]
        assert (stored.dtype, stored.numel()) == (torch.uint8, expected)


@pytest.mark.parametrize(("preset", "most"), [("w8a32", 25e6), ("w4a32", 13e6)])
def test_the_demo_model_is_as_small_as_promised(
    demo_encoder: Encoder, tmp_path: Path, preset: str, most: float
) -> None:
    folder = quantize(demo_encoder, octavo.recipe(preset)).save(tmp_path / "model")
    assert sum(file.stat().st_size for file in folder.iterdir()) < most
    assert {"config.json", "octavo.json", "model.safetensors", "tokenizer.json"} <= {
        f.name for f in folder.iterdir()
    }


def test_the_manifest_says_what_was_done(saved: Path) -> None:
    manifest = json.loads((saved / "octavo.json").read_text(encoding="utf-8"))
    assert manifest["octavo"] == manifest["recipe"]["octavo"] == 2 and manifest["passes"] == []
    assert manifest["head"] == "sequence-classification"
    assert manifest["recipe"]["name"] == "w8a8"
    assert manifest["provenance"]["model"] == "tiny bert"
    assert set(manifest["provenance"]["versions"]) == {"octavo", "torch", "transformers", "python"}
    first = manifest["activation_sites"][0]
    assert (first["name"], first["role"], first["bits"]) == ("embeddings.sum.0", "embedding_sum", 8)


# -- what is refused -----------------------------------------------------------------------------------------


def test_a_model_that_is_not_fixed_is_not_saved(bert: Encoder, tmp_path: Path) -> None:
    model = quantize(bert, RECIPES["w8a8"], [BATCH])
    model.set_state("pooler", "off")
    with pytest.raises(SpecError, match=r"1 quantizers are not fixed \(the first is pooler\)"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    assert model.quantizers["logits"].state is State.FIX


def test_an_existing_folder_is_replaced_only_by_force(bert: Encoder, tmp_path: Path) -> None:
    model = quantize(bert, RECIPES["w4a32"])
    model.save(tmp_path / "model")
    (tmp_path / "model" / "stale").write_text("old")
    with pytest.raises(OutputError, match="exists already; choose another place or use --force"):
        model.save(tmp_path / "model")
    assert (tmp_path / "model" / "stale").exists()
    model.save(tmp_path / "model", force=True)
    assert not (tmp_path / "model" / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("force", [False, True], ids=["new", "replacing"])
def test_a_failure_leaves_everything_as_it_was(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    model = quantize(bert, RECIPES["w4a32"])
    if force:
        model.save(tmp_path / "model")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(storage_module, "_manifest", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.save(tmp_path / "model", force=force)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m.update(octavo=3),
            "has format 3, this Octavo reads formats 1 and 2; use a matching version",
        ),
        (lambda m: m.pop("octavo"), "has format None, this Octavo reads formats 1 and 2"),
        (lambda m: m.pop("recipe"), "do not fit together .*recipe.* is missing"),
        (lambda m: m["recipe"].update(bitz=3), "do not fit together .*bitz"),
        (lambda m: m.update(head="poetry"), "names the head 'poetry', unknown to this Octavo"),
        (lambda m: m.update(passes=["melt"]), r"passes\[0\]: unknown name 'melt'.*update Octavo"),
        (
            lambda m: m.update(octavo=1, transforms=["melt"]),
            "names the transform 'melt', unknown to this Octavo",
        ),
        (
            lambda m: m["weight_sites"].pop(0),
            r"the weight sites found now differ from those saved \(at embeddings.token",
        ),
        (lambda m: m["activation_sites"][0].pop("low"), "do not fit together .*low"),
        (lambda m: m.update(activation_sites=None), "do not fit together"),
        (lambda m: m["activation_sites"][0].update(low=1e400), "whose low end is inf, not an integer"),
        (lambda m: m["activation_sites"][0].update(high=10**30), r"whose high end is 1000.*, not an integer"),
        (
            lambda m: m["activation_sites"][0].update(low=9, high=3),
            "grid from 9 to 3, which 8 bits cannot",
        ),
        (lambda m: m["activation_sites"][0].update(high=300), "grid from 0 to 300, which 8 bits cannot"),
    ],
    ids=[
        *("newer", "no version", "no recipe", "unknown key", "head", "pass", "transform", "sites", "grid"),
        *("none", "infinite", "huge", "crossed", "too wide"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(
    broken: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    change_manifest(broken, change)
    with pytest.raises(SavedModelError, match=message):
        load(broken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("pooler:scale"), "model.safetensors lacks pooler:scale; save the model again"),
        (lambda t: t.pop("classifier.bias"), "lacks classifier.bias"),
        (lambda t: t.pop("pooler:zero_point"), "lacks pooler:zero_point"),
        (lambda t: t.update({"pooler:scale": torch.ones(3)}), "pooler has 3 saved scales, not 1"),
        (
            lambda t: t.update({"pooler:scale": torch.zeros(1)}),
            "pooler has a saved scale that is not a positive number",
        ),
        (lambda t: t.update({"classifier.bias": torch.ones(7)}), "do not fit together"),
        (
            lambda t: t.update({"classifier.weight": torch.ones(7, dtype=torch.uint8)}),
            "logits.weight has 7 bytes, not 64",
        ),
        (
            lambda t: t.update({"folded.pooler.bias": torch.ones(7), "x": torch.ones(1)}),
            r"holds folded\.pooler\.bias and 1 more, which the model made by octavo\.json does not read",
        ),
    ],
    ids=["scale", "bias", "zero-point", "scales", "zero scale", "bias size", "weight size", "left over"],
)
def test_tensors_that_do_not_fit_are_refused(
    broken: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    change_tensors(broken, change)
    with pytest.raises(SavedModelError, match=message):
        load(broken)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("octavo.json", b"{", "octavo.json cannot be read .*; save the model again"),
        ("octavo.json", b"\xff\xfe", "octavo.json cannot be read"),
        ("octavo.json", b"[]", "has format None"),
        ("config.json", b"{", "config.json or the tokenizer cannot be read"),
        ("config.json", b'{"model_type": "nothing"}', "config.json or the tokenizer cannot be read"),
        ("model.safetensors", b"", "model.safetensors is corrupt or truncated"),
        ("model.safetensors", b"x" * 100, "model.safetensors is corrupt or truncated"),
    ],
    ids=["half manifest", "not text", "not a mapping", "half config", "unknown type", "empty", "noise"],
)
def test_broken_files_are_refused(broken: Path, name: str, content: bytes, message: str) -> None:
    (broken / name).write_bytes(content)
    with pytest.raises(SavedModelError, match=message):
        load(broken)


def test_truncated_weights_are_refused(broken: Path) -> None:
    file = broken / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        SavedModelError, match=r"model\.safetensors is corrupt or truncated .*; save or copy the model again"
    ):
        load(broken)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("model.safetensors", SavedModelError, "has no model.safetensors; save the model again"),
        ("config.json", SavedModelError, "config.json or the tokenizer cannot be read"),
        (
            "octavo.json",
            ModelError,
            "was saved by Octavo but lacks octavo.json; save or copy the model again",
        ),
    ],
)
def test_missing_files_are_named(broken: Path, name: str, error: type[Exception], message: str) -> None:
    (broken / name).unlink()
    with pytest.raises(error, match=message):
        load(broken)


def test_a_saved_model_keeps_its_head(saved: Path) -> None:
    with pytest.raises(
        ModelError, match="was saved by Octavo with its head; load it without head and labels"
    ):
        load(saved, head="encoder")


class Bomb:
    """Unpickling this writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.file, "boom")


def test_loading_runs_no_code_from_the_folder(broken: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    (broken / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(trap)))
    (broken / "modeling_evil.py").write_text(f"open({str(trap)!r}, 'w').write('boom')\n")
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoConfig": "modeling_evil.Config", "AutoModel": "modeling_evil.Model"}
    (broken / "config.json").write_text(json.dumps(config), encoding="utf-8")
    try:
        load(broken)
    except SavedModelError:
        pass  # refusing is as good as ignoring
    assert not trap.exists()


def test_a_manifest_that_nests_without_end_is_refused(broken: Path) -> None:
    (broken / "octavo.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(SavedModelError, match=r"octavo\.json cannot be read"):
        load(broken)


def test_a_tied_token_table_is_the_same_before_and_after_loading(tmp_path: Path) -> None:
    """Under linear-inputs only products read quantized activations; a weight is on its grid for all."""
    _, bert = families.captured("bert", "masked-lm")
    model = quantize(bert, octavo.recipe("int8"), [BATCH])
    assert torch.equal(load(model.save(tmp_path / "model"))(BATCH)["logits"], model(BATCH)["logits"])
