"""Calibration: ranges, permutations and warnings from texts, for one recipe or several at once."""
