from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest

from octavo.errors import DataError, MissingExtraError, ModelError, OctavoError
from octavo.graph import QuantizedEncoder
from octavo.runtime.hub import push as pushing
from octavo.runtime.hub.layout import write_hub_folder
from octavo.runtime.hub.push import check_folder, has_measurements, push
from tests.runtime.hub.stand_in import StandIn, hub
from tests.runtime.hub.test_layout import files_of


@pytest.fixture(scope="module")
def folder(tiny_int8: QuantizedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("push") / "model"
    write_hub_folder(tiny_int8, target, check=False)
    return target


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with hub() as state:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", state.url)
        monkeypatch.setattr(huggingface_hub.HfApi, "__init__", _init_at(state.url))
        yield state


def _init_at(url: str):  # type: ignore[no-untyped-def]
    made = huggingface_hub.HfApi.__init__

    def init(self, *given, **named):  # type: ignore[no-untyped-def]
        made(self, *given, **{"endpoint": url, **named})

    return init


def test_a_folder_is_uploaded_whole_in_one_commit(server: StandIn, folder: Path) -> None:
    done = push(folder, "me/model", private=True, message="Ours", token=server.token)
    assert server.created["name"] == "model" and server.created["organization"] == "me"
    assert server.created.get("private") is True or server.created.get("visibility") == "private"
    assert set(server.files) == files_of(folder) and server.message == "Ours"
    for name, content in server.files.items():
        assert content == (folder / name).read_bytes()
    assert server.card == (folder / "README.md").read_text(encoding="utf-8")
    posts = [path.partition("?")[0] for method, path in server.calls if method == "POST"]
    assert posts[0] == "/api/repos/create" and posts[-1] == "/api/models/me/model/commit/main"
    assert done.repository == "me/model" and "/commit/" in done.commit


def test_a_pull_request_is_asked_for(server: StandIn, folder: Path) -> None:
    done = push(folder, "me/model", pull_request=True, token=server.token)
    posts = [path for method, path in server.calls if method == "POST"]
    # pushed to the pull request's own branch, and never to main
    assert any(path.endswith("/commit/refs%2Fpr%2F1") for path in posts)
    assert not any(path.endswith("/commit/main") for path in posts)
    assert "/discussions/1" in done.commit and set(server.files) == files_of(folder)


def test_a_refused_token_is_one_sentence(server: StandIn, folder: Path) -> None:
    with pytest.raises(OctavoError, match=r"me/model cannot be written: .*401"):
        push(folder, "me/model", token="wrong")
    assert not server.files


def test_a_hub_that_cannot_be_reached_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub() as gone:
        pass
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.HfApi, "__init__", _init_at(gone.url))
    with pytest.raises(OctavoError, match=r"me/model cannot be written: .*[Cc]onnect"):
        push(folder, "me/model", token="secret")


def test_what_is_missing_is_said_before_anything_is_sent(
    server: StandIn, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(OctavoError, match=r"no token for the hub; run hf auth login, or set HF_TOKEN"):
        push(folder, "me/model")
    for name in ("model", "me/modèle"):
        with pytest.raises(DataError, match=f"'{name}' is no repository of the hub; give owner/name"):
            push(folder, name, token="secret")
    with pytest.raises(
        ModelError, match=r"is not laid out for the hub \(it has no onnx/model\.onnx and no README"
    ):
        push(tmp_path, "me/model", token="secret")
    monkeypatch.setattr(pushing, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'octavo\[hub\]'"):
        push(folder, "me/model", token="secret")
    assert not server.calls


def test_a_card_without_measurements_is_noticed(folder: Path) -> None:
    assert not has_measurements(check_folder(folder))
