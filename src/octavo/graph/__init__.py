"""Graphs: capture, sites, quantizers, saving and loading."""

from __future__ import annotations

from octavo.graph.encoder import Encoder as Encoder
from octavo.graph.encoder import Head as Head
from octavo.graph.encoder import Text as Text
from octavo.graph.quantizers.attach import QuantizedEncoder as QuantizedEncoder
from octavo.graph.quantizers.attach import attach as attach
from octavo.graph.quantizers.attach import fix_weights as fix_weights
from octavo.graph.quantizers.quantizer import Quantizer as Quantizer
from octavo.graph.quantizers.quantizer import State as State
from octavo.graph.sites.site import Site as Site
from octavo.graph.sites.site import in_placement as in_placement
