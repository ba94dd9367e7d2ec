"""A quantized model in words: bits of its sites, bytes on disk."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def summary_table(described: dict[str, Any]) -> Table:
    """Return a table without a frame of what `describe_saved` found."""
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
    """Return `75 in 8 bits, 18 in 16 bits, 2 in float`."""
    widths = {bits: bits if bits == "float" else f"{bits} bits" for bits in counts}
    return ", ".join(f"{count} in {widths[bits]}" for bits, count in counts.items())


def size_in_words(described: dict[str, Any]) -> str:
    """Return `22.7 MB of weights, 3.98 times smaller than FP32 (90.3 MB); 23.6 MB with tokenizer and ...`."""
    weights, fp32, folder = (megabytes(described[f"{part}_bytes"]) for part in ("weights", "fp32", "folder"))
    ratio = f"{described['times_smaller']:.2f} times smaller than FP32 ({fp32})"
    return f"{weights} of weights, {ratio}; {folder} with tokenizer and settings"


def megabytes(count: int) -> str:
    """Return bytes as `22.9 MB` (a million bytes each)."""
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"
