from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_json_lists_activations_and_weights(run: Run, tiny: Path) -> None:
    document = json.loads(run("sites", tiny, "--json").stdout)
    assert {site["name"] for site in document["activation_sites"]} >= {"layers.1.ffn_residual"}
    assert {site["name"] for site in document["weight_sites"]} >= {"embeddings.token.weight"}
    assert len(document["activation_sites"]) == 3 + 13 * 2
    found = {site["name"]: site for site in document["activation_sites"]}["layers.0.ffn_hidden"]
    assert found == {"name": "layers.0.ffn_hidden", "role": "ffn_hidden", "shape": ["batch", "length", 64]}


def test_linear_inputs_are_fewer(run: Run, tiny: Path) -> None:
    document = json.loads(run("sites", tiny, "--json", "--placement", "linear-inputs").stdout)
    roles = {site["role"] for site in document["activation_sites"]}
    assert "ffn_residual" not in roles and {"ffn_input", "attention_probs"} <= roles


def test_the_table_cuts_no_name(run: Run, tiny: Path) -> None:
    shown = run("sites", tiny).stdout
    assert "layers.1.attention_residual" in shown and "batch x length x 32" in shown
    assert "embeddings.token.weight" not in shown
    assert "29 activation sites" in shown


def test_weights_are_added_on_demand(run: Run, tiny: Path) -> None:
    assert "embeddings.token_type.weight" in run("sites", tiny, "--weights").stdout


def test_a_saved_model_shows_bits(run: Run, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    assert run("quantize", tiny, "--recipe", "w8a32-e4", "-o", folder).exit_code == 0
    document = json.loads(run("sites", folder, "--json").stdout)
    bits = {site["name"]: site["bits"] for site in document["weight_sites"] + document["activation_sites"]}
    assert bits["embeddings.token.weight"] == 4
    assert bits["layers.0.query.weight"] == 8
    assert bits["layers.0.query"] is None
    assert {site["granularity"] for site in document["weight_sites"]} == {"per-tensor"}


def test_a_saved_model_shows_granularity_and_groups(
    run: Run, tiny: Path, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    arguments = ("--recipe", "w8a8-peg3", "--calibration", texts, "-o", folder)
    assert run("quantize", tiny, *arguments).exit_code == 0
    shown = {line.split()[1]: line for line in run("sites", folder).stdout.splitlines() if "layers." in line}
    assert "per-group, permuted" in shown["layers.0.ffn_output"]
    assert shown["layers.0.ffn_output"].split()[-2] == "3" and "per-tensor" in shown["layers.0.query"]
    sites = {
        site["name"]: site for site in json.loads(run("sites", folder, "--json").stdout)["activation_sites"]
    }
    keys = ("bits", "granularity", "groups", "permuted", "sizes")
    how = {key: sites["layers.0.ffn_output"][key] for key in keys}
    assert how == {
        "bits": 8,
        "granularity": "per-group",
        "groups": 3,
        "permuted": True,
        "sizes": [11, 11, 10],
    }


def test_a_saved_model_shows_the_sizes_of_uneven_groups(
    run: Run, tiny: Path, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    arguments = ("--recipe", "int8-full", "--calibration", texts, "-o", folder)
    assert run("quantize", tiny, *arguments).exit_code == 0
    sites = json.loads(run("sites", folder, "--json").stdout)["activation_sites"]
    sizes = next(site["sizes"] for site in sites if site["name"] == "layers.0.ffn_output")
    assert 1 < len(sizes) <= 6 and sum(sizes) == 32 and len(set(sizes)) > 1
    assert f"{len(sizes)} ({', '.join(map(str, sizes))})" in run("sites", folder).stdout


def test_a_float_model_shows_no_quantization(run: Run, tiny: Path) -> None:
    assert "granularity" not in run("sites", tiny).stdout
