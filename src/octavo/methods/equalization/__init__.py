"""Equalization: ranges moved between activations and weights without a change of the function."""
