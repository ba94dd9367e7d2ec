"""Allocation: bits for every layer within a budget."""
