"""Experiments: the paper's tables as grids of cells, run where there is room, shown beside the paper."""
