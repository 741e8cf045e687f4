"""NVIDIA's libdevice on the CPU: what each of its functions computes, as a function of float64 arrays.

Source: libdevice user's guide. `academy.interpreter` calls these where a compiled kernel would call libdevice.
"""

from __future__ import annotations

import numpy as np
import torch


def _by_torch(name: str):
    function = getattr(torch.special, name, None) or getattr(torch, name)
    return lambda *args: function(*(torch.from_numpy(np.array(a)) for a in args)).numpy()


#: libdevice's symbols without their `__nv_` and their type suffix -> a function of float64 arrays.
FUNCTIONS = {
    **{name: getattr(np, name) for name in "exp exp2 expm1 log log2 log10 log1p sqrt cbrt sin cos tan".split()},
    **{
        name: getattr(np, name)
        for name in "sinh cosh tanh floor ceil trunc rint fmod isnan isinf signbit hypot".split()
    },
    **{name: getattr(np, "arc" + name[1:]) for name in "asin acos atan atan2 asinh acosh atanh".split()},
    **{name: _by_torch(name) for name in "erf erfc erfinv erfcx lgamma".split()},
    "exp10": lambda x: np.power(10.0, x),
    "fabs": np.abs,
    "copysign": np.copysign,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "fma": lambda x, y, z: x * y + z,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "nearbyint": np.rint,
    "normcdf": _by_torch("ndtr"),
    "normcdfinv": _by_torch("ndtri"),
    "pow": np.power,
    "powi": np.power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),  # halves go away from zero
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "fdividef": np.divide,
    "fast_fdividef": np.divide,
    "fdiv_rn": np.divide,
    "ddiv_rn": np.divide,
    "frcp_rn": np.reciprocal,
    "drcp_rn": np.reciprocal,
    "fsqrt_rn": np.sqrt,
    "dsqrt_rn": np.sqrt,
    "frsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "fadd_rn": np.add,
    "dadd_rn": np.add,
    "fsub_rn": np.subtract,
    "dsub_rn": np.subtract,
    "fmul_rn": np.multiply,
    "dmul_rn": np.multiply,
}


def find(symbol: str):
    """The function behind `__nv_tanhf`, `__nv_tanh`, `__nv_isnand`, `__nv_fast_expf`, or None."""
    name = symbol.removeprefix("__nv_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d")):
        for plain in (candidate, candidate.removeprefix("fast_")):
            if plain in FUNCTIONS:
                return FUNCTIONS[plain]
    return None
