"""Capture: from a name, a folder or a network in memory to a graph with its inputs, length and pooling."""
