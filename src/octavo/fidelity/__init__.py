"""Fidelity: how close the outputs of one model are to those of another, without labels."""

from __future__ import annotations

from octavo.fidelity.measures import Cosine as Cosine
from octavo.fidelity.measures import Fidelity as Fidelity
from octavo.fidelity.measures import Neighbours as Neighbours
from octavo.fidelity.measures import Quality as Quality
from octavo.fidelity.measures import read_measure as read_measure
from octavo.fidelity.reference import Reference as Reference
from octavo.fidelity.tally import FidelityTally as FidelityTally
from octavo.fidelity.tally import cosines as cosines
