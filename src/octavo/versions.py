"""The versions a result depends on, recorded beside every number and in every saved model."""

from __future__ import annotations

import sys

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Versions of Octavo, torch, transformers and Python."""
    import torch
    import transformers

    return {
        "octavo": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }
