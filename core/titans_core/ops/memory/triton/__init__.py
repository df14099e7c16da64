"""Triton kernels for NVIDIA GPUs. They compute the same as `chunk.py`."""
