"""`octavo sites`: every place of a model where a tensor can be quantized."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from octavo.cli.options import DebugOption, Device, DeviceOption, JsonOption, ModelArgument, SeedOption
from octavo.cli.session import session

if TYPE_CHECKING:
    from octavo.graph import Encoder, Site

_HELP = """List the sites of a model: every place where a tensor can be quantized.

A site has a name that recipes refer to (`layers.3.ffn_output`), a role that is the same in every encoder
(`ffn_output`), and a shape. Activations are listed in the order of computation. Of a model that Octavo saved,
the bits of each site are shown as well.

Examples:

* `octavo sites demo:minilm`
* `octavo sites demo:minilm --placement linear-inputs --weights`
* `octavo sites bert-base-uncased --json`
"""


class Placement(StrEnum):
    """Which activations are listed."""

    full = "full"
    linear_inputs = "linear-inputs"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sites", help=_HELP)(_sites)


def _sites(
    model: ModelArgument,
    placement: Annotated[
        Placement,
        typer.Option(
            help="Which activations: full is the paper's set, linear-inputs what integer kernels read "
            "(inputs of linear layers and of the two attention products)."
        ),
    ] = Placement.full,
    weights: Annotated[bool, typer.Option("--weights", help="Add a table of the weights.")] = False,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    debug: DebugOption = False,
) -> None:
    with session(as_json=as_json, seed=seed, device=device, debug=debug) as current:
        encoder = current.load(model)
        activation_sites, weight_sites = _chosen(encoder, placement), encoder.weight_sites
        bits = _bits(encoder)
        current.show(_table(f"Activations ({placement})", activation_sites, bits))
        if weights:
            current.show(_table("Weights", weight_sites, bits))
        current.show(f"{len(activation_sites)} activation sites, {len(weight_sites)} weights.")
        current.result(
            {
                "model": model,
                "head": encoder.head,
                "placement": placement,
                "activation_sites": _entries(activation_sites, bits),
                "weight_sites": _entries(weight_sites, bits),
            }
        )


def _chosen(encoder: Encoder, placement: Placement) -> tuple[Site, ...]:
    from octavo.graph import in_placement

    return in_placement(encoder.activation_sites, placement.value)


def _bits(encoder: Encoder) -> dict[str, int] | None:
    """The bits of every quantized site, or None for a float model."""
    from octavo.graph import QuantizedEncoder

    if not isinstance(encoder, QuantizedEncoder):
        return None
    return {name: quantizer.spec.bits for name, quantizer in encoder.quantizers.items()}


def _table(title: str, sites: Iterable[Site], bits: dict[str, int] | None) -> Table:
    table = Table(title=title, title_justify="left")
    for header in ("site", "role", "shape"):
        table.add_column(header, no_wrap=True)
    if bits is not None:
        table.add_column("bits", justify="right")
    for site in sites:
        width = [] if bits is None else [str(bits.get(site.name, "float"))]
        table.add_row(site.name, site.role, shape_in_words(site), *width)
    return table


def shape_in_words(site: Site) -> str:
    """`batch x length x 384`."""
    return " x ".join(map(str, site.shape))


def _entries(sites: Iterable[Site], bits: dict[str, int] | None) -> list[dict[str, Any]]:
    return [site.to_dict() | ({} if bits is None else {"bits": bits.get(site.name)}) for site in sites]
