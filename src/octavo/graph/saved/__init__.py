"""Saved models: plain files, written and read."""
