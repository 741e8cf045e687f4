"""Repairs of Triton's interpreter, so that a kernel computes on the CPU what it computes on a GPU.

The interpreter (`TRITON_INTERPRET=1`) keeps bfloat16 and float8 values as raw bits and then does integer arithmetic on
them: `x + y` of two bfloat16 blocks is silently garbage. It also truncates where the hardware rounds, and it has no
`libdevice`. `install()` repairs this for scripts, notebooks and tests alike. `REPAIRS` lists the repairs, and `used()`
names those that the kernels launched so far needed, so that a page can say so.

What the hardware leaves undefined is poisoned: lanes that a load masks off without `other` hold NaN, or for integers
0xA5 in every byte. On a GPU they hold whatever was in the register, most of the time a 0, which hides the mistake.

What the compiler rejects is rejected here too: `tl.exp` of a float16 block raises, and `libdevice` uses the compiler's
own table of types.

A NaN or an infinity gives no warning, as on a GPU. An exception in a kernel ends with the kernel's line, as a note.

Sources: PTX ISA (`cvt.rn.bf16.f32`, `cvt.rn.satfinite.e4m3x2.f32`, `min`/`max` of a NaN), libdevice user's guide,
`triton/runtime/interpreter.py` of Triton 3.6.0, 3.7.1 and 3.9.0.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from academy import libdevice as libdevice_on_cpu
from academy import mistakes

#: Versions whose internals the repairs were checked against.
CHECKED_VERSIONS = ("3.6.0", "3.7.1", "3.9.0")

#: What is repaired: key -> the semantics that a kernel gets.
REPAIRS = {
    "bf16": "bfloat16 arithmetic is done in float32 and rounded once, to nearest even",
    "bf16 cast": "casts and stores to bfloat16 round to nearest even instead of cutting digits off",
    "bf16 dot": "tl.dot of bfloat16 blocks multiplies their values, with a float32 accumulator",
    "bf16 reduction": "reductions and scans of bfloat16 add in float32 and round the result once",
    "bf16 atomic": "atomic add on bfloat16 rounds after every addition",
    "fp8 cast": "casts to float8 round to nearest even and saturate",
    "libdevice": "libdevice functions are computed in float64 and rounded once",
    "nan": "tl.minimum, tl.maximum and tl.clamp ignore a NaN operand, as the hardware does",
}

_BUILDER_METHODS = (
    "binary_op ternary_op unary_op cast_impl create_fp_to_fp create_dot create_fma create_rsqrt create_erf "
    "create_clampf create_minnumf create_maxnumf create_atomic_rmw create_masked_load create_extern_elementwise"
).split()
_MODULE_NAMES = (
    "FunctionRewriter InterpreterBuilder TensorHandle GridExecutor InterpreterError ReduceOps ScanOps _LangPatchScope "
    "_patch_lang _patch_lang_tensor _get_np_dtype _interpreter _ir interpreter_builder"
).split()
_FLOAT8 = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
#: Bits of a NaN, for the types that the interpreter keeps as bits.
_NAN_BITS = {"bf16": 0x7FC0, "fp8e4nv": 0x7F, "fp8e5": 0x7E}

_used: set[str] = set()


def install() -> None:
    """Put the repairs into Triton's interpreter. A second call does nothing.

    Raises:
        RuntimeError: this version of Triton lacks internals that the repairs build on, or triton was imported without
            `TRITON_INTERPRET=1`. Nothing has been changed then.
    """
    if getattr(interpreter, "_academy_repairs", False):
        return
    _check_internals()
    interpreter._academy_repairs = True
    _repair_arithmetic()
    _repair_casts()
    _repair_nan_rules()
    _repair_min_and_max()
    _repair_reductions()
    _repair_atomics()
    _repair_loads()
    _repair_indices()
    _repair_libdevice()
    _repair_messages()
    mistakes.install()
    _quicken()


def used(reset: bool = False) -> list[str]:
    """Keys of the `REPAIRS` that kernels have needed since the start or the last reset, in the order of `REPAIRS`."""
    names = [name for name in REPAIRS if name in _used]
    if reset:
        _used.clear()
    return names


def forget(file: str) -> None:
    """Drop what the interpreter keeps of the kernels of a file that is not needed any more."""
    rewritten = interpreter.InterpretedFunction.rewritten_fn
    for kernel in [kernel for kernel in rewritten if kernel.__code__.co_filename == file]:
        del rewritten[kernel]


def decode(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """The numbers in an interpreter payload: bfloat16 and float8 bits become float32, the rest is returned as it is."""
    name = dtype.scalar.name
    if name == "bf16":
        return _bf16_to_fp32(data)
    if name in _FLOAT8:
        return _float8_to_fp32(data, name)
    return data


def undefined_lanes(shape: tuple[int, ...], dtype: tl.dtype) -> np.ndarray:
    """An interpreter payload of a value that a GPU leaves undefined: NaN, or for integers 0xA5 in every byte."""
    np_dtype = interpreter._get_np_dtype(dtype)
    if dtype.is_floating():
        return np.full(shape, _NAN_BITS.get(dtype.name, np.nan), dtype=np_dtype)
    if np_dtype == np.bool_:
        return np.zeros(shape, dtype=bool)
    return np.full(shape, np.frombuffer(b"\xa5" * np_dtype.itemsize, dtype=np_dtype)[0])


class UnknownInterpreter(RuntimeError):
    """Triton's internals are not the known ones."""


def require(user: str, places: Iterable[tuple[Any, str]]) -> None:
    """Raise UnknownInterpreter, naming what is missing, unless each of these owners has an attribute of that name."""
    missing = [f"{owner.__name__.rpartition('.')[2]}.{name}" for owner, name in places if not hasattr(owner, name)]
    if missing:
        raise UnknownInterpreter(
            f"{user} does not know the interpreter of triton {triton.__version__} (missing: {', '.join(missing)}); "
            f"checked versions: {', '.join(CHECKED_VERSIONS)}"
        )


def _check_internals() -> None:
    if type(tl.standard.sum).__name__ != "InterpretedFunction":
        raise RuntimeError(
            "academy.interpreter: triton was imported without TRITON_INTERPRET=1; set it before the import"
        )
    require("academy.interpreter", [(interpreter, name) for name in _MODULE_NAMES])
    require("academy.interpreter", [(interpreter.InterpreterBuilder, name) for name in _BUILDER_METHODS])


# ---- conversions of raw bits ----------------------------------------------------------------------------------------


def _is_bf16(handle) -> bool:
    return isinstance(handle, interpreter.TensorHandle) and handle.dtype.scalar.name == "bf16"


def _bf16_to_fp32(bits: np.ndarray) -> np.ndarray:
    return np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)


def _fp32_to_bf16(values: np.ndarray, truncate: bool = False) -> np.ndarray:
    """Bits of the nearest bfloat16 (ties to even), or of the next one towards zero."""
    bits = np.array(values, dtype=np.float32).view(np.uint32)
    nan = np.isnan(values)
    if not truncate:
        bits = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    bits = (bits >> 16).astype(np.uint16)
    return np.where(nan, np.uint16(0x7FC0), bits) if nan.any() else bits


def _float8_to_fp32(bits: np.ndarray, name: str) -> np.ndarray:
    return torch.from_numpy(np.array(bits, dtype=np.uint8)).view(_FLOAT8[name]).float().numpy()


def _fp32_to_float8(values: np.ndarray, name: str) -> np.ndarray:
    largest = torch.finfo(_FLOAT8[name]).max
    clamped = torch.from_numpy(np.array(values, dtype=np.float32)).clamp(-largest, largest)
    return clamped.to(_FLOAT8[name]).view(torch.uint8).numpy()


def _widened(handle):
    """A bfloat16 handle as float32; anything else as it is."""
    return interpreter.TensorHandle(_bf16_to_fp32(handle.data), tl.float32) if _is_bf16(handle) else handle


def _narrowed(handle):
    """A float32 result as bfloat16, a truth value as int1."""
    if handle.data.dtype == np.bool_:
        return interpreter.TensorHandle(handle.data, tl.int1)
    return interpreter.TensorHandle(_fp32_to_bf16(handle.data), tl.bfloat16)


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _repair_arithmetic() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def through_fp32(name: str, reason: str) -> None:
        original = getattr(builder, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            if not any(map(_is_bf16, args)):
                return original(self, *args, **kwargs)
            _used.add(reason)
            return _narrowed(original(self, *map(_widened, args), **kwargs))

        setattr(builder, name, method)

    for name in ("ternary_op", "unary_op", "create_fma", "create_rsqrt", "create_erf"):
        through_fp32(name, "bf16")
    builder.unary_op = _rounded_once(builder.unary_op)
    builder.create_select = _select
    builder.create_erf = _vectorised_erf(builder.create_erf)
    builder.get_bf16 = lambda self, value: handle(_fp32_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    original_binary_op = builder.binary_op

    def binary_op(self, lhs, rhs, op):
        if lhs.dtype.scalar.name == "bf16":
            _used.add("bf16")
            return _narrowed(original_binary_op(self, _widened(lhs), _widened(rhs), op))
        result = original_binary_op(self, lhs, rhs, op)
        # Triton types a comparison like its operands; a mask broadcast later would become 0 and 1 of that type.
        return handle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    builder.binary_op = binary_op
    original_dot = builder.create_dot

    def create_dot(self, a, b, accumulator, *args, **kwargs):
        if _is_bf16(a) or _is_bf16(b) or a.dtype.name in _FLOAT8 or b.dtype.name in _FLOAT8:
            _used.add("bf16 dot")
            a, b = (handle(decode(operand.data, operand.dtype), tl.float32) for operand in (a, b))
        if accumulator.data.dtype != np.float32:
            return original_dot(self, a, b, accumulator, *args, **kwargs)
        # A sum in float32 depends on NumPy's BLAS: its order, and whether it fuses. In float64, rounded once, it is the
        # same on every machine and in a browser.
        exact = handle(np.zeros(accumulator.data.shape), tl.float64)
        products = original_dot(self, a, b, exact, *args, **kwargs).data.astype(np.float32)
        return handle(products + accumulator.data, tl.float32)

    builder.create_dot = create_dot


def _select(self, condition, lhs, rhs):
    """A choice between two blocks moves bits and computes nothing, so bfloat16 needs no detour."""
    values = np.where(condition.data, lhs.data, rhs.data)
    return interpreter.TensorHandle(values.astype(rhs.data.dtype, copy=False), rhs.dtype.scalar)


def _rounded_once(original):
    """NumPy has its own float32 exp, log, sin and cos for some CPUs, whose last bit differs from that of others and of
    a browser. In float64, rounded once, they are the same everywhere."""
    functions = {np.exp, np.exp2, np.log, np.log2, np.sin, np.cos}

    def unary_op(self, operand, function):
        if operand.data.dtype != np.float32 or function not in functions:
            return original(self, operand, function)
        values = function(operand.data.astype(np.float64)).astype(np.float32)
        return interpreter.TensorHandle(values, operand.dtype.scalar)

    return unary_op


def _vectorised_erf(original):
    """The interpreter's erf is a Python loop over elements; torch's, in float64, is one call and as exact."""

    def create_erf(self, operand):
        if operand.data.dtype.kind != "f":
            return original(self, operand)
        values = torch.erf(torch.from_numpy(np.array(operand.data, dtype=np.float64))).numpy()
        return interpreter.TensorHandle(values.astype(operand.data.dtype), operand.dtype.scalar)

    return create_erf


def _repair_nan_rules() -> None:
    builder = interpreter.InterpreterBuilder

    def ignoring_nan(op):
        def method(self, lhs, rhs):
            if lhs.data.dtype.kind == "f" and (np.isnan(lhs.data).any() or np.isnan(rhs.data).any()):
                _used.add("nan")
            return self.binary_op(lhs, rhs, op)

        return method

    builder.create_minnumf = ignoring_nan(np.fmin)
    builder.create_maxnumf = ignoring_nan(np.fmax)
    original_clamp = builder.create_clampf

    def create_clampf(self, operand, low, high, propagate_nan):
        if propagate_nan != interpreter._ir.PROPAGATE_NAN.NONE:
            return original_clamp(self, operand, low, high, propagate_nan)
        return self.create_minnumf(self.create_maxnumf(operand, low), high)

    builder.create_clampf = create_clampf


def _repair_min_and_max() -> None:
    """Python's own `min` and `max`, which the compiler takes for `tl.minimum` and `tl.maximum`: of two numbers, or lane
    by lane. Python would compare two blocks as wholes, and hand one of them on."""
    rewriter = interpreter.FunctionRewriter
    original = rewriter._transform_ast

    @functools.wraps(original)
    def transform_ast(self, source):
        module = original(self, source)
        names = [node for node in ast.walk(module) if isinstance(node, ast.Name) and node.id in ("min", "max")]
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {*self.fn.__globals__}
        for node in names:
            if node.id not in own:
                node.id = f"academy_{node.id}"
        return module

    # Whatever the interpreter's module holds becomes a global of each kernel that it rewrites.
    interpreter.academy_min = _of_lanes(min, tl.minimum)
    interpreter.academy_max = _of_lanes(max, tl.maximum)
    rewriter._transform_ast = transform_ast


def _of_lanes(python, elementwise):
    @functools.wraps(python)
    def function(*values, **options):
        if len(values) < 2 or not any(isinstance(value, tl.tensor) for value in values):
            return python(*values, **options)
        result = values[0]
        for value in values[1:]:
            result = elementwise(result, value, _semantic=interpreter.interpreter_semantic)
        if result.type.is_block():
            frame, name = sys._getframe(1), python.__name__
            message = f"{name}(…) of blocks is deprecated in Triton: write tl.{elementwise.__name__}(…)"
            warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno)
        return result

    return function


# ---- casts ----------------------------------------------------------------------------------------------------------


def _repair_casts() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    original_cast, original_fp_to_fp = builder.cast_impl, builder.create_fp_to_fp
    towards_zero = interpreter._ir.ROUNDING_MODE.RTZ

    def cast_impl(self, source, to_type, rounding=None):
        from_type, to_type = source.dtype.scalar, to_type.scalar
        if from_type.name == to_type.name:
            return source
        if from_type.name == "bf16" or from_type.name in _FLOAT8:
            values = decode(source.data, from_type)
            return cast_impl(self, handle(values, tl.float32), to_type, rounding)
        if to_type.name == "bf16":
            _used.add("bf16 cast")
            bits = _fp32_to_bf16(source.data.astype(np.float32), truncate=rounding == towards_zero)
            return handle(bits, tl.bfloat16)
        if to_type.name in _FLOAT8 and source.data.dtype.kind == "f":
            _used.add("fp8 cast")
            return handle(_fp32_to_float8(source.data, to_type.name), to_type)
        return original_cast(self, source, to_type)

    def create_fp_to_fp(self, source, to_type, rounding):
        names = {source.dtype.scalar.name, to_type.scalar.name}
        if "bf16" in names or names & set(_FLOAT8):
            return cast_impl(self, source, to_type, rounding)
        return original_fp_to_fp(self, source, to_type, rounding)

    builder.cast_impl = cast_impl
    builder.create_fp_to_fp = create_fp_to_fp


# ---- reductions, scans, atomics -------------------------------------------------------------------------------------


def _repair_reductions() -> None:
    def tensor(data, dtype, like):
        return tl.tensor(
            interpreter.TensorHandle(data, dtype), tl.block_type(dtype, list(like.shape)) if like.shape else dtype
        )

    def narrowed(result):
        if result.dtype.name != "fp32":  # the index of an argmax
            return result
        return tensor(_fp32_to_bf16(result.handle.data), tl.bfloat16, result)

    def repair(owner, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def method(self, operand, *args, **kwargs):
            block = operand[0] if isinstance(operand, tuple) else operand
            if block.dtype.name != "bf16":
                return original(self, operand, *args, **kwargs)
            _used.add("bf16 reduction")
            result = original(self, tensor(_bf16_to_fp32(block.handle.data), tl.float32, block), *args, **kwargs)
            return type(result)(map(narrowed, result)) if isinstance(result, (tuple, list)) else narrowed(result)

        setattr(owner, name, method)

    for owner, names in ((interpreter.ReduceOps, ("sum", "min_max")), (interpreter.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            repair(owner, name)


def _repair_atomics() -> None:
    builder, native = interpreter.InterpreterBuilder, interpreter._interpreter
    original = builder.create_atomic_rmw

    def create_atomic_rmw(self, operation, pointer, value, mask, *args, **kwargs):
        if not _is_bf16(value) or operation != interpreter._ir.ATOMIC_OP.FADD:
            return original(self, operation, pointer, value, mask, *args, **kwargs)
        _used.add("bf16 atomic")
        shape = pointer.data.shape
        addresses = pointer.data.reshape(-1)
        lanes = np.flatnonzero(np.broadcast_to(mask.data, shape))
        addends = np.broadcast_to(_bf16_to_fp32(value.data), shape).reshape(-1)
        before, one, zero = np.zeros(addresses.size, np.uint16), np.ones(1, bool), np.zeros(1, np.uint16)
        for lane in lanes:  # one after the other: two lanes may add to one element
            address = addresses[lane : lane + 1].copy()
            bits = native.load(address, one, zero, np.dtype(np.uint16))
            native.store(address, _fp32_to_bf16(_bf16_to_fp32(bits) + addends[lane]), one)
            before[lane] = bits[0]
        return interpreter.TensorHandle(before.reshape(shape), tl.bfloat16)

    builder.create_atomic_rmw = create_atomic_rmw


# ---- loads ----------------------------------------------------------------------------------------------------------


def _repair_loads() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    original = builder.create_masked_load

    def create_masked_load(self, pointers, mask, other, *args, **kwargs):
        if other is None and not np.all(mask.data):  # a block pointer's mask is a bare array
            dtype = pointers.get_element_ty()
            other = handle(undefined_lanes(np.shape(pointers.data), dtype), dtype)
        return original(self, pointers, mask, other, *args, **kwargs)

    builder.create_masked_load = create_masked_load


def _repair_indices() -> None:
    """The bound of a loop as an int: Triton 3.6 leaves that to a rule that NumPy 2.4 gave up, later versions do it."""
    original = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = patch_lang_tensor


# ---- libdevice ------------------------------------------------------------------------------------------------------


def _repair_libdevice() -> None:
    def create_extern_elementwise(self, library, path, symbol, operands, result_type, is_pure):
        function = libdevice_on_cpu.find(symbol)
        if function is None:
            raise NotImplementedError(
                f"libdevice function {symbol} has no CPU version in academy.interpreter; "
                f"it has: {', '.join(sorted(libdevice_on_cpu.FUNCTIONS))}"
            )
        _used.add("libdevice")
        values = function(*(operand.data.astype(np.float64) for operand in operands))
        to_type = result_type.scalar
        return interpreter.TensorHandle(np.asarray(values).astype(interpreter._get_np_dtype(to_type)), to_type)

    def bound(function):
        @functools.wraps(function)
        def call(*args, _semantic=None):
            return function(*args, _semantic=interpreter.interpreter_semantic)

        return call

    # Outside the compiler the functions of triton.language.extra.libdevice are empty and return None.
    interpreter.InterpreterBuilder.create_extern_elementwise = create_extern_elementwise
    for name, function in inspect.getmembers(cuda_libdevice, tl.core.is_builtin):
        if hasattr(libdevice, name):
            setattr(libdevice, name, bound(function))


# ---- messages -------------------------------------------------------------------------------------------------------


def _repair_messages() -> None:
    """No warnings about numbers that a GPU computes silently; an error in a kernel ends with its place in the file."""
    original = interpreter.GridExecutor.__call__

    @functools.wraps(original)
    def launch(self, *args, **kwargs):
        mistakes.check_grid(self.fn.__name__, self.grid)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
                return original(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            error.add_note(_failure(error, self.fn))
            raise

    interpreter.GridExecutor.__call__ = launch


def _failure(error: BaseException, kernel) -> str:
    """The innermost line of the kernel's file that an error came through, the error, and how to see more.

    The interpreter wraps what a kernel raises, and once more for each jitted helper that it comes out of.
    """
    errors = [error]
    while isinstance(errors[-1], interpreter.InterpreterError):
        errors.append(errors[-1].__cause__)
    frames = [frame for one in errors for frame in traceback.extract_tb(one.__traceback__)]
    places = [frame for frame in frames if frame.filename == kernel.__code__.co_filename]
    if not places:  # before the first line of a program
        return f"{kernel.__name__}: {type(errors[-1]).__name__}: {errors[-1]}"
    place = places[-1]
    path = Path(place.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    lines = ["", f"{shown}:{place.lineno}: {type(errors[-1]).__name__}: {errors[-1]}", f"    {place.line}"]
    if "EXAMPLE" in kernel.__globals__:
        lines.append(f"academy trace {shown} shows the values up to there.")
    return "\n".join(lines)


# ---- speed ----------------------------------------------------------------------------------------------------------


def _quicken() -> None:
    """Spare the interpreter work that it repeats for every launch, helper call and load; values stay the same.

    A launch and every call of a jitted helper look through all of `triton.language` for functions to replace. The list
    is the same every time, so it is kept; inside a launch the functions are already replaced.
    """
    original_patch, original_call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages_of: dict[object, tuple[str, ...]] = {}
    changes_for: dict[tuple[str, ...], list[tuple[object, str, object]]] = {}
    never_restored: set[str] = set()
    running: list[set[str]] = []

    def languages(function) -> tuple[str, ...]:
        if function not in languages_of:
            modules = [m for m in function.__globals__.values() if inspect.ismodule(m)]
            languages_of[function] = tuple(sorted({m.__name__ for m in modules if m in (tl, tl.core)}))
        return languages_of[function]

    def patch_lang(function):
        names = languages(function)
        if running and running[-1]:  # a helper: its launch has replaced everything but perhaps another module
            if set(names) - running[-1] - never_restored:
                never_restored.update(names)
                return original_patch(function)
            return interpreter._LangPatchScope()
        if running:
            running[-1].update(names)
        if names not in changes_for:
            scope = original_patch(function)
            changes_for[names] = [(owner, name, vars(owner)[name]) for owner, name, _ in scope._changes]
            return scope
        scope = interpreter._LangPatchScope()
        for owner, name, value in changes_for[names]:
            scope.set_attr(owner, name, value)
        return scope

    @functools.wraps(original_call)
    def launch(self, *args, **kwargs):
        running.append(set())
        try:
            return original_call(self, *args, **kwargs)
        finally:
            running.pop()

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = launch

    original_np_dtype = interpreter._get_np_dtype
    names = "int1 int8 uint8 int16 uint16 int32 uint32 int64 uint64 fp16 bf16 fp32 fp64 fp8e4nv fp8e5".split()
    np_dtypes = {name: original_np_dtype(tl.dtype(name)) for name in names}

    def get_np_dtype(dtype):
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        known = np_dtypes.get(element.name)
        return original_np_dtype(dtype) if known is None else known

    interpreter._get_np_dtype = get_np_dtype
    # An overflow would be told by an assertion that only debugging makes, so it was computed for nothing.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)
    interpreter.FunctionRewriter._get_jit_fn_file_line = _file_line
    _keep_types()


def _file_line(rewriter) -> tuple[str, int]:
    """A function's file, and the line of its `def`. The original makes a JITFunction only to ask it."""
    lines, first = inspect.getsourcelines(rewriter.fn)
    begin = next((number for number, line in enumerate(lines) if line.strip().startswith("def ")), 0)
    return rewriter.fn.__code__.co_filename, first + begin


def _keep_types() -> None:
    """Build the type of a block, and the shape of a tensor, once for each dtype and shape: a third of the time went
    there.

    Every operation makes both anew, out of `constexpr` objects and checks. They are never changed afterwards.
    """
    original_block, original_tensor = tl.block_type.__init__, tl.tensor.__init__
    known: dict[tuple, dict] = {}
    of_numbers: list = []  # the shape and size of everything that is no block

    @functools.wraps(original_block)
    def block_type(self, element_ty, shape):
        if type(element_ty) is not tl.dtype:  # pointers to different tensors' types share names
            original_block(self, element_ty, shape)
            return
        sizes = shape.values if isinstance(shape, tl.tuple) else shape
        key = element_ty.name, *[size.value if isinstance(size, tl.constexpr) else size for size in sizes]
        if key not in known:
            original_block(self, element_ty, shape)
            known[key] = {**vars(self), "_shape_and_numel": []}
        vars(self).update(known[key])

    @functools.wraps(original_tensor)
    def tensor(self, handle, type):
        kept = vars(type).get("_shape_and_numel") if type.is_block() else of_numbers
        if not kept:
            original_tensor(self, handle, type)
            if kept is not None:
                kept += [self.shape, self.numel]
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = kept

    tl.block_type.__init__ = block_type
    tl.tensor.__init__ = tensor
