"""What Triton's Python needs of its C++ part, `triton._C.libtriton`, to run the interpreter: names, enums, memory."""

from __future__ import annotations

import enum
import os
import sys
import types

import numpy as np
from torch import _memory

__path__: list[str] = []


def getenv(key, default=None):
    return os.environ.get(key, default)


def getenv_bool(key, default=False):
    value = os.environ.get(key)
    return default if value is None else value.lower() in ("1", "true", "on", "yes", "y")


def get_cache_invalidating_env_vars():
    return {}


def native_specialize_impl(_backend, argument, is_const, *_):
    """(type, key) of an argument, as far as the interpreter needs it."""
    if argument is None:
        return "constexpr", None
    if isinstance(argument, bool):
        return "u1", None
    if isinstance(argument, int):
        return ("i32" if -(2**31) <= argument < 2**31 else "i64" if argument < 2**63 else "u64"), None
    if isinstance(argument, float):
        return "fp32", None
    if hasattr(argument, "data_ptr"):
        from triton._utils import canonicalize_dtype

        return ("*k" if is_const else "*") + canonicalize_dtype(argument.dtype), None
    raise TypeError(f"{type(argument).__name__} can't be an argument of a kernel")


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(f"{__name__}.{name}")
    sys.modules[module.__name__] = module
    globals()[name] = module
    return module


_ENUMS = {
    "ATOMIC_OP": "ADD FADD AND OR XOR XCHG MAX MIN UMIN UMAX",
    "MEM_SEMANTIC": "ACQUIRE_RELEASE ACQUIRE RELEASE RELAXED",
    "MEM_SYNC_SCOPE": "GPU CTA SYSTEM",
    "ROUNDING_MODE": "RTNE RTZ",
    "PADDING_OPTION": "PAD_ZERO PAD_NAN",
    "CACHE_MODIFIER": "NONE CA CG WB CS WT CV",
    "EVICTION_POLICY": "NORMAL EVICT_FIRST EVICT_LAST",
    "DESCRIPTOR_REDUCE_KIND": "ADD AND OR XOR MIN MAX INC DEC",
    "PROPAGATE_NAN": "NONE ALL",
    "INPUT_PRECISION": "TF32 TF32x3 IEEE BF16x3 BF16x6",
    "ScaleDotElemTypeTY": "E4M3 E5M2 E2M3 E3M2 E2M1 BF16 FP16",
}
_ir, _interpreter = _module("ir"), _module("interpreter")
for _name in "gluon_ir linear_layout llvm passes nvidia amd".split():
    _module(_name)
for _name, _members in _ENUMS.items():
    setattr(_ir, _name, enum.Enum(_name, _members))
for _name in "value type builder block_type pointer_type context module make_attr".split():
    setattr(_ir, _name, type(_name, (), {}))
for _name in "GluonOpBuilder compute_tmem_reg_layout get_amd_mfma_scale_layout get_amd_wmma_scale_layout".split():
    setattr(sys.modules[f"{__name__}.gluon_ir"], _name, type(_name, (), {}))  # imported, and never called
_interpreter.MEM_SEMANTIC = _ir.MEM_SEMANTIC
_interpreter.RMW_OP = enum.Enum("RMW_OP", _ENUMS["ATOMIC_OP"])
sys.modules[f"{__name__}.linear_layout"].LinearLayout = type("LinearLayout", (), {})


# ---- memory: what interpreter.cc does with plain pointers


def _lanes(pointers, mask):
    """The shape of a block of pointers, the addresses that are not masked off, and their positions."""
    shape = np.shape(pointers)
    active = np.flatnonzero(np.broadcast_to(np.asarray(mask, dtype=bool), shape))
    return shape, np.asarray(pointers).astype(np.int64).reshape(-1)[active], active


def _elements(addresses, dtype):
    """For each block of memory: its bytes as numbers of this dtype, which addresses lie in it, and at which element."""
    for block, lanes, offsets in _memory.parts(addresses, dtype.itemsize):
        numbers = block[: block.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
        yield numbers, lanes, offsets // dtype.itemsize


def load(pointers, mask, other, dtype):
    shape, addresses, active = _lanes(pointers, mask)
    out = np.array(np.broadcast_to(other, shape), dtype=dtype).reshape(-1)
    for numbers, lanes, at in _elements(addresses, np.dtype(dtype)):
        out[active[lanes]] = numbers[at]
    return out.reshape(shape)


def store(pointers, values, mask):
    shape, addresses, active = _lanes(pointers, mask)
    values = np.asarray(values)
    flat = np.broadcast_to(values, shape).reshape(-1)
    for numbers, lanes, at in _elements(addresses, values.dtype):
        numbers[at] = flat[active[lanes]]


_RMW = {
    "ADD": lambda old, new: old + new,
    "FADD": lambda old, new: old + new,
    "AND": lambda old, new: old & new,
    "OR": lambda old, new: old | new,
    "XOR": lambda old, new: old ^ new,
    "XCHG": lambda old, new: new,
    "MAX": max,
    "MIN": min,
    "UMAX": max,
    "UMIN": min,
}


def atomic_rmw(operation, pointers, values, mask, _semantic):
    shape, addresses, active = _lanes(pointers, mask)
    values = np.asarray(values)
    flat, before = np.broadcast_to(values, shape).reshape(-1), np.zeros(int(np.prod(shape)), dtype=values.dtype)
    for numbers, lanes, at in _elements(addresses, values.dtype):
        for lane, element in zip(active[lanes], at):  # one after the other: two lanes may meet at one element
            before[lane] = numbers[element]
            numbers[element] = _RMW[operation.name](numbers[element], flat[lane])
    return before.reshape(shape)


def atomic_cas(pointers, compare, values, _semantic):
    shape, addresses, active = _lanes(pointers, True)
    values = np.asarray(values)
    new, expected = (np.broadcast_to(each, shape).reshape(-1) for each in (values, compare))
    before = np.zeros(int(np.prod(shape)), dtype=values.dtype)
    for numbers, lanes, at in _elements(addresses, values.dtype):
        for lane, element in zip(active[lanes], at):
            before[lane] = numbers[element]
            if numbers[element] == expected[lane]:
                numbers[element] = new[lane]
    return before.reshape(shape)


_interpreter.load, _interpreter.store = load, store
_interpreter.atomic_rmw, _interpreter.atomic_cas = atomic_rmw, atomic_cas
