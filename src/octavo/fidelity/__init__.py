"""Fidelity: how close the outputs of one model are to those of another, without labels."""
