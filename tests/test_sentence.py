from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from octavo.errors import ModelError, OctavoWarning
from octavo.sentence import (
    POOLINGS,
    Dense,
    Normalize,
    Pooling,
    SentenceModules,
    in_folder,
    pool,
    read_modules,
    write_files,
)

TRANSFORMER, POOLING = ("", "Transformer"), ("1_Pooling", "Pooling")
# Two texts of two and three tokens, padded on the right and on the left; 9 stands where nothing may be read.
HIDDEN = np.array(
    [[[1, -2], [3, 4], [9, 9], [9, 9]], [[9, 9], [2, 0], [4, -6], [0, 12]]],
    dtype=np.float32,
)
MASK = np.array([[1, 1, 0, 0], [0, 1, 1, 1]])
BY_HAND: dict[Pooling, list[list[float]]] = {
    "mean": [[2, 1], [2, 2]],
    "cls": [[1, -2], [2, 0]],
    "max": [[3, 4], [4, 12]],
    "mean_sqrt_len_tokens": [[4 / 2**0.5, 2 / 2**0.5], [6 / 3**0.5, 6 / 3**0.5]],
    "weightedmean": [[7 / 3, 2], [10 / 6, 4]],
    "lasttoken": [[3, 4], [0, 12]],
}


def write_modules(
    folder: Path,
    modules: list[tuple[str, str]],
    pooling: dict[str, Any] | None = None,
    package: str = "sentence_transformers.models",
    **others: Any,
) -> Path:
    """A folder with the files of sentence-transformers; `others` are files by name without `.json`."""
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    files = {"modules": listed, "1_Pooling/config": pooling or {"pooling_mode_mean_tokens": True}, **others}
    for name, content in files.items():
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_dense(folder: Path, name: str = "2_Dense", **settings: Any) -> dict[str, NDArray[np.float32]]:
    """A dense module from two to three dimensions; its tensors."""
    tensors: dict[str, NDArray[np.float32]] = {
        "linear.weight": np.array([[1, 0], [0.5, -1], [0, 2]], dtype=np.float32),
        "linear.bias": np.array([0.5, 0, -1], dtype=np.float32),
    }
    (folder / name).mkdir(parents=True, exist_ok=True)
    described = {"in_features": 2, "out_features": 3, "bias": True, **settings}
    described = {"activation_function": "torch.nn.modules.activation.Tanh", **described}
    (folder / name / "config.json").write_text(json.dumps(described), encoding="utf-8")
    save_file(tensors, folder / name / "model.safetensors")
    return tensors


def read(folder: Path) -> SentenceModules:
    return read_modules(in_folder(folder), "a model")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_equals_what_is_reckoned_by_hand(pooling: Pooling) -> None:
    assert np.allclose(pool(HIDDEN, MASK, pooling), BY_HAND[pooling])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("form", ["one key", "one flag a mode"])
def test_both_forms_of_the_configuration_are_read(tmp_path: Path, pooling: Pooling, form: str) -> None:
    flag = {
        "cls": "cls_token",
        "max": "max_tokens",
        "mean": "mean_tokens",
        "weightedmean": "weightedmean_tokens",
    }
    settings: dict[str, Any] = {"pooling_mode": pooling, "embedding_dimension": 2}
    if form != "one key":
        flags = {f"pooling_mode_{flag.get(mode, mode)}": mode == pooling for mode in POOLINGS}
        settings = {"word_embedding_dimension": 2, **flags}
    assert read(write_modules(tmp_path, [TRANSFORMER, POOLING], settings)).pooling == pooling


def test_types_of_version_6_are_known(tmp_path: Path) -> None:
    package = "sentence_transformers.sentence_transformer.modules.pooling"
    found = read(write_modules(tmp_path, [TRANSFORMER, POOLING], {"pooling_mode": "cls"}, package))
    assert found.embeds and found.pooling == "cls"


def test_without_files_it_is_the_normalized_mean(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.pooling, found.step_names, found.embeds, found.files) == ("mean", ("Normalize",), False, {})
    assert np.allclose(found.embed(HIDDEN, MASK)[1], [0.5**0.5, 0.5**0.5])


def test_normalization_happens_only_where_it_is_listed(tmp_path: Path) -> None:
    plain = read(write_modules(tmp_path / "plain", [TRANSFORMER, POOLING]))
    assert np.allclose(plain.embed(HIDDEN, MASK), BY_HAND["mean"])
    unit = read(write_modules(tmp_path / "unit", [TRANSFORMER, POOLING, ("2_Normalize", "Normalize")]))
    assert np.allclose(np.linalg.norm(unit.embed(HIDDEN, MASK), axis=-1), 1)


def test_dense_modules_are_applied_in_their_order(tmp_path: Path) -> None:
    modules = [TRANSFORMER, POOLING, ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    tensors = write_dense(write_modules(tmp_path, modules))
    found = read(tmp_path)
    assert found.step_names == ("Dense", "Normalize")
    dense = np.tanh(np.array(BY_HAND["mean"]) @ tensors["linear.weight"].T + tensors["linear.bias"])
    expected = dense / np.linalg.norm(dense, axis=-1, keepdims=True)
    assert np.allclose(found.embed(HIDDEN, MASK), expected, atol=1e-6)


def test_the_length_is_that_of_sentence_bert_config(tmp_path: Path) -> None:
    folder = write_modules(tmp_path, [TRANSFORMER, POOLING], sentence_bert_config={"max_seq_length": 384})
    assert read(folder).max_length == 384


def test_all_files_can_be_written_again(tmp_path: Path) -> None:
    modules = [TRANSFORMER, POOLING, ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    others = {"sentence_bert_config": {"max_seq_length": 9}, "config_sentence_transformers": {"prompts": {}}}
    folder = write_modules(tmp_path / "source", modules, {"pooling_mode": "max"}, **others)
    write_dense(folder)
    write_files(read(folder), tmp_path / "copy")
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert len(names) == 6
    for name in names:
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()


def test_a_transformer_in_a_folder_of_its_own_is_found_and_saved_beside_the_rest(tmp_path: Path) -> None:
    folder = write_modules(
        tmp_path / "source",
        [("0_Transformer", "Transformer"), POOLING],
        **{"0_Transformer/sentence_bert_config": {"max_seq_length": 12}},
    )
    found = read(folder)
    assert (found.transformer, found.max_length) == ("0_Transformer", 12)
    write_files(found, tmp_path / "copy")
    copied = read(tmp_path / "copy")
    assert (copied.transformer, copied.max_length, copied.embeds) == ("", 12, True)


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        ([TRANSFORMER, POOLING, ("2_CNN", "CNN")], None, r"lists CNN, which Octavo cannot apply"),
        ([TRANSFORMER, POOLING], {"pooling_mode": ["mean", "max"]}, r"asks for the pooling mean \+ max"),
        (
            [TRANSFORMER, POOLING],
            {"pooling_mode": "attention"},
            r"pooling attention; Octavo knows one of mean",
        ),
        ([TRANSFORMER, ("../other", "Pooling")], None, r"names '\.\./other', which lies outside the folder"),
        (
            [TRANSFORMER, POOLING, ("2_Dense", "Dense")],
            None,
            r"has no 2_Dense/config\.json, which modules\.json",
        ),
        ([TRANSFORMER, ("7_Pooling", "Pooling")], None, r"has no 7_Pooling/config\.json"),
    ],
    ids=["unknown module", "two modes", "unknown mode", "outside", "no dense", "no pooling"],
)
def test_what_cannot_be_applied_is_named(
    tmp_path: Path, modules: list[tuple[str, str]], pooling: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(ModelError, match=f"^a model.*{message}"):
        read(write_modules(tmp_path, modules, pooling))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"activation_function": "torch.nn.modules.activation.Hardshrink"},
            "activation_function 'Hardshrink'",
        ),
        ({"use_residual": True}, "use_residual True"),
        ({"module_input_name": "token_embeddings"}, "module_input_name 'token_embeddings'"),
    ],
    ids=["activation", "residual", "tokens"],
)
def test_dense_settings_that_cannot_be_applied_are_named(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    write_dense(write_modules(tmp_path, [TRANSFORMER, POOLING, ("2_Dense", "Dense")]), **settings)
    with pytest.raises(ModelError, match=f"2_Dense has {message}, which Octavo cannot apply"):
        read(tmp_path)


def test_pickled_dense_weights_are_not_opened(tmp_path: Path) -> None:
    write_dense(write_modules(tmp_path, [TRANSFORMER, POOLING, ("2_Dense", "Dense")]))
    (tmp_path / "2_Dense" / "model.safetensors").rename(tmp_path / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(
        ModelError, match=r"has no 2_Dense/model\.safetensors \(pickled weights are not opened\)"
    ):
        read(tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    write_modules(tmp_path, [TRANSFORMER, POOLING])
    (tmp_path / "1_Pooling" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match=r"1_Pooling/config\.json cannot be read"):
        read(tmp_path)
    (tmp_path / "modules.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"modules\.json is not a list of modules"):
        read(tmp_path)


def test_a_default_prompt_and_lower_case_are_told(tmp_path: Path) -> None:
    settings = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write_modules(tmp_path, [TRANSFORMER, POOLING], config_sentence_transformers=settings)
    with pytest.warns(
        OctavoWarning, match=r"puts the prompt 'query' \('query: '\) before every text, Octavo does not"
    ):
        read(tmp_path)
    (tmp_path / "config_sentence_transformers.json").unlink()
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    with pytest.warns(OctavoWarning, match=r"sentence_bert_config\.json asks for lower case"):
        read(tmp_path)


def test_a_sparse_encoder_is_not_taken_for_an_embedding_model(tmp_path: Path) -> None:
    write_modules(tmp_path, [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")])
    with pytest.warns(OctavoWarning, match="lists no Pooling.*MLMTransformer, SpladePooling is not applied"):
        assert not read(tmp_path).embeds


def test_a_cross_encoder_keeps_its_files_without_a_word(tmp_path: Path) -> None:
    settings = {"model_type": "CrossEncoder"}
    write_modules(tmp_path, [TRANSFORMER], config_sentence_transformers=settings)
    found = read(tmp_path)
    assert not found.embeds and set(found.files) == {"modules.json", "config_sentence_transformers.json"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pooling", POOLINGS)
def test_embeddings_equal_those_of_sentence_transformers(tmp_path: Path, pooling: Pooling) -> None:
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling as Reference

    features = {"token_embeddings": torch.from_numpy(HIDDEN), "attention_mask": torch.from_numpy(MASK)}
    expected = Reference(2, pooling_mode=pooling)(features)["sentence_embedding"]
    assert np.allclose(pool(HIDDEN, MASK, pooling), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "ReLU", "Sigmoid", "SiLU", "GELU"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_torch_and_numpy_make_the_same_embedding(activation: str, pooling: Pooling) -> None:
    import torch

    from octavo.graph.embedding import embed

    weight, bias = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    dense = Dense(weight=weight, bias=bias[:, 0], activation=activation)
    modules = SentenceModules(pooling=pooling, steps=(dense, Normalize()))
    found = embed(torch.from_numpy(HIDDEN), torch.from_numpy(MASK), modules)
    assert np.allclose(found.numpy(), modules.embed(HIDDEN, MASK), atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_torch_pools_as_numpy_does(pooling: Pooling) -> None:
    import torch

    from octavo.graph.embedding import pool as pool_in_torch

    found = pool_in_torch(torch.from_numpy(HIDDEN), torch.from_numpy(MASK), pooling)
    assert np.allclose(found.numpy(), BY_HAND[pooling])
