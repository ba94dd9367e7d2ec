"""`octavo sites`: every site of a model, its role and shape, and how a saved model quantizes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import HeadOption, ModelArgument

if TYPE_CHECKING:
    from octavo.graph import Encoder, Site
    from octavo.graph.quantizers.description import Quantization

_HELP = """List the sites of a model: every place where a tensor can be quantized.

A site has a name that recipes refer to (`layers.3.ffn_output`), a role that is the same in every encoder
(`ffn_output`), and a shape. Activations are listed in the order of computation. A model that Octavo saved
also shows how each site is quantized: bits, granularity, how many groups have a range of their own, and how
many channels are in each where their sizes differ.

Examples:

* `octavo sites demo:minilm`
* `octavo sites demo:minilm --placement linear-inputs --weights`
* `octavo sites minilm-w8a8` (a folder that `octavo quantize` saved)
* `octavo sites bert-base-uncased --json`
"""


class Placement(StrEnum):
    """Which activations are listed."""

    full = "full"
    linear_inputs = "linear-inputs"


@command("sites", _HELP)
def _sites(
    console: Console,
    model: ModelArgument,
    placement: Annotated[
        Placement,
        typer.Option(
            "--placement",
            help="Which activations: full is the paper's set, linear-inputs what integer kernels read "
            "(inputs of linear layers and of the two attention products).",
        ),
    ] = Placement.full,
    weights: Annotated[bool, typer.Option("--weights", help="Add a table of the weights.")] = False,
    head: HeadOption = None,
) -> None:
    encoder = console.load(model, head=head)
    activation_sites, weight_sites = _in_placement(encoder, placement), encoder.weight_sites
    quantized = _quantized(encoder)
    console.show(_table(f"Activations ({placement})", activation_sites, quantized))
    if weights:
        console.show(_table("Weights", weight_sites, quantized))
    console.show(f"{len(activation_sites)} activation sites, {len(weight_sites)} weights.")
    console.result(
        {
            "model": model,
            "head": encoder.head,
            "placement": placement,
            "activation_sites": _entries(activation_sites, quantized),
            "weight_sites": _entries(weight_sites, quantized),
        }
    )


def _in_placement(encoder: Encoder, placement: Placement) -> tuple[Site, ...]:
    from octavo.graph import in_placement

    return in_placement(encoder.activation_sites, placement.value)


def _quantized(encoder: Encoder) -> dict[str, Quantization] | None:
    """Return how every quantized site is quantized, or None for a float model."""
    from octavo.graph import QuantizedEncoder
    from octavo.graph.quantizers.description import describe_quantizer

    if not isinstance(encoder, QuantizedEncoder):
        return None
    return {name: describe_quantizer(quantizer) for name, quantizer in encoder.quantizers.items()}


def _table(title: str, sites: Iterable[Site], quantized: dict[str, Quantization] | None) -> Table:
    table = Table(title=title, title_justify="left")
    for header in ("site", "role", "shape"):
        table.add_column(header, no_wrap=True)
    if quantized is not None:
        table.add_column("bits", justify="right")
        table.add_column("granularity", no_wrap=True)
        table.add_column("groups", justify="right")
    for site in sites:
        cells = [] if quantized is None else _cells(quantized.get(site.name))
        table.add_row(site.name, site.role, shape_in_words(site), *cells)
    return table


def _cells(how: Quantization | None) -> list[str]:
    """Return the cells of bits, granularity and groups."""
    if how is None:
        return ["float", "", ""]
    granularity = f"{how.granularity}, permuted" if how.permuted else how.granularity
    bits = str(how.bits) if how.format == "integer" else how.format
    return [bits, granularity, _groups(how)]


def _groups(how: Quantization) -> str:
    """Return `6`, or `3 (370, 12, 2)` where sizes are not the even ones that the number tells."""
    if how.groups is None or not how.sizes or max(how.sizes) - min(how.sizes) <= 1:
        return "" if how.groups is None else str(how.groups)
    return f"{how.groups} ({', '.join(map(str, how.sizes))})"


def shape_in_words(site: Site) -> str:
    """Return `batch x length x 384`."""
    return " x ".join(map(str, site.shape))


def _entries(sites: Iterable[Site], quantized: dict[str, Quantization] | None) -> list[dict[str, Any]]:
    return [
        site.to_dict() | ({} if quantized is None else _entry(quantized.get(site.name))) for site in sites
    ]


def _entry(how: Quantization | None) -> dict[str, Any]:
    if how is None:
        return dict.fromkeys(("bits", "granularity", "groups", "permuted", "sizes", "format"))
    return asdict(how)
