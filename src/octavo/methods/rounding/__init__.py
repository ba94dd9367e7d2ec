"""Rounding: how weights choose between the two grid points around them."""
