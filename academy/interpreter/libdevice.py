"""NVIDIA's libdevice on the CPU: what each of its functions computes, as a function of float64 arrays.

Source: libdevice user's guide. `academy.interpreter` calls these where a compiled kernel would call libdevice.
"""

from __future__ import annotations

import numpy as np
import torch


def _by_torch(name: str):
    function = getattr(torch.special, name, None) or getattr(torch, name)
    return lambda *args: function(*(torch.from_numpy(np.array(a)) for a in args)).numpy()


_NUMPY = """exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan sinh cosh tanh floor ceil trunc rint fmod isnan
    isinf signbit hypot fabs copysign fmax fmin isfinite""".split()
_TORCH = "erf erfc erfinv erfcx lgamma ndtr ndtri".split()
#: Other names, and names with a rounding mode: the interpreter computes in float64 and rounds once.
_ALIASES = dict(
    pair.split(":")
    for pair in """finite:isfinite isfinited:isfinite nearbyint:rint normcdf:ndtr normcdfinv:ndtri powi:pow
    fdividef:divide fast_fdividef:divide fdiv_rn:divide ddiv_rn:divide frcp_rn:reciprocal drcp_rn:reciprocal
    fsqrt_rn:sqrt dsqrt_rn:sqrt frsqrt_rn:rsqrt fadd_rn:add dadd_rn:add fsub_rn:subtract dsub_rn:subtract
    fmul_rn:multiply dmul_rn:multiply""".split()
)
#: libdevice's symbols without their `__nv_` and their type suffix -> a function of float64 arrays.
FUNCTIONS = {
    **{name: getattr(np, name) for name in [*_NUMPY, "divide", "reciprocal", "add", "subtract", "multiply"]},
    **{name: getattr(np, "arc" + name[1:]) for name in "asin acos atan atan2 asinh acosh atanh".split()},
    **{name: _by_torch(name) for name in _TORCH},
    "exp10": lambda x: np.power(10.0, x),
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "fma": lambda x, y, z: x * y + z,
    "pow": np.power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),  # halves go away from zero
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
}
FUNCTIONS |= {alias: FUNCTIONS[name] for alias, name in _ALIASES.items()}


def named(symbol: str) -> str | None:
    """`tanh` of `__nv_tanhf` or `__nv_tanh`, `exp` of `__nv_fast_expf`: a name of `FUNCTIONS`, or None."""
    name = symbol.removeprefix("__nv_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d")):
        for plain in (candidate, candidate.removeprefix("fast_")):
            if plain in FUNCTIONS:
                return _ALIASES.get(plain, plain)
    return None


def find(symbol: str):
    """The function behind a symbol, or None."""
    return FUNCTIONS.get(named(symbol) or "")
