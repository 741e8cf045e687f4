"""What Triton's sanitizers need of a launch: GSan its own memory, FpSan the same kernel with other options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from academy.runtime import launch  # before anything imports triton

import torch  # isort: skip
import triton  # isort: skip


def memory(sanitizer: str) -> contextlib.AbstractContextManager:
    """What PyTorch allocates inside is watched by this sanitizer. (That of GSan is known from Triton 3.9 on.)"""
    if sanitizer != "gsan":
        return contextlib.nullcontext()
    from triton.experimental.gsan import create_mem_pool

    return torch.cuda.use_mem_pool(create_mem_pool())


@contextlib.contextmanager
def launched(**options: int) -> Iterator[None]:
    """Kernels are launched with these options, but for Gluon's, whose layouts say how many warps there are."""
    original = triton.JITFunction.run

    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        gluon = hasattr(kernel, "is_gluon") and kernel.is_gluon()
        return original(kernel, *args, **{**kwargs, **({} if gluon else options)})

    triton.JITFunction.run = run
    launch.forget()
    try:
        yield
    finally:
        triton.JITFunction.run = original
        launch.forget()
