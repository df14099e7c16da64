"""Triton kernels for the parts of a layer around the memory: one pass over the data, where PyTorch takes many."""
