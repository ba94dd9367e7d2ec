"""Training: the loop, fine-tuning in float, and quantization-aware training."""
