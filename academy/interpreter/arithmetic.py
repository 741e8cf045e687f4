"""Arithmetic: bfloat16 in float32 and rounded once, one result on every machine, what becomes of a NaN."""

from __future__ import annotations

import ast
import functools
import sys
import warnings

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from academy.interpreter.bits import decode, fp32_to_bf16, is_bf16, is_float8, narrowed, widened
from academy.interpreter.repairs import need


def repair_arithmetic() -> None:
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def through_fp32(name: str, reason: str) -> None:
        original = getattr(builder, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            if not any(map(is_bf16, args)):
                return original(self, *args, **kwargs)
            need(reason)
            return narrowed(original(self, *map(widened, args), **kwargs))

        setattr(builder, name, method)

    builder.create_fma = _fused
    for name in ("ternary_op", "unary_op", "create_fma", "create_rsqrt", "create_erf"):
        through_fp32(name, "bf16")
    builder.unary_op = _rounded_once(builder.unary_op)
    builder.create_select = _select
    builder.create_erf = _vectorised_erf(builder.create_erf)
    builder.get_bf16 = lambda self, value: handle(fp32_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    original_binary_op = builder.binary_op

    def binary_op(self, lhs, rhs, op):
        if is_float8(lhs) or is_float8(rhs):
            raise TypeError(f"the compiler has no arithmetic on {lhs.dtype}: cast it first, as in x.to(tl.float32)")
        if lhs.dtype.scalar.name == "bf16":
            need("bf16")
            return narrowed(original_binary_op(self, widened(lhs), widened(rhs), op))
        result = original_binary_op(self, lhs, rhs, op)
        # Triton types a comparison like its operands; a mask broadcast later would become 0 and 1 of that type.
        return handle(result.data, tl.int1) if result.data.dtype == np.bool_ else result

    builder.binary_op = binary_op
    original_dot = builder.create_dot

    def create_dot(self, a, b, accumulator, *args, **kwargs):
        if any(is_bf16(operand) or is_float8(operand) for operand in (a, b)):
            need("bf16 dot")
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


def _fused(self, x, y, z):
    """`tl.fma` rounds once, on a GPU. In float64 the product of two float32 numbers is exact."""
    values = x.data.astype(np.float64) * y.data + z.data
    return interpreter.TensorHandle(values.astype(z.data.dtype), z.dtype.scalar)


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


def repair_constants() -> None:
    """`BLOCK - x` is a tensor, as the compiler takes it. Python asks the constant first, and its answer would be a
    constant that holds a tensor, which not all versions take for a coordinate. And `BLOCK % SIZE` with a global SIZE:
    the interpreter has a plain number for the argument, which the constant must take from the right, too."""
    for name in ("mod", "and", "or", "xor", "lshift", "rshift"):
        setattr(tl.constexpr, f"__r{name}__", _from_the_right(f"__{name}__"))
    reflected = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
    names = ["add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", *reflected]
    for name in names:
        if hasattr(tl.tensor, f"__{reflected.get(name, 'r' + name)}__"):
            setattr(tl.constexpr, f"__{name}__", _not_with_tensors(getattr(tl.constexpr, f"__{name}__")))


def _from_the_right(name: str):
    return lambda self, other: NotImplemented if type(other) is tl.tensor else getattr(tl.constexpr(other), name)(self)


def _not_with_tensors(operator):
    @functools.wraps(operator)
    def method(self, other):
        return NotImplemented if type(other) is tl.tensor else operator(self, other)

    return method


def repair_nan_rules() -> None:
    builder = interpreter.InterpreterBuilder

    def ignoring_nan(op):
        def method(self, lhs, rhs):
            if lhs.data.dtype.kind == "f" and (np.isnan(lhs.data).any() or np.isnan(rhs.data).any()):
                need("nan")
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


def repair_min_and_max() -> None:
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
