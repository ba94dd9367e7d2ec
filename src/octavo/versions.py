"""The versions a result depends on, recorded beside every number and in every saved model."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

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


def processor() -> str:
    """The processor of this machine, as far as it says: its model, or its architecture."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
