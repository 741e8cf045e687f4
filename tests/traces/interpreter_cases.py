"""Small kernels that Triton's interpreter gets wrong, each compared with PyTorch.

`CASES` maps a name to a function that returns whether the kernel's result is right. Run as a script, the file does
*not* install the repairs and prints, as JSON, which cases are right without them: the tests use that to show that each
repair is needed.
"""

import json
import linecache
import os
import sys
import warnings

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

CASES = {}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def case(function):
    CASES[function.__name__] = function
    return function


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Equal bit for bit, NaN equal to NaN."""
    return got.dtype == want.dtype and torch.equal(
        torch.nan_to_num(got.double(), nan=12345.0), torch.nan_to_num(want.double(), nan=12345.0)
    )


KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x, y = tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)
    BEFORE
    tl.store(out_ptr + offsets, EXPRESSION)
"""


def place(code):
    """The name of the file of a kernel that has none."""
    return f"<{code}>"


def kernel_of(code, **names):
    """A kernel that stores an expression of the blocks `x` and `y`, after other statements, each of which ends with a
    semicolon. Triton reads its source, as a debugger would."""
    before, _, expression = code.rpartition("; ")
    text = KERNEL.replace("BEFORE", before.replace("; ", "\n    ")).replace("EXPRESSION", expression)
    linecache.cache[place(code)] = len(text), None, text.splitlines(keepends=True), place(code)
    scope = dict(triton=triton, tl=tl, libdevice=libdevice, __name__=__name__, **names)
    exec(compile(text, place(code), "exec"), scope)
    return scope["kernel"]


def run(code, x, y=None, out_dtype=None, n=0):
    out = torch.zeros(x.shape, dtype=out_dtype or x.dtype)
    kernel_of(code)[(1,)](x, x if y is None else y, out, n, N=x.numel())
    return out


def random(dtype=BF16, n=64, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)


for name, (expression, function) in {
    "add": ("x + y", torch.add),
    "sub": ("x - y", torch.sub),
    "mul": ("x * y", torch.mul),
    "div": ("x / y", torch.div),
    "maximum": ("tl.maximum(x, y)", torch.maximum),
    "minimum": ("tl.minimum(x, y)", torch.minimum),
    "scalar": ("x * 1.5 + 0.125", lambda x, y: x * 1.5 + 0.125),
    "neg": ("-x", lambda x, y: -x),
    "less": ("tl.where(x < y, 1.0, 0.0)", lambda x, y: (x < y).to(BF16)),
    "where": ("tl.where(x > y, x, y)", torch.maximum),
    "clamp": ("tl.clamp(x, -0.5, 0.5)", lambda x, y: x.clamp(-0.5, 0.5)),
    "fma": ("tl.fma(x, y, x)", lambda x, y: (x.double() * y.double() + x.double()).to(BF16)),
    "full": ("tl.full((N,), 0.3, out_ptr.dtype.element_ty)", lambda x, y: torch.full_like(x, 0.3)),
}.items():
    x, y = random(seed=1), random(seed=2)
    CASES[f"bf16_{name}"] = lambda e=expression, x=x, y=y, f=function: same(run(e, x, y), f(x, y))


@case
def a_fused_multiply_add_rounds_once():
    pairs = [(random(dtype, seed=1), random(dtype, seed=2)) for dtype in (FP32, FP16)]
    return all(same(run("tl.fma(x, y, x)", x, y), (x.double() * y.double() + x.double()).to(x.dtype)) for x, y in pairs)


#: Ties in both directions, the step to infinity, subnormals, infinities, NaN.
HOSTILE = torch.tensor(
    [
        1.00390625,
        1.01171875,
        -1.00390625,
        3.4e38,
        3.3961775e38,
        1e-40,
        6e-41,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        0.1,
        1 / 3,
        65504.0,
        1e-8,
        2.0,
    ]
)


TRUNCATED = "x.to(tl.bfloat16, fp_downcast_rounding='rtz')"


for name, (x, dtype) in {
    "store_to_bf16_rounds_to_nearest_even": (HOSTILE, BF16),
    "cast_fp16_to_bf16": (random(FP16), BF16),
    "cast_bf16_to_fp16": (random(BF16), FP16),
    "cast_bf16_to_int32": (random(BF16) * 50, torch.int32),
}.items():
    CASES[name] = lambda x=x, dtype=dtype: same(run("x", x, out_dtype=dtype), x.to(dtype))


@case
def cast_to_bf16_towards_zero_when_asked():
    want = (HOSTILE.view(torch.int32) & -65536).view(FP32).to(BF16)
    return same(run(TRUNCATED, HOSTILE, out_dtype=BF16), want)


def float8_case(dtype):
    x = torch.tensor([0.1, 0.3, -0.7, 1.1, 1e6, -1e6, 1.0625, 1.1875, 0.002, -0.0, 100.0, 300.0, 2.5, 3.5, 17.0, 19.0])
    largest = torch.finfo(dtype).max
    stored = run("x", x, out_dtype=dtype)
    everything = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.float8_e5m2:  # Inf is an input no kernel should build on; NaN must stay NaN
        everything = everything[~everything.view(dtype).float().isinf()][:128]
    loaded = run("x", everything.view(dtype), out_dtype=FP32)
    return same(stored.float(), x.clamp(-largest, largest).to(dtype).float()) and same(
        loaded, everything.view(dtype).float()
    )


@case
def float8_e4m3_rounds_and_saturates():
    return float8_case(torch.float8_e4m3fn)


@case
def float8_e5m2_rounds_and_saturates():
    return float8_case(torch.float8_e5m2)


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    rows = tl.arange(0, N)[:, None]
    columns = tl.arange(0, N)[None, :]
    a = tl.load(a_ptr + rows * N + columns)
    b = tl.load(b_ptr + rows * N + columns)
    tl.store(out_ptr + rows * N + columns, tl.dot(a, b, tl.zeros((N, N), dtype=tl.float32)))


@case
def bf16_dot():
    a, b = random(n=256, seed=3).view(16, 16), random(n=256, seed=4).view(16, 16)
    out = torch.empty(16, 16)
    dot_kernel[(1,)](a, b, out, N=16)
    return torch.allclose(out.double(), a.double() @ b.double(), rtol=1e-6, atol=1e-5)


for name, (x, function) in {
    "sum": (random(seed=5), lambda x: x.float().sum().to(BF16)),
    "max": (-random(seed=6).abs() - 1, torch.max),
    "min": (-random(seed=6).abs() - 1, torch.min),
    "argmax": (random(seed=7), lambda x: x.argmax().to(torch.int32)),
    "cumsum": (random(seed=8), lambda x: x.float().cumsum(0).to(BF16)),
}.items():
    want = function(x).expand(x.shape)
    CASES[f"bf16_{name}"] = lambda name=name, x=x, want=want: same(
        run(f"tl.{name}(x, axis=0)", x, out_dtype=want.dtype), want
    )


@triton.jit
def atomic_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * N + offsets)
    tl.atomic_add(out_ptr + offsets // 2, x, mask=offsets < N - 1)


@case
def bf16_atomic_add():
    x, out = random(n=24, seed=9).view(3, 8), torch.zeros(4, dtype=BF16)
    atomic_kernel[(3,)](x, out, N=8)
    want = torch.zeros(4, dtype=BF16)
    for row in x:
        for lane in range(7):
            want[lane // 2] += row[lane]
    return same(out, want)


@triton.jit
def atomic_min_kernel(x_ptr, out_ptr, N: tl.constexpr):
    tl.atomic_min(out_ptr + tl.arange(0, N), tl.load(x_ptr + tl.arange(0, N)))


@case
def float_atomic_min():
    x, out = random(FP32, 8), torch.zeros(8)
    atomic_min_kernel[(1,)](x, out, N=8)
    return same(out, x.clamp(max=0))


@triton.jit
def mask_kernel(out_ptr, limit, N: tl.constexpr):
    offsets = tl.arange(0, N)
    inside = tl.broadcast_to(offsets[:, None] < limit, (N, 2))
    scalar_inside = (limit > 2) & (offsets < N)
    tl.store(out_ptr + offsets[:, None] * 2 + tl.arange(0, 2)[None, :], 1.0, mask=~inside)
    tl.store(out_ptr + 2 * N + offsets, 1.0, mask=~scalar_inside)


@case
def inverted_mask():
    out = torch.zeros(12)
    mask_kernel[(1,)](out, 3, N=4)
    return out.tolist() == [0.0] * 6 + [1.0] * 2 + [0.0] * 4


@case
def maximum_ignores_nan():
    x, y = torch.tensor([float("nan"), 1.0, 2.0, float("nan")]), torch.tensor([0.5, float("nan"), 3.0, float("nan")])
    return same(run("tl.maximum(x, y)", x, y), torch.fmax(x, y)) and same(
        run("tl.minimum(x, y)", x, y), torch.fmin(x, y)
    )


BLOCK = "tl.load(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (N,), (0,)), boundary_check=(0,)"
#: Ways to load the first n of N.
LOADS = {
    "mask": "tl.load(x_ptr + offsets, mask=offsets < n)",
    "other": "tl.load(x_ptr + offsets, mask=offsets < n, other=0)",
    "scalar": "tl.load(x_ptr + n, mask=n < 0) + tl.zeros((N,), x_ptr.dtype.element_ty)",
    "block pointer": f"{BLOCK})",
    "padding": f"{BLOCK}, padding_option='zero')",
    "descriptor": "tl.make_tensor_descriptor(x_ptr, [n], [1], [N]).load([0])",
}


def load_eight_of_sixteen(way, dtype):
    """The first 8 of 16 ones through a masked load that covers all 16."""
    return run(LOADS[way], torch.ones(16).to(dtype), n=8)


#: Triton 3.9 has no block pointers any more.
BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
FLOATS = [torch.float64, FP32, FP16, BF16, torch.float8_e4m3fn, torch.float8_e5m2]


@case
def masked_lanes_without_other_are_nan():
    ways = ("mask", "block pointer") if BLOCK_POINTERS else ("mask",)
    outs = [load_eight_of_sixteen(way, dtype).double() for way in ways for dtype in FLOATS]
    return all(bool((out[:8] == 1).all() and out[8:].isnan().all()) for out in outs)


@case
def a_scalar_load_that_is_masked_off_is_nan():
    return bool(load_eight_of_sixteen("scalar", FP32).isnan().all())


@case
def masked_integers_without_other_are_a_pattern():
    expected = {torch.int8: -1, torch.uint8: 255, torch.int32: -1515870811, torch.int64: -6510615555426900571}
    outs = {dtype: load_eight_of_sixteen("mask", dtype) for dtype in expected}
    return all(bool((out[:8] == 1).all() and (out[8:] == expected[dtype]).all()) for dtype, out in outs.items())


@case
def lanes_with_other_or_padding_keep_it():
    ways = ("other", "padding", "descriptor") if BLOCK_POINTERS else ("other", "descriptor")
    outs = [load_eight_of_sixteen(way, dtype) for way in ways for dtype in FLOATS[1:4]]
    return all(out.tolist() == [1.0] * 8 + [0.0] * 8 for out in outs)


def right_from_libdevice(expression, function):
    x = torch.rand(61, generator=torch.Generator().manual_seed(10)) * 6 + 0.01
    x = torch.cat([x, torch.tensor([0.5, 2.5, 3.5])])
    return torch.allclose(run(expression, x).double(), function(x.double()), rtol=2e-7, atol=1e-7)


NAMES = "tanh erf exp exp2 expm1 log log1p rsqrt sqrt atan sinh lgamma trunc".split()
for name, (expression, function) in {
    **{name: (f"libdevice.{name}(x)", getattr(torch, name)) for name in NAMES},
    "pow": ("libdevice.pow(x, 3.0)", lambda x: x**3),
    "acosh": ("libdevice.acosh(x + 1.0)", lambda x: torch.acosh(x + 1)),
    "erfinv": ("libdevice.erfinv(x / 8)", lambda x: torch.erfinv(x / 8)),
    "normcdf": ("libdevice.normcdf(x)", torch.special.ndtr),
    "fast_dividef": ("libdevice.fast_dividef(x, 3.0)", lambda x: x / 3),
    "div_rn": ("libdevice.div_rn(x, 3.0)", lambda x: x / 3),
    "rint": ("libdevice.rint(x)", torch.round),
    "round": ("libdevice.round(x)", lambda x: torch.floor(x + 0.5)),
    "isnan": ("tl.where(libdevice.isnan(tl.sqrt(1.0 - x)), 1.0, 0.0)", lambda x: (x > 1).double()),
}.items():
    CASES[f"libdevice_{name}"] = lambda e=expression, f=function: right_from_libdevice(e, f)


@triton.jit
def python_min_max_kernel(x_ptr, out_ptr, n, limit, NUMBERS: tl.constexpr, N: tl.constexpr):
    SIZE: tl.constexpr = max(N, 4)
    offsets = tl.arange(0, SIZE)
    x = tl.load(x_ptr + offsets)
    if NUMBERS:
        for _ in range(0, min(n, 3)):
            x += 1.0
        tl.store(out_ptr + offsets, x + max(limit, 0.5) + min(SIZE, 2))
    else:
        tl.store(out_ptr + offsets, min(max(x + limit, 0), x, 6.0))


def run_python_min_max(numbers):
    x, out = torch.arange(-8.0, 8.0), torch.empty(16)
    python_min_max_kernel[(1,)](x, out, 5, 3.0, NUMBERS=numbers, N=16)
    return same(out, x + 3 + 3 + 2 if numbers else torch.minimum((x + 3).clamp(0, 6), x))


@case
def python_min_and_max_of_numbers():
    return run_python_min_max(True)


@case
def python_min_and_max_of_blocks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_python_min_max(False)


@case
def a_float_is_float32():
    """What a launched kernel gets of Python's float: 1 − 10⁻⁹ is 1, and it has `.to`."""
    x = torch.ones(4)
    kept = run("x * ((1.0 - n) * 1e12)", x, n=1 - 1e-9)
    return same(kept, torch.zeros(4)) and same(run("x * n.to(tl.float64)", x, n=0.1), torch.full((4,), 0.1))


@triton.jit
def largest_kernel(x_ptr, out_ptr, n, N: tl.constexpr):
    columns = tl.arange(0, N)
    tl.store(out_ptr, tl.max(tl.load(x_ptr + columns, mask=columns < n), 0))


@triton.jit
def scaled(x, factor):
    return x * factor.missing


@triton.jit
def failing_kernel(x_ptr, N: tl.constexpr, DEEP: tl.constexpr):
    """Fails at its store, or in its helper."""
    x = tl.load(x_ptr + tl.arange(0, N))
    if DEEP:
        x = scaled(x, x)
    tl.store(x_ptr + tl.arange(0, 2 * N), x)


def results() -> dict[str, bool]:
    """Name -> whether the case comes out right; an error is not right."""
    right = {}
    for name, function in CASES.items():
        try:
            right[name] = bool(function())
        except Exception as error:
            right[name] = False
            print(name, type(error).__name__, error, file=sys.stderr)
    return right


if __name__ == "__main__":
    if "--repaired" in sys.argv:
        from academy import interpreter

        interpreter.install()
    print(json.dumps({"triton": triton.__version__, "right": results()}))
