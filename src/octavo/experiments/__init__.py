"""Experiments: the paper's tables as grids of cells, run where there is room, rendered beside the paper's numbers."""
