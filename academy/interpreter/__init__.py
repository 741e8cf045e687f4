"""Repairs of Triton's interpreter, so that a kernel computes on the CPU what it computes on a GPU.

The interpreter (`TRITON_INTERPRET=1`) keeps bfloat16 and float8 values as raw bits and then does integer arithmetic on
them: `x + y` of two bfloat16 blocks is silently garbage. It also truncates where the hardware rounds, and it has no
`libdevice`. `install()` repairs this for scripts, notebooks and tests alike. `REPAIRS` lists the repairs, and `used()`
names those that the kernels launched so far needed, so that a page can say so.

What the hardware leaves undefined is poisoned: lanes that a load masks off without `other` hold NaN, or for integers
0xA5 in every byte (0xFF in a single one). For NVIDIA's cards the compiler makes them 0 (Triton 3.6 to 3.9), which
hides the mistake.

What the compiler rejects is rejected here too: `tl.exp` of a float16 block raises, arithmetic on float8 does, and
`libdevice` uses the compiler's own table of types.

A NaN or an infinity gives no warning, as on a GPU. An exception in a kernel ends with the kernel's line, as a note.
Kernels launched by several threads run one after the other.

What only makes the interpreter quick is in `academy.interpreter.quick`; `ACADEMY_QUICK=0` in the environment leaves it
out. No result depends on it.

Sources: PTX ISA (`cvt.rn.bf16.f32`, `cvt.rn.satfinite.e4m3x2.f32`, `cvt.rz.f16.f32`, `min`/`max` of a NaN), libdevice
user's guide, `triton/runtime/interpreter.py` of Triton 3.6.0, 3.7.1, 3.8.0 and 3.9.0.
"""

from __future__ import annotations

import os

from triton.runtime import interpreter

from academy.interpreter import arithmetic, casts, external, internals, launches, memory, mistakes, quick, reductions
from academy.interpreter.bits import decode, undefined_lanes
from academy.interpreter.internals import CHECKED_VERSIONS, UnknownInterpreter, require
from academy.interpreter.quick import together
from academy.interpreter.repairs import REPAIRS, used

__all__ = ["CHECKED_VERSIONS", "REPAIRS", "UnknownInterpreter", "decode", "forget", "install", "require"]
__all__ += ["undefined_lanes", "used"]


def install() -> None:
    """Put the repairs into Triton's interpreter. A second call does nothing.

    Raises:
        RuntimeError: this version of Triton lacks internals that the repairs build on, or triton was imported without
            `TRITON_INTERPRET=1`. Nothing has been changed then.
    """
    if getattr(interpreter, "_academy_repairs", False):
        return
    internals.check()
    interpreter._academy_repairs = True
    arithmetic.repair_arithmetic()
    casts.repair_casts()
    arithmetic.repair_constants()
    arithmetic.repair_nan_rules()
    arithmetic.repair_min_and_max()
    reductions.repair_reductions()
    memory.repair_atomics()
    memory.repair_descriptors()
    memory.repair_loads()
    launches.repair_indices()
    launches.repair_arguments()
    external.repair_libdevice()
    if os.environ.get("ACADEMY_QUICK") != "0":
        together.install()
    launches.repair_messages()
    mistakes.install()
    if os.environ.get("ACADEMY_QUICK") != "0":
        quick.quicken()
    launches.repair_threads()


def forget(file: str) -> None:
    """Drop what the interpreter keeps of the kernels of a file that is not needed any more."""
    rewritten = interpreter.InterpretedFunction.rewritten_fn
    for kernel in [kernel for kernel in rewritten if kernel.__code__.co_filename == file]:
        del rewritten[kernel]
