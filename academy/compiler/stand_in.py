"""A GPU that isn't there: what PyTorch and Triton are asked of one, answered from the table of cards.

Files are run unchanged, `device="cuda"`, `assert x.is_cuda` and all. Their tensors lie in ordinary memory, say that
they are on the GPU, and keep their real addresses, sizes and strides. There are two uses:

- `on_card`, where kernels are compiled and not launched, in a process that neither interprets kernels nor sees a real
  card (`academy.compiler.service` starts one). Everybody there sees the card; what a kernel would have written is
  whatever the memory holds.
- `for_files`, where kernels are interpreted. Only the code of readers' files sees the card. This project's own, which
  knows of the interpreter, PyTorch's and Triton's see the machine as it is. `used()` tells what was asked for.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
import triton.testing
from torch.autograd.function import BackwardCFunction
from triton.backends.compiler import GPUTarget

from academy.book.layout import KERNELS, ROOT
from academy.compiler import cards
from academy.compiler.cards import Card
from academy.runtime.modes import FunctionMode

_HERE = torch.device("cuda", 0)
#: What stands in where kernels are interpreted: with few SMs, so that a persistent kernel takes more than one tile.
_FEW = dataclasses.replace(cards.card(cards.DEFAULT), sms=4)
_used: dict[str, None] = {}


def used() -> str:
    """What files have asked of a GPU in the last `for_files`, in a sentence; "" if nothing."""
    return f"there is no GPU here, so these had a stand-in: {', '.join(_used)}" if _used else ""


def _note(name: str) -> None:
    if name:
        _used[name] = None


# ---------------------------------------------------------------- the table
def _once(call, *_, quantiles=None, **__):
    """In the place of `do_bench`: a launch is looked at, not timed."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _nowhere(*args: Any, **kwargs: Any) -> Any:
    """In the place of what a `with` switches to."""
    return contextlib.nullcontext()


def _table(card: Card) -> dict[str, Any]:
    """Full name -> what stands for it."""
    major, minor = card.capability
    properties = types.SimpleNamespace(
        name=card.names, major=major, minor=minor, multi_processor_count=card.sms, warp_size=32,
        shared_memory_per_block=48 << 10, shared_memory_per_block_optin=card.shared,
        shared_memory_per_multiprocessor=card.shared + 1024, regs_per_multiprocessor=card.registers,
        max_threads_per_multi_processor=card.threads, total_memory=24 << 30, L2_cache_size=50 << 20,
    )  # fmt: skip
    members = dict(cuda_stream=0, device=_HERE, query=lambda *_: True)
    members |= dict.fromkeys(("synchronize", "wait_stream", "wait_event"), _nothing)
    stream = type("Stream", (), members)()  # may be a key, as PyTorch's may
    event = types.SimpleNamespace(
        record=_nothing, wait=_nothing, synchronize=_nothing, query=lambda: True, elapsed_time=lambda other: 1.0
    )
    a_stream, an_event = lambda *args, **kwargs: stream, lambda *args, **kwargs: event
    generator = torch.Generator
    return {
        # Whether there is a GPU, and which: launchers ask before they launch, files choose `DEVICE` by it.
        "torch.cuda.is_available": lambda: True,
        "torch.cuda.is_initialized": lambda: True,
        "torch.cuda.init": _nothing,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.current_device": lambda: 0,
        "torch.accelerator.is_available": lambda: True,
        "torch.accelerator.current_accelerator": lambda *args, **kwargs: torch.device("cuda"),
        "torch.accelerator.current_device_index": lambda: 0,
        "torch.accelerator.device_count": lambda: 1,
        # What it has: grids of persistent kernels and tiles hang on it.
        "torch.cuda.get_device_properties": lambda device=None: properties,
        "torch.cuda.get_device_name": lambda device=None: card.names,
        "torch.cuda.get_device_capability": lambda device=None: (major, minor),
        "torch.cuda.is_bf16_supported": lambda *args, **kwargs: True,
        # The current one, which a launcher switches to that of its tensors.
        "torch.cuda.set_device": _nothing,
        "torch.cuda.device": _nowhere,
        "torch.cuda.device_of": _nowhere,
        "torch.accelerator.set_device_index": _nothing,
        "torch.set_default_device": _nothing,
        # Streams and events: what was launched has run.
        "torch.cuda.synchronize": _nothing,
        "torch.accelerator.synchronize": _nothing,
        "torch.cuda.current_stream": a_stream,
        "torch.cuda.default_stream": a_stream,
        "torch.cuda.Stream": a_stream,
        "torch.cuda.stream": _nowhere,
        "torch.cuda.set_stream": _nothing,
        "torch.cuda.Event": an_event,
        "torch.cuda.nvtx.range": _nowhere,
        "torch.cuda.nvtx.range_push": _nothing,
        "torch.cuda.nvtx.range_pop": _nothing,
        # Its memory, and its random numbers.
        "torch.cuda.empty_cache": _nothing,
        "torch.cuda.mem_get_info": lambda device=None: (properties.total_memory,) * 2,
        "torch.cuda.memory_allocated": lambda device=None: 0,
        "torch.cuda.max_memory_allocated": lambda device=None: 0,
        "torch.cuda.reset_peak_memory_stats": _nothing,
        "torch.cuda.manual_seed": _nothing,
        "torch.cuda.manual_seed_all": _nothing,
        "torch.Generator": lambda device="cpu": generator(_in_memory(device)),
        # Times.
        "triton.testing.do_bench": _once,
        "triton.testing.do_bench_cudagraph": _once,
    }


#: Attributes of tensors in ordinary memory -> what they say.
_ATTRIBUTES = {
    torch.Tensor.device.__get__: ("", _HERE),  # everybody asks: nothing worth telling
    torch.Tensor.is_cuda.__get__: ("x.is_cuda", True),
    torch.Tensor.is_cpu.__get__: ("x.is_cpu", False),
    torch.Tensor.get_device: ("x.get_device()", 0),
}
#: Methods of tensors that move them to where they are.
_MOVES = {torch.Tensor.cuda: "x.cuda()", torch.Tensor.pin_memory: "x.pin_memory()"}
_PRODUCTS = (torch.mm, torch.bmm, torch.addmm, torch.baddbmm)


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


class _NotedDriver(Driver):
    def get_current_device(self) -> int:
        return 0

    def __getattribute__(self, name: str) -> Any:
        if name in vars(Driver) or name == "utils":
            _note("triton.runtime.driver.active")
        return super().__getattribute__(name)


# ---------------------------------------------------------------- who asks
def _everybody(frame: types.FrameType) -> bool:
    return True


#: Code that sees the machine as it is.
_OWN = tuple(
    f"{folder}{os.sep}"
    for folder in (ROOT / "academy", ROOT / KERNELS, *(os.path.dirname(package.__file__ or "")
                   for package in (torch, triton, numpy)))
)  # fmt: skip


def _a_file(frame: types.FrameType) -> bool:
    """Whether code runs that isn't this project's, PyTorch's or Triton's."""
    return _is_foreign(frame.f_code.co_filename)


@functools.cache
def _is_foreign(path: str) -> bool:
    return not path.startswith(("<", *_OWN))


class _OnTheCard(FunctionMode):
    """Tensors in ordinary memory say that they are on the card, and are made there when the card is asked for."""

    def __init__(self, asks: Callable[[types.FrameType], bool]):
        super().__init__()
        self.asks = asks

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        if function in _ATTRIBUTES:
            if self.asks(sys._getframe(1)) and function(args[0], *args[1:]) in _IN_MEMORY:
                name, answer = _ATTRIBUTES[function]
                _note(name)
                return answer
            return function(*args, **(kwargs or {}))
        if function in _MOVES:
            _note(_MOVES[function])
            return args[0]
        kwargs = kwargs or {}
        if function is torch.Tensor.to and len(args) > 1:
            args = args[0], _in_memory(args[1]), *args[2:]
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _in_memory(kwargs["device"])}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if function in _PRODUCTS and (wider := kwargs.pop("out_dtype", None)) is not None:
            # on the CPU they have no such option
            args = tuple(each.to(wider) if isinstance(each, torch.Tensor) else each for each in args)
        return function(*args, **kwargs)


#: What `_ATTRIBUTES` are of a tensor in ordinary memory.
_IN_MEMORY = (torch.device("cpu"), False, True, -1)


def _in_memory(device: Any) -> Any:
    """Ordinary memory for the card's; an int is the number of a card."""
    there = device.type == "cuda" if isinstance(device, torch.device) else type(device) is int
    if there or isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        _note("" if device is _HERE else 'device="cuda"')
        return torch.device("cpu")
    return device


class _Kind(type):
    """A class that an answer stands for: what is made of it is the answer, its instances are still its instances."""

    original: type
    asked: Callable

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.asked(*args, **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.original)


def _standing(name: str, original: Any, answer: Any, asks: Callable[[types.FrameType], bool]) -> Any:
    """`original`, but for those who ask for the card."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_code is _Kind.__call__.__code__:
            frame = frame.f_back or frame
        if not asks(frame):
            return original(*args, **kwargs)
        _note(name)
        return answer(*args, **kwargs)

    if isinstance(original, type):
        return _Kind(original.__name__, (), {"original": original, "asked": staticmethod(asked)})
    return functools.wraps(original)(asked)


@contextlib.contextmanager
def _answered(card: Card, driver: Driver, asks: Callable[[types.FrameType], bool]) -> Iterator[None]:
    before = triton.runtime.driver._active
    with contextlib.ExitStack() as stack:
        for name, answer in _table(card).items():
            path, _, last = name.rpartition(".")
            owner: Any = {"torch": torch, "triton": triton}[path.partition(".")[0]]
            for part in path.split(".")[1:]:
                owner = getattr(owner, part, None)
            if (original := getattr(owner, last, None)) is not None:  # of this version
                stack.callback(setattr, owner, last, original)
                setattr(owner, last, _standing(name, original, answer, asks))
        stack.callback(setattr, triton.runtime.driver, "_active", before)
        triton.runtime.driver.set_active(driver)
        mode, backward = stack.enter_context(_OnTheCard(asks)), BackwardCFunction.apply

        def apply(self, *gradients):
            with mode:  # which `Tensor.backward` leaves
                return backward(self, *gradients)

        stack.callback(setattr, BackwardCFunction, "apply", backward)
        BackwardCFunction.apply = apply
        yield


def on_card(card: Card) -> contextlib.AbstractContextManager[None]:
    """Inside, PyTorch and Triton see this card, and nothing else."""
    return _answered(card, Driver(card), _everybody)


def for_files() -> contextlib.AbstractContextManager[None]:
    """Inside, readers' files see a card with four SMs, whose kernels are interpreted. Where there is a GPU, or kernels
    are compiled, nothing changes."""
    if torch.cuda.is_available() or type(triton.language.standard.sum).__name__ != "InterpretedFunction":
        return contextlib.nullcontext()
    _used.clear()
    return _answered(_FEW, _NotedDriver(_FEW), _a_file)
