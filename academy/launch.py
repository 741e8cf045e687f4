"""A launch with a cache: what `kernel[grid](…)` works out again for every call is worked out once for each kind of
call.

A call of `kernel[grid](x, y, n, BLOCK=1024)` has four steps before the GPU has anything to do.

1. *Bind*: put arguments, keywords and defaults in the order of the kernel's parameters.
2. *Specialise*: a kernel is compiled for what its arguments are. A tensor counts as its dtype and whether its address
   is a multiple of 16; an int as whether it is 1 or a multiple of 16, and whether it fits into 32 bits; a
   `tl.constexpr` as its value. Options such as `num_warps` count, too.
3. *Look up* the compiled kernel for that, or compile it. Before that, an autotuner looks up its choice, or searches.
4. *Launch*: hand the driver the grid, the stream, the compiled function and the arguments.

`launch` uses everything that step 2 looks at as the key of a dictionary, which leads straight to step 4. The first call
of a kind is made by Triton, and what it compiled is remembered. Every call still looks at the device, the stream, each
tensor's dtype and address, all numbers, constants and options, and whether a hook watches launches.

A wrong key would be a wrong result. So the key may be finer than Triton's, never coarser, and whatever isn't understood
here is launched by Triton: in the interpreter, in `torch.compile`, with another kind of argument, and with a version of
Triton whose internals haven't been compared with this file on a GPU.

Names: `launch`, `Tiles`, `cdiv`, `forget`.
Source: `triton/runtime/jit.py` and `triton/backends/nvidia/driver.py` of Triton 3.6.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from academy.device import INTERPRET  # before anything imports triton

import triton  # isort: skip

#: Versions whose insides this file was compared with, and with which the tests of the fast kernels passed on a GPU.
VERIFIED = ("3.6.0",)
REMEMBERS = not INTERPRET and torch.cuda.is_available() and not torch.version.hip and triton.__version__ in VERIFIED
#: As Triton's driver asks for them. PyTorch for the CPU has neither.
_current_device: Any = torch._C._cuda_getDevice if REMEMBERS else None
_current_stream: Any = torch._C._cuda_getCurrentRawStream if REMEMBERS else None
#: When one of the dictionaries is this large, it is emptied: a program has few kinds of calls, or too many to remember.
MOST = 4096


def cdiv(size: int, block: int) -> int:
    """How many blocks cover `size`: `triton.cdiv` without the microseconds of its check for constexpr arguments."""
    return -(-size // block)


class Tiles(NamedTuple):
    """A tensor that the kernel gets as a tensor descriptor: base, shape, strides, and the shape of a tile."""

    base: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    tile: tuple[int, ...]


def launch(kernel: Any, grid: Any, tensors: Sequence, numbers: tuple = (), **constants: Any) -> Any:
    """`kernel[grid](*tensors, *numbers, **constants)`, which takes less time from the second call of a kind on.

    Args:
        kernel: a jitted function, or an autotuned one. A `pre_hook` of its configurations may set the shapes of tiles,
            and nothing else: it isn't called again.
        grid: a tuple, or a function of the kernel's arguments (and of nothing else).
        tensors: the kernel's first arguments: tensors, `Tiles`, or None.
        numbers: those that follow them, `tl.constexpr` or not.
        constants: all others, which are `tl.constexpr`, and options such as `num_warps`.

    Returns:
        The compiled kernel that was launched, as Triton does.
    """
    if torch.compiler.is_compiling():
        return kernel[grid](*tensors, *numbers, **constants)
    if not REMEMBERS or _watched():
        return _by_triton(kernel, grid, tensors, numbers, constants)
    try:
        device = _current_device()
        seen, values = look(tensors)
        given = constants.values()  # and types, because 1 equals 1.0 and True
        kind = (id(kernel), device, callable(grid), *seen, *constants, *given, *map(type, given), *map(type, numbers))
        known = _CALLS.get((kind, numbers))
    except (AttributeError, TypeError, RuntimeError):  # another kind of argument: no address, no hash, no memory
        return _by_triton(kernel, grid, tensors, numbers, constants)
    if known is None:
        return _first(kernel, grid, tensors, numbers, constants, kind, device)
    if known.hooks:
        return _by_triton(kernel, grid, tensors, numbers, constants)
    if known.encoders:
        values = known.with_descriptors(tensors, values)
    x, y, z = (*(known.grid or grid), 1, 1)[:3]
    known.driver(x, y, z, _current_stream(device), *known.fixed, *values, *numbers, *known.rest)
    return known.compiled


def look(tensors: Sequence) -> tuple[list, list]:
    """What a compiled kernel depends on in these tensors, and their addresses."""
    seen: list = []
    values: list = []
    for tensor in tensors:
        if tensor is None:
            seen.append(None)
            values.append(None)
            continue
        if type(tensor) is Tiles:
            seen.append((len(tensor.tile), *tensor.tile))
            tensor = tensor.base
        address = tensor.data_ptr()
        seen += type(tensor), tensor.dtype, tensor.get_device(), address % 16 == 0
        values.append(address)
    return seen, values


def specialised(number: float) -> object:
    """What a compiled kernel depends on in a number that isn't `tl.constexpr`."""
    if type(number) is not int:
        return type(number)
    width = 31 if -(2**31) <= number < 2**31 else 63 if -(2**63) <= number < 2**63 else 64
    return number == 1, number % 16 == 0, width


def forget() -> None:
    """Forget all calls, for instance so that an autotuner chooses again."""
    _CALLS.clear()
    _KINDS.clear()


#: By every number: what the same call led to. By the kind of every number: the same kernel with another size.
_CALLS: dict[tuple, _Remembered] = {}
_KINDS: dict[tuple, _Remembered] = {}


def _watched() -> bool:
    """Whether a hook watches launches, or a setting asks for an unusual compilation."""
    runtime = triton.knobs.runtime
    return bool(
        getattr(runtime.launch_enter_hook, "calls", runtime.launch_enter_hook)
        or getattr(runtime.launch_exit_hook, "calls", runtime.launch_exit_hook)
        or runtime.debug
        or triton.knobs.compilation.instrumentation_mode
    )


def _by_triton(kernel: Any, grid: Any, tensors: Sequence, numbers: tuple, constants: dict) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    arguments = [
        TensorDescriptor(x.base, list(x.shape), list(x.strides), list(x.tile)) if type(x) is Tiles else x
        for x in tensors
    ]
    return kernel[grid](*arguments, *numbers, **constants)


def _first(kernel: Any, grid: Any, tensors: Sequence, numbers: tuple, constants: dict, kind: tuple, device: int) -> Any:
    """Launch a call that hasn't been seen before, and remember it if everything about it is understood."""
    sized = type(kernel) is triton.JITFunction and not callable(grid)  # no choice and no grid hangs on the numbers
    if sized:
        rest = kernel.params[len(tensors) :]
        sizes = tuple(n if p.is_constexpr else specialised(n) for n, p in zip(numbers, rest))
        if (kind, sizes) in _KINDS:
            _keep(_CALLS, (kind, numbers), _KINDS[kind, sizes])
            return launch(kernel, grid, tensors, numbers, **constants)
    used = None

    def remember_grid(arguments: dict) -> tuple:
        nonlocal used
        used = grid(arguments)
        return used

    compiled = _by_triton(kernel, remember_grid if callable(grid) else grid, tensors, numbers, constants)
    jitted = kernel.fn if hasattr(kernel, "configs") else kernel
    if _understood(jitted, compiled, tensors, numbers, device):
        _keep(_CALLS, (kind, numbers), remembered := _Remembered(kernel, jitted, compiled, used, tensors, numbers))
        if sized:
            _keep(_KINDS, (kind, sizes), remembered)
    return compiled


def _keep(cache: dict, key: tuple, value: _Remembered) -> None:
    if len(cache) >= MOST:
        cache.clear()
    cache[key] = value


def _understood(jitted: Any, compiled: Any, tensors: Sequence, numbers: tuple, device: int) -> bool:
    bases = [x.base if type(x) is Tiles else x for x in tensors if x is not None]
    return bool(
        type(jitted) is triton.JITFunction
        and type(compiled) is triton.compiler.CompiledKernel
        and all(type(x) in (torch.Tensor, torch.nn.Parameter) and x.get_device() == device for x in bases)
        and all(type(n) in (int, float, bool) for n in numbers)
        and all(p.is_constexpr for p in jitted.params[len(tensors) + len(numbers) :])
        and not compiled.run.global_scratch_size
        and not compiled.run.profile_scratch_size
        and (not any(type(x) is Tiles for x in tensors) or _maps(compiled.run.launch))
    )


def _maps(launcher: Callable) -> list[dict]:
    """How the compiled kernel wants each of its tensor maps; empty if the card has no copy unit that reads them."""
    forms = inspect.getclosurevars(launcher).nonlocals["tensordesc_meta"]
    return forms if all(form and not form["fp4_padded"] for form in forms) else []


class _Remembered:
    """A compiled kernel, ready to be launched: `kernel` is kept alive, because its id is in the key."""

    def __init__(self, kernel: Any, jitted: Any, compiled: Any, grid: Any, tensors: Sequence, numbers: tuple):
        self.kernel, self.compiled, self.grid, self.hooks = kernel, compiled, grid, jitted.pre_run_hooks
        runner = compiled.run
        flags = runner.launch_cooperative_grid, runner.launch_pdl
        # None: scratch memory (two kinds), and, after the metadata, what hooks are told and both hooks.
        self.fixed = (compiled.function, *flags, None, None, compiled.packed_metadata, None, None, None)
        # Constants are compiled in. The driver expects something in their places and doesn't look at it.
        self.rest = (None,) * (len(jitted.params) - len(tensors) - len(numbers))
        self.driver = runner.launch
        self.encoders: list[Callable | None] = []
        if any(type(x) is Tiles for x in tensors):
            self.driver = inspect.getclosurevars(runner.launch).nonlocals["launcher"]
            forms = iter(_maps(runner.launch))
            self.encoders = [_encoder(next(forms)) if type(x) is Tiles else None for x in tensors]

    def with_descriptors(self, tensors: Sequence, addresses: list) -> list:
        """Instead of a descriptor, the driver expects the tensor map, all sizes and all strides."""
        values: list = []
        for tensor, address, encode in zip(tensors, addresses, self.encoders):
            if encode is None:
                values.append(address)
            else:
                values.append(encode(address, tensor.shape, tensor.strides))
                values += tensor.shape
                values += tensor.strides
        return values


def _encoder(form: dict) -> Callable:
    """Tensor maps of a compiled kernel's argument: 128 bytes that describe a matrix in memory to the card's copy unit.
    They depend on nothing but address, sizes and strides, and addresses come again and again."""
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST as TYPES

    fill, size, block = triton.runtime.driver.active.utils.fill_tma_descriptor, form["elem_size"], form["block_size"]

    @functools.lru_cache(maxsize=256)
    def encode(address: int, shape: tuple, strides: tuple) -> Any:
        return fill(address, form["swizzle"], size, TYPES[form["elem_type"]], block, shape, strides, 0)

    return encode
