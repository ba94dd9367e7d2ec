"""What a quantized model is, in numbers and in words: bits of its sites, bytes on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from octavo.graph import QuantizedEncoder


def describe(model: QuantizedEncoder, folder: Path) -> dict[str, Any]:
    """Plain data about a model saved in a folder: its sites at each bit-width and its sizes in bytes."""
    from octavo.graph.saved.write import WEIGHTS
    from octavo.graph.sizes import float_bytes, folder_bytes, sites_by_bits
    from octavo.methods.calibration.permutation import extra_parameters

    weights, fp32 = (folder / WEIGHTS).stat().st_size, float_bytes(model)
    return {
        "recipe": model.recipe.name,
        "placement": model.recipe.placement,
        "activation_sites": {_key(bits): count for bits, count in sites_by_bits(model, "activation").items()},
        "weight_sites": {_key(bits): count for bits, count in sites_by_bits(model, "weight").items()},
        "extra_parameters": extra_parameters(model),
        "weights_bytes": weights,
        "folder_bytes": folder_bytes(folder),
        "fp32_bytes": fp32,
        "times_smaller": fp32 / weights,
    }


def summary_table(described: dict[str, Any]) -> Table:
    """The same for people, without a frame."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("Activations", in_words(described["activation_sites"]))
    table.add_row("Weights", in_words(described["weight_sites"]))
    if described["extra_parameters"]:
        table.add_row("Groups", f"{described['extra_parameters']:,} extra parameters")
    table.add_row("Size on disk", size_in_words(described))
    return table


def in_words(counts: dict[str, int]) -> str:
    """`75 in 8 bits, 18 in 16 bits, 2 in float`."""
    widths = {bits: bits if bits == "float" else f"{bits} bits" for bits in counts}
    return ", ".join(f"{count} in {widths[bits]}" for bits, count in counts.items())


def size_in_words(described: dict[str, Any]) -> str:
    """`22.7 MB of weights, 3.98 times smaller than FP32 (90.3 MB); 23.6 MB with tokenizer and settings`."""
    weights, fp32, folder = (megabytes(described[f"{part}_bytes"]) for part in ("weights", "fp32", "folder"))
    ratio = f"{described['times_smaller']:.2f} times smaller than FP32 ({fp32})"
    return f"{weights} of weights, {ratio}; {folder} with tokenizer and settings"


def megabytes(count: int) -> str:
    """Bytes as `22.9 MB` (a million bytes each)."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _key(bits: int | None) -> str:
    return "float" if bits is None else str(bits)
