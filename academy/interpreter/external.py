"""Functions of libdevice, which the interpreter lacks."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from academy.interpreter import libdevice as libdevice_on_cpu
from academy.interpreter.repairs import need


def repair_libdevice() -> None:
    def create_extern_elementwise(self, library, path, symbol, operands, result_type, is_pure):
        function = libdevice_on_cpu.find(symbol)
        if function is None:
            raise NotImplementedError(
                f"libdevice function {symbol} has no CPU version in academy.interpreter; "
                f"it has: {', '.join(sorted(libdevice_on_cpu.FUNCTIONS))}"
            )
        need("libdevice")
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
