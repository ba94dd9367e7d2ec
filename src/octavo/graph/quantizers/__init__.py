"""Quantizers: attached to the sites of a graph, switched and watched."""
