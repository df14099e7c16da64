"""Kernels for NVIDIA GPUs, written in Triton. They compute what `chunk.py` computes."""
