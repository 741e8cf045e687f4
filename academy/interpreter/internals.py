"""What of Triton's interpreter the repairs build on, and what to say where it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter

#: Versions whose internals the repairs were checked against.
CHECKED_VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")

_BUILDER_METHODS = (
    "binary_op ternary_op unary_op cast_impl create_fp_to_fp create_dot create_fma create_rsqrt create_erf "
    "create_clampf create_minnumf create_maxnumf create_atomic_rmw create_masked_load create_extern_elementwise "
    "create_histogram"
).split()
_MODULE_NAMES = (
    "FunctionRewriter InterpreterBuilder InterpretedFunction TensorHandle GridExecutor InterpreterError ReduceOps "
    "ReduceScanOpInterface ScanOps _LangPatchScope _patch_lang _patch_lang_tensor _get_np_dtype _interpreter _ir "
    "interpreter_builder interpreter_semantic _implicit_cvt"
).split()
_LANGUAGE_NAMES = "base_type block_type dtype pointer_type tensor tuple".split()
_SEMANTIC_METHODS = "binary_op_type_checking_impl broadcast_impl_value cast to_tensor".split()
_OPERATIONS = [("ReduceOps", "generic_reduce"), ("ScanOps", "generic_scan"), ("ScanOps", "cumsum")]
_OPERATIONS += [("ScanOps", "cumprod"), ("ReduceScanOpInterface", "apply"), ("InterpretedFunction", "run")]
_OPERATIONS += [("GridExecutor", "_init_args_hst"), ("GridExecutor", "_restore_args_dev")]
_OPERATIONS += [("TensorDescHandle", "materialize_pointers")]


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


def check() -> None:
    if type(tl.standard.sum).__name__ != "InterpretedFunction":
        raise RuntimeError(
            "academy.interpreter: triton was imported without TRITON_INTERPRET=1; set it before the import"
        )
    require("academy.interpreter", [(interpreter, name) for name in _MODULE_NAMES])
    require("academy.interpreter", [(interpreter.InterpreterBuilder, name) for name in _BUILDER_METHODS])
    require("academy.interpreter", [(getattr(interpreter, owner), name) for owner, name in _OPERATIONS])
    require("academy.interpreter", [(tl.core, name) for name in _LANGUAGE_NAMES])
    require("academy.interpreter", [(interpreter.TritonSemantic, name) for name in _SEMANTIC_METHODS])
