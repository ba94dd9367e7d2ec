"""Diagnosis: why a transformer breaks when it is quantized, as numbers, sentences and a report."""

from __future__ import annotations

from octavo.diagnosis.chapter import Finding as Finding
from octavo.diagnosis.diagnosis import Diagnosis as Diagnosis
from octavo.diagnosis.run import diagnose as diagnose
