"""Targets: the processors that a file is made for, and whether this machine is one of them.

ONNX Runtime computes products of bytes exactly everywhere but on x86 processors without VNNI: there a signed
weight meets an unsigned activation in an instruction that adds two products in 16 bits, which saturate. With
unsigned weights, the same numbers shifted by 128, it takes instructions that do not.

The floats in between differ in their last bits from one processor to another, as norms, softmax and GELU do
not sum and round alike. Browsers need files without these differences to give Python's vectors; they take
longer elsewhere.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import OctavoWarning, SpecError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a file is made for.

    Arguments:
        sentence: the processors, as the file says them of itself.
        without_vnni: whether sums of products must not saturate on x86 processors without VNNI.
        exact_floats: whether norms, softmax and GELU are written so that they give the same bits everywhere.
    """

    name: str
    sentence: str
    without_vnni: bool = False
    exact_floats: bool = False


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            name="vnni",
            sentence="made for x86 with VNNI and for Arm; on other x86 processors sums of products with "
            "8-bit weights may saturate: export with --target avx2 for those",
        ),
        Target(name="avx2", sentence="made for x86 processors without VNNI; right on all", without_vnni=True),
        Target(
            name="web",
            sentence="made for WebAssembly, with the same vectors on x86 with VNNI; on other x86 processors "
            "sums of products with 8-bit weights may saturate: export with --target any for those",
            exact_floats=True,
        ),
        Target(
            name="any",
            sentence="made for any processor: the same vectors on x86 with and without VNNI, and in "
            "WebAssembly",
            without_vnni=True,
            exact_floats=True,
        ),
    )
}
"""Every target by its name."""

DEFAULT_TARGET = "vnni"


def find_target(name: str) -> Target:
    """Return the target of this name, or say which there are."""
    if name not in TARGETS:
        hint = did_you_mean(name, TARGETS) or f"; use {', '.join(TARGETS)}"
        raise SpecError(f"unknown target {name!r}{hint}")
    return TARGETS[name]


def warn_of_processor(name: str, metadata: Mapping[str, str]) -> None:
    """Warn where a file was made for other processors than this machine's."""
    target = TARGETS.get(metadata.get("target", ""))
    if target is not None and not target.without_vnni and lacks_vnni():
        warnings.warn(
            f"{name} was not made for this processor, an x86 without VNNI, where sums of products saturate; "
            f"export it with --target {'any' if target.exact_floats else 'avx2'}",
            OctavoWarning,
            stacklevel=3,
        )


def lacks_vnni(listing: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this is known to be an x86 processor without VNNI."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not listing.is_file():
        return False
    flags = [line for line in listing.read_text(encoding="utf-8").splitlines() if line.startswith("flags")]
    return bool(flags) and "vnni" not in flags[0]
