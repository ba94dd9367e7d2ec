"""Methods: what turns a float encoder into a quantized one."""

from __future__ import annotations

from octavo.methods.ptq import calibrate as calibrate
from octavo.methods.ptq import quantize as quantize
