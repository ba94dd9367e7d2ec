"""Graphs: capture, sites, quantizers, saving and loading."""

from __future__ import annotations

from octavo.graph.encoder import Encoder as Encoder
from octavo.graph.encoder import Head as Head
from octavo.graph.encoder import Text as Text
from octavo.graph.load import load as load
from octavo.graph.quantized import QuantizedEncoder as QuantizedEncoder
from octavo.graph.quantized import attach as attach
from octavo.graph.quantized import fix_weights as fix_weights
from octavo.graph.quantizer import Quantizer as Quantizer
from octavo.graph.quantizer import State as State
from octavo.graph.sites import Site as Site
from octavo.graph.sites import in_placement as in_placement
