"""Snapshots of the sites of every family: one line of JSON for each, so that a change reads as a diff."""

from __future__ import annotations

import json
from pathlib import Path

from octavo.graph import Encoder, Site

FOLDER = Path(__file__).parent


def render(encoder: Encoder) -> str:
    """The sites of an encoder as JSON: [name, role, shape], and "linear-input" if it is one."""
    sections = {"activation_sites": encoder.activation_sites, "weight_sites": encoder.weight_sites}
    parts = [f' "{name}": [\n' + ",\n".join(map(_line, sites)) + "\n ]" for name, sites in sections.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(site: Site) -> str:
    entry = [site.name, site.role, list(site.shape), *(["linear-input"] if site.is_linear_input else [])]
    return "  " + json.dumps(entry)


def golden_file(family: str) -> Path:
    """Where the snapshot of a family lies."""
    return FOLDER / f"{family}.json"
