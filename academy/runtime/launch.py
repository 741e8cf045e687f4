"""A launch with a cache: what `kernel[grid](…)` works out again for every call is worked out once for each kind of
call.

A call of `kernel[grid](x, y, n, BLOCK=1024)` has four steps before the GPU has anything to do.

1. *Bind*: put arguments, keywords and defaults in the order of the kernel's parameters.
2. *Specialise*: a kernel is compiled for what its arguments are. A tensor counts as its dtype and whether its address
   is a multiple of 16; an int as whether it is 1 or a multiple of 16, and whether it fits into 32 bits; a
   `tl.constexpr` as its value; a tuple as its parts. Options such as `num_warps` count, too.
3. *Look up* the compiled kernel for that, or compile it. Before that, an autotuner looks up its choice, or searches.
4. *Launch*: hand the driver the grid, the stream, the compiled function and the arguments.

`launch` uses everything that step 2 looks at as the key of a dictionary, which leads straight to step 4. The first call
of a kind is made by Triton, and what it compiled is remembered. Every call still looks at the device, the stream, each
tensor's dtype and address, all numbers, constants and options, and whether a hook watches launches. Where numbers and
constants hang on the geometry of the tensors alone, a caller can keep a `Launch`, which holds them: then a call looks
at the tensors, and nothing else.

A wrong key would be a wrong result. So the key may be finer than Triton's, never coarser, and whatever isn't understood
here is launched by Triton: in the interpreter, in `torch.compile`, with another kind of argument, and with a version of
Triton whose internals haven't been compared with this file on a GPU.

Names: `launch`, `Launch`, `Tiles`, `cdiv`, `with_context`, `forget`, `describe`.
Source: `triton/runtime/jit.py` and `triton/backends/nvidia/driver.py` of Triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from academy.runtime.device import INTERPRET  # before anything imports triton

import triton  # isort: skip
import triton.language as tl  # isort: skip

#: Versions whose insides this file was compared with, and with which the tests of the fast kernels passed on a GPU.
VERIFIED = ("3.6.0", "3.7.1", "3.9.0")
#: Whether kernels run on a GPU here. (One that is only pretended, to compile for it, has no `_cuda_getDevice`.)
COMPILED = not INTERPRET and torch.cuda.is_available() and hasattr(torch._C, "_cuda_getDevice")
REMEMBERS = COMPILED and not torch.version.hip and triton.__version__ in VERIFIED
#: Triton 3.6 compiles a launcher for each signature, which takes the kernel's arguments one by one. From 3.7 on there
#: is a single launcher: it takes them as one tuple, after two descriptions of the signature.
ONE_LAUNCHER = not triton.__version__.startswith("3.6.")
#: As Triton's driver asks for them.
current_device: Any = torch._C._cuda_getDevice if COMPILED else None
current_stream: Any = torch._C._cuda_getCurrentRawStream if COMPILED else None


_RUNTIME, _COMPILATION = triton.knobs.runtime, triton.knobs.compilation


class _Recording(threading.local):
    recorder: Any = None


#: What writes down this thread's launches at the moment, see `academy.runtime.replay`. They are made by Triton then.
RECORDING = _Recording()
#: When one of the dictionaries is this large, it is emptied: a program has few kinds of calls, or too many to remember.
MOST = 4096
NUMBERS = (int, float, bool)


def cdiv(size: int, block: int) -> int:
    """How many blocks cover `size`: `triton.cdiv` without the microseconds of its check for constexpr arguments."""
    return -(-size // block)


def describe() -> str:
    """What a launch does in this process, in a few words: for the head of a report."""
    if REMEMBERS:
        return "remembered"
    if INTERPRET or not torch.cuda.is_available() or torch.version.hip:
        return "by Triton"
    return f"by Triton (runtime.launch was not tried with triton {triton.__version__}, only with {', '.join(VERIFIED)})"


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
        tensors: the kernel's first arguments: tensors, `Tiles`, None, numbers, or tuples of these, such as
            `(x, *x.stride())`.
        numbers: those that follow them, `tl.constexpr` or not.
        constants: all others, which are `tl.constexpr`, and options such as `num_warps`.

    Returns:
        The compiled kernel that was launched, as Triton does.
    """
    if torch.compiler.is_compiling():
        return kernel[grid](*tensors, *numbers, **constants)
    if not REMEMBERS:
        return _by_triton(kernel, grid, tensors, numbers, constants)
    given = constants.values()  # and types, because 1 equals 1.0 and True
    key = (
        id(kernel), None if callable(grid) else grid, numbers, *map(type, numbers),
        *constants, *given, *map(type, given),
    )  # fmt: skip
    try:
        prepared = _LAUNCHES.get(key)
    except TypeError:  # something that has no hash
        return _by_triton(kernel, grid, tensors, numbers, constants)
    if prepared is None:
        prepared = Launch(kernel, grid, numbers, **constants)
        keep(_LAUNCHES, key, prepared)
    return prepared(*tensors)


class Launch:
    """`launch` with everything but the tensors: for callers who keep one for each geometry.

    Args: `kernel`, `grid`, `numbers` and `constants` as those of `launch`; `tensors` when it is called.
    """

    def __init__(self, kernel: Any, grid: Any, numbers: tuple = (), **constants: Any):
        self.kernel, self.grid, self.numbers, self.constants = kernel, grid, numbers, constants
        self.three = None if callable(grid) else (*grid, 1, 1)[:3]

    def __call__(self, *tensors: Any) -> Any:
        if torch.compiler.is_compiling() or not REMEMBERS or RECORDING.recorder is not None or watched():
            return self.by_triton(tensors)
        try:
            device = current_device()
            seen, sizes, values = look(tensors)
        except (AttributeError, TypeError, RuntimeError):  # another kind of argument: no address, no memory
            return self.by_triton(tensors)
        known = _CALLS.get((self, device, *seen, *sizes))
        if known is None:
            return self._first(tensors, seen, sizes, device)
        if known.hooks:
            return self.by_triton(tensors)
        if known.encoders:
            values = known.with_descriptors(tensors, values)
        known.run(self.three or known.grid, device, [*values, *self.numbers, *known.rest])
        return known.compiled

    def by_triton(self, tensors: Sequence) -> Any:
        return _by_triton(self.kernel, self.grid, tensors, self.numbers, self.constants)

    def _first(self, tensors: Sequence, seen: list, sizes: list, device: int) -> Any:
        """Launch a call that hasn't been seen before, and remember it if everything about it is understood."""
        kernel, numbers, call = self.kernel, self.numbers, (self, device, *seen, *sizes)
        kind = self._kind(len(tensors), seen, sizes, device)
        if kind in _KINDS:
            keep(_CALLS, call, _KINDS[kind])
            return self(*tensors)
        grid, used = self.grid, self.three

        def remember_grid(arguments: dict) -> tuple:
            nonlocal used
            used = self.grid(arguments)
            return used

        compiled = _by_triton(kernel, remember_grid if callable(grid) else grid, tensors, numbers, self.constants)
        jitted = kernel.fn if hasattr(kernel, "configs") else kernel
        if _understood(jitted, compiled, tensors, numbers, device):
            remembered = _Remembered(kernel, jitted, compiled, (*(used or ()), 1, 1)[:3], tensors, numbers)
            keep(_CALLS, call, remembered)
            if kind is not None:
                keep(_KINDS, kind, remembered)
        return compiled

    def _kind(self, count: int, seen: list, sizes: list, device: int) -> tuple | None:
        """What Triton compiles one kernel for, or None where a choice or the grid hangs on the numbers."""
        if type(self.kernel) is not triton.JITFunction or self.three is None:
            return None
        rest = self.kernel.params[count:]
        numbers = [(type(n), n) if p.is_constexpr else specialised(n) for n, p in zip(self.numbers, rest)]
        given = self.constants.values()
        options = *self.constants, *given, *map(type, given)
        return id(self.kernel), device, *seen, *map(specialised, sizes), *numbers, *options


def look(tensors: Sequence) -> tuple[list, list, list]:
    """What a compiled kernel depends on in these tensors, the numbers in tuples beside them, and what the driver gets.

    Raises:
        TypeError: an argument of another kind.
    """
    seen: list = []
    sizes: list = []
    values: list = []
    for value in tensors:
        kind = type(value)
        if kind is torch.Tensor:
            address = value.data_ptr()
            seen += value.dtype, value.get_device(), address % 16 == 0
            values.append(address)
        elif kind is tuple or kind is torch.Size:
            inside, numbers, parts = look(value)
            seen += tuple, len(value), *inside
            sizes += numbers
            values.append(tuple(parts))
        elif value is None:
            seen.append(None)
            values.append(None)
        elif kind in NUMBERS:
            seen.append(kind)
            sizes.append(value)
            values.append(value)
        elif kind is tl.constexpr:
            seen += kind, type(value.value), _plain(value.value)
            values.append(None)
        else:
            if kind is Tiles:
                seen += kind, len(value.tile), *value.tile
                value = value.base
                kind = type(value)
            if kind is not torch.Tensor and kind is not torch.nn.Parameter:
                raise TypeError(f"{kind.__name__} is launched by Triton")
            address = value.data_ptr()
            seen += value.dtype, value.get_device(), address % 16 == 0
            values.append(address)
    return seen, sizes, values


def _plain(value: Any) -> Any:
    if value is not None and type(value) not in (*NUMBERS, str):
        raise TypeError(f"a constant {type(value).__name__} is launched by Triton")
    return value


def specialised(number: float) -> object:
    """What a compiled kernel depends on in a number that isn't `tl.constexpr`."""
    if type(number) is not int:
        return type(number)
    width = 31 if -(2**31) <= number < 2**31 else 63 if -(2**63) <= number < 2**63 else 64
    return number == 1, number % 16 == 0, width


def forget() -> None:
    """Forget all calls, for instance so that an autotuner chooses again."""
    for cache in CACHES:
        cache.clear()


#: By everything but the tensors.
_LAUNCHES: dict[tuple, Launch] = {}
#: By the tensors of a `Launch`: what the same call led to. By the kind of every number: the same kernel, another size.
_CALLS: dict[tuple, _Remembered] = {}
_KINDS: dict[tuple | None, _Remembered] = {}
#: These, and what `academy.runtime.call_cache` remembers.
CACHES: list[dict] = [_LAUNCHES, _CALLS, _KINDS]


def watched() -> bool:
    """Whether a hook watches launches, or a setting asks for an unusual compilation."""
    enter, leave = _RUNTIME.launch_enter_hook, _RUNTIME.launch_exit_hook
    return bool(
        getattr(enter, "calls", enter)
        or getattr(leave, "calls", leave)
        or _RUNTIME.debug
        or _COMPILATION.instrumentation_mode
        or _RUNTIME.add_stages_inspection_hook
    )


def _by_triton(kernel: Any, grid: Any, tensors: Sequence, numbers: tuple, constants: dict) -> Any:
    arguments = [_descriptor(kernel, x) if type(x) is Tiles else x for x in tensors]
    return with_context(lambda: kernel[grid](*arguments, *numbers, **constants))


def _descriptor(kernel: Any, tiles: Tiles) -> Any:
    """As Triton's own launch wants it. That of a Gluon kernel says how a tile lies in shared memory, too."""
    base, (shape, strides, tile) = tiles.base, map(list, tiles[1:])
    if not _is_gluon(kernel):
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(base, shape, strides, tile)
    from triton._utils import canonicalize_dtype
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia import hopper

    layout = gl.NVMMASharedLayout.get_default_for(tile, tl.str_to_ty(canonicalize_dtype(base.dtype), None))
    return hopper.TensorDescriptor(base, shape, strides, tile, layout)


def _is_gluon(kernel: Any) -> bool:
    return hasattr(kernel, "is_gluon") and kernel.is_gluon()


def with_context(call: Callable) -> Any:
    """What `call` returns, also in a thread that has done nothing on the GPU yet, such as that of a backward pass.

    Such a thread has no CUDA context, and without one the driver makes no tensor map: it refuses before anything is
    launched. Asking for the free memory makes the context, and the call is made again.
    """
    try:
        return call()
    except RuntimeError as error:
        if "invalid device context" not in str(error):
            raise
    torch.cuda.mem_get_info()
    return call()


def keep(cache: dict, key: tuple, value: Any) -> None:
    """Remember one thing more."""
    if len(cache) >= MOST:
        cache.clear()
    cache[key] = value


def _understood(jitted: Any, compiled: Any, tensors: Sequence, numbers: tuple, device: int) -> bool:
    return bool(
        (type(jitted) is triton.JITFunction or _is_gluon(jitted))
        and type(compiled) is triton.compiler.CompiledKernel
        and all(each == device for each in _devices(tensors))
        and all(type(n) in NUMBERS for n in numbers)
        and all(p.is_constexpr for p in jitted.params[len(tensors) + len(numbers) :])
        and not compiled.run.global_scratch_size
        and not compiled.run.profile_scratch_size
        and not getattr(compiled.run, "gsan_enabled", False)
        and (not any(type(x) is Tiles for x in tensors) or _maps(compiled.run.launch))
    )


def understood(kernel: Any, values: tuple, options: dict, grid: Any, compiled: Any) -> tuple[_Remembered, list] | None:
    """A launch that Triton has just made: what to launch again, and the kernel's arguments up to the last that isn't
    `tl.constexpr`, with None for those that are. None if not everything about it is understood.

    Args: the jitted kernel, what its `run` got, and what that returned.
    """
    bound = dict(zip((p.name for p in kernel.params), values)) | options
    bound |= {p.name: p.default for p in kernel.params if p.name not in bound and p.has_default}
    known = [p for p in kernel.params if not p.is_constexpr]
    last = known[-1].num + 1 if known else 0
    given = [None if p.is_constexpr else _as_tiles(bound[p.name]) for p in kernel.params[:last]]
    used = (*(grid(bound) if callable(grid) else grid), 1, 1)[:3]
    if not _understood(kernel, compiled, given, (), current_device()):
        return None
    return _Remembered(kernel, kernel, compiled, used, given, ()), given


def _as_tiles(value: Any) -> Any:
    """A tensor descriptor, Triton's or Gluon's, as `Tiles`."""
    if not hasattr(value, "block_shape"):
        return value
    return Tiles(value.base, *map(tuple, (value.shape, value.strides, value.block_shape)))


def _devices(tensors: Sequence) -> list[int]:
    """The device of each tensor; one that is none for descriptors in a tuple, which the driver looks for elsewhere."""
    found = []
    for x in tensors:
        if isinstance(x, Tiles):
            found.append(x.base.get_device())
        elif isinstance(x, tuple):
            found += [-1] if any(isinstance(part, Tiles) for part in x) else _devices(x)
        elif isinstance(x, torch.Tensor):
            found.append(x.get_device())
    return found


def _maps(launcher: Callable) -> list[dict]:
    """How the compiled kernel wants each of its tensor maps; empty if the card has no TMA that reads them."""
    forms = inspect.getclosurevars(launcher).nonlocals["tensordesc_meta"] or []
    return forms if all(form and not form["fp4_padded"] and not form.get("is_im2col") for form in forms) else []


class _Remembered:
    """A compiled kernel, ready to be launched: `kernel` is kept alive, because its id is in the key."""

    def __init__(self, kernel: Any, jitted: Any, compiled: Any, grid: Any, tensors: Sequence, numbers: tuple):
        self.kernel, self.compiled, self.grid, self.hooks = kernel, compiled, grid, jitted.pre_run_hooks
        runner = compiled.run
        self.driver = runner.launch
        # Scratch memory (two kinds), what hooks are told, and both hooks: there are none.
        scratch, hooks, begin = (None, None), (None, None, None), (
            compiled.function, runner.launch_cooperative_grid, runner.launch_pdl,
        )  # fmt: skip
        self.fixed: tuple
        if ONE_LAUNCHER:
            signature = runner.arg_annotations, runner.kernel_signature
            self.fixed = *begin, compiled.packed_metadata, *hooks, *scratch, *signature
        else:
            self.fixed = *begin, *scratch, compiled.packed_metadata, *hooks
        # Constants are compiled in. The driver expects something in their places and doesn't look at it.
        self.rest = (None,) * (len(jitted.params) - len(tensors) - len(numbers))
        self.encoders: list[Callable | None] = []
        if any(type(x) is Tiles for x in tensors):
            self.driver = inspect.getclosurevars(runner.launch).nonlocals["launcher"]
            forms = iter(_maps(runner.launch))
            self.encoders = [_encoder(next(forms)) if type(x) is Tiles else None for x in tensors]

    def run(self, grid: tuple, device: int, values: list) -> None:
        """Hand the driver the grid and all values."""
        x, y, z = grid
        if ONE_LAUNCHER:
            self.driver(x, y, z, current_stream(device), *self.fixed, tuple(values))
        else:
            self.driver(x, y, z, current_stream(device), *self.fixed, *values)

    def written(self, values: list[str], constant: Callable, named: Callable) -> str:
        """`run` as a line of Python, in which the stream is called `stream_now`.

        Args: the kernel's values as Python; what makes Python of a value, and of what has no other name."""
        fixed = [named(each) if each is not None and type(each) is not bool else repr(each) for each in self.fixed]
        last = [f"({''.join(f'{value}, ' for value in values)})"] if ONE_LAUNCHER else values
        return f"{named(self.driver)}({', '.join([*map(constant, self.grid), 'stream_now', *fixed, *last])})"

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
    """Tensor maps of a compiled kernel's argument: 128 bytes that describe a matrix in memory to the card's TMA.
    They depend on nothing but address, sizes and strides, and addresses come again and again."""
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST as TYPES

    utils = triton.runtime.driver.active.utils
    fill = utils.fill_tma_descriptor_tiled if ONE_LAUNCHER else utils.fill_tma_descriptor
    size, block = form["elem_size"], form["block_size"]

    @functools.lru_cache(maxsize=256)
    def encode(address: int, shape: tuple, strides: tuple) -> Any:
        kind = TYPES[form["elem_type"]]
        return with_context(lambda: fill(address, form["swizzle"], size, kind, block, shape, strides, 0))

    return encode
