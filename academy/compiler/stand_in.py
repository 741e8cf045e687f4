"""A GPU that isn't there: what PyTorch and Triton ask of one before a launch, answered from the table of cards.

Files are run unchanged, `device="cuda"` and all. Their tensors lie in ordinary memory, say that they are on the GPU,
and keep their real addresses, sizes and strides, since kernels are compiled for those. Nothing is launched, so what a
kernel would have written is whatever the memory holds.

Works in a process that neither interprets kernels nor sees a real card: `academy.compiler.service` starts one.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import triton.testing
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget

from academy.compiler.cards import Card

_HERE = torch.device("cuda", 0)


class Driver:
    """In the place of Triton's driver of a card."""

    def __init__(self, card: Card):
        self.card = card
        properties = dict(max_shared_mem=card.shared, multiprocessor_count=card.sms, warpSize=32, max_num_regs=65536)
        self.utils = types.SimpleNamespace(get_device_properties=lambda device: properties)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.card.arch, 32)

    def get_current_device(self) -> int:
        return self.card.arch  # Triton keeps what it compiled by the number of the device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return _HERE

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        return _once


def _once(call, *_, quantiles=None, **__):
    """In the place of `do_bench`: a launch is looked at, not timed."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


class _OnTheCard(TorchFunctionMode):
    """Tensors in ordinary memory say that they are on the card, and are made there when the card is asked for."""

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        if function in _ANSWERS and args[0].device.type == "cpu":
            return _ANSWERS[function]
        if function is torch.Tensor.cuda:
            return args[0]
        args, kwargs = tuple(map(_in_memory, args)), {name: _in_memory(value) for name, value in (kwargs or {}).items()}
        wider = kwargs.pop("out_dtype", None) if function in _PRODUCTS else None  # on the CPU they have no such option
        if wider is not None:
            args = tuple(each.to(wider) if isinstance(each, torch.Tensor) else each for each in args)
        return function(*args, **kwargs)


def _in_memory(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


_ANSWERS = {
    torch.Tensor.device.__get__: _HERE,
    torch.Tensor.is_cuda.__get__: True,
    torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}
_PRODUCTS = (torch.mm, torch.bmm, torch.addmm, torch.baddbmm)


def _cuda(card: Card) -> dict[str, Any]:
    """What stands for `torch.cuda`'s functions."""
    major, minor = card.capability
    properties = types.SimpleNamespace(
        name=card.names, major=major, minor=minor, multi_processor_count=card.sms, warp_size=32,
        shared_memory_per_block=48 << 10, shared_memory_per_block_optin=card.shared,
        shared_memory_per_multiprocessor=card.shared + 1024, regs_per_multiprocessor=card.registers,
        max_threads_per_multi_processor=card.threads, total_memory=24 << 30, L2_cache_size=50 << 20,
    )  # fmt: skip
    nothing = lambda *args, **kwargs: None  # noqa: E731
    stream = types.SimpleNamespace(cuda_stream=0, synchronize=nothing, wait_stream=nothing)
    event = types.SimpleNamespace(record=nothing, synchronize=nothing, elapsed_time=lambda other: 1.0)
    return dict(
        is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, set_device=nothing,
        get_device_properties=lambda device=None: properties, get_device_name=lambda device=None: card.names,
        get_device_capability=lambda device=None: (major, minor), is_bf16_supported=lambda *args, **kwargs: True,
        synchronize=nothing, empty_cache=nothing, manual_seed=nothing, manual_seed_all=nothing,
        current_stream=lambda device=None: stream, Stream=lambda *args, **kwargs: stream,
        Event=lambda *args, **kwargs: event, stream=lambda stream: contextlib.nullcontext(),
        device=lambda device: contextlib.nullcontext(), device_of=lambda tensor: contextlib.nullcontext(),
        max_memory_allocated=lambda device=None: 0, memory_allocated=lambda device=None: 0,
        reset_peak_memory_stats=nothing,
    )  # fmt: skip


@contextlib.contextmanager
def on_card(card: Card) -> Iterator[None]:
    """Inside, PyTorch and Triton see this card, and nothing else."""
    places: list[tuple[Any, str, Any]] = [(torch.cuda, name, value) for name, value in _cuda(card).items()]
    places.append((triton.testing, "do_bench", _once))
    before = triton.runtime.driver._active
    with contextlib.ExitStack() as stack:
        for owner, name, value in places:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        stack.callback(setattr, triton.runtime.driver, "_active", before)
        triton.runtime.driver.set_active(Driver(card))
        stack.enter_context(_OnTheCard())
        yield
