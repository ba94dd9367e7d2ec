"""Methods: what turns a float encoder into a quantized one."""

from __future__ import annotations

from octavo.methods.calibration.ranges import calibrate as calibrate
from octavo.methods.loading import load as load
from octavo.methods.pipeline import quantize as quantize
