"""Rewrites: changes of a quantized graph that leave its function, or its grid, as it was."""
