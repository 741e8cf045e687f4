"""Kernels below Triton, for Hopper: layouts, barriers and asynchronous copies are written by hand."""
