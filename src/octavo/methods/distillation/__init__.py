"""Distillation: quantization-aware training without labels, with the float model as the teacher."""
