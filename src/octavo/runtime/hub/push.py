"""Upload a folder to the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from octavo.errors import DataError, MissingExtraError, ModelError, OctavoError
from octavo.runtime.hub.card import NOT_MEASURED
from octavo.runtime.hub.layout import PLAIN, README

_REPOSITORY = re.compile(r"[\w\-.]+/[\w\-.]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What was uploaded: the repository, its address, and the commit's (or pull request's)."""

    repository: str
    url: str
    commit: str


def push(
    folder: str | Path,
    repository: str,
    *,
    private: bool = False,
    pull_request: bool = False,
    message: str = "Quantized with Octavo",
    token: str | None = None,
) -> Pushed:
    """Upload a folder that `octavo export --layout hub` wrote; the repository is made if it is not there.

    Arguments:
        repository: `owner/name`.
        private: make a new repository private.
        pull_request: leave the branch as it is and open a pull request.
        token: of an account that may write; the one of `hf auth login` or HF_TOKEN if left out.
    """
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("hub", "Uploading to the hub")
    import huggingface_hub

    place = check_folder(folder)
    if not _REPOSITORY.fullmatch(repository):
        raise DataError(f"{repository!r} is no repository of the hub; give owner/name")
    chosen = token or huggingface_hub.get_token()
    if not chosen:
        raise OctavoError(
            "there is no token for the hub; run hf auth login, or set HF_TOKEN to one that may write"
        )
    api = huggingface_hub.HfApi(token=chosen)
    try:
        url = api.create_repo(repository, private=private, exist_ok=True)
        made = api.upload_folder(
            repo_id=repository,
            folder_path=place,
            commit_message=message,
            create_pr=pull_request,
        )
    except (
        Exception
    ) as error:  # of the hub, of the disk, and of whichever HTTP library the hub's package uses
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise OctavoError(f"{repository} cannot be written: {reason.strip()}") from error
    return Pushed(repository=repository, url=str(url), commit=made.pr_url or str(made.commit_url))


def check_folder(folder: str | Path) -> Path:
    """Return the folder, or say that it is none of those that are laid out for the hub."""
    place = Path(folder)
    missing = [name for name in (PLAIN, README) if not (place / name).is_file()]
    if missing:
        raise ModelError(
            f"{place} is not laid out for the hub (it has no {' and no '.join(missing)}); "
            "write it with octavo export MODEL -o DIR --layout hub"
        )
    return place


def has_measurements(folder: Path) -> bool:
    """Return whether the model card of a folder tells what was measured."""
    return NOT_MEASURED not in (folder / README).read_text(encoding="utf-8")
