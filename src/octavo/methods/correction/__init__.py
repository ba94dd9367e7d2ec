"""Correction: what quantization shifts on average is taken back."""
