"""Small kernels that Triton's interpreter gets wrong, each compared with PyTorch.

`CASES` maps a name to a function that returns whether the kernel's result is right. Run as a script, the file does
*not* install the repairs and prints, as JSON, which cases are right without them: the tests use that to show that each
repair is needed.
"""

import json
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


@triton.jit
def binary_kernel(x_ptr, y_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    y = tl.load(y_ptr + offsets)
    if OP == "add":
        out = x + y
    elif OP == "sub":
        out = x - y
    elif OP == "mul":
        out = x * y
    elif OP == "div":
        out = x / y
    elif OP == "scalar":
        out = x * 1.5 + 0.125
    elif OP == "neg":
        out = -x
    elif OP == "less":
        out = tl.where(x < y, 1.0, 0.0)
    elif OP == "where":
        out = tl.where(x > y, x, y)
    elif OP == "maximum":
        out = tl.maximum(x, y)
    elif OP == "minimum":
        out = tl.minimum(x, y)
    elif OP == "clamp":
        out = tl.clamp(x, -0.5, 0.5)
    elif OP == "fma":
        out = tl.fma(x, y, x)
    elif OP == "full":
        out = tl.full((N,), 0.3, out_ptr.dtype.element_ty)
    elif OP == "cast":
        out = x
    elif OP == "truncate":
        out = x.to(tl.bfloat16, fp_downcast_rounding="rtz")
    tl.store(out_ptr + offsets, out)


def run_binary(op, x, y=None, out_dtype=None):
    out = torch.empty(x.shape, dtype=out_dtype or x.dtype)
    binary_kernel[(1,)](x, x if y is None else y, out, OP=op, N=x.numel())
    return out


def random(dtype=BF16, n=64, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)


def register_bf16_arithmetic():
    torch_of = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "scalar": lambda x, y: x * 1.5 + 0.125,
        "neg": lambda x, y: -x,
        "less": lambda x, y: (x < y).to(BF16),
        "where": torch.maximum,
        "clamp": lambda x, y: x.clamp(-0.5, 0.5),
        "fma": lambda x, y: (x.double() * y.double() + x.double()).to(BF16),
        "full": lambda x, y: torch.full_like(x, 0.3),
    }
    for op, function in torch_of.items():
        x, y = random(seed=1), random(seed=2)
        CASES[f"bf16_{op}"] = lambda op=op, x=x, y=y, f=function: same(run_binary(op, x, y), f(x, y))


register_bf16_arithmetic()

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


@case
def store_to_bf16_rounds_to_nearest_even():
    return same(run_binary("cast", HOSTILE, out_dtype=BF16), HOSTILE.to(BF16))


@case
def cast_to_bf16_towards_zero_when_asked():
    want = (HOSTILE.view(torch.int32) & -65536).view(FP32).to(BF16)
    return same(run_binary("truncate", HOSTILE, out_dtype=BF16), want)


@case
def cast_fp16_to_bf16():
    x = random(FP16)
    return same(run_binary("cast", x, out_dtype=BF16), x.to(BF16))


@case
def cast_bf16_to_fp16():
    x = random(BF16)
    return same(run_binary("cast", x, out_dtype=FP16), x.to(FP16))


@case
def cast_bf16_to_int32():
    x = random(BF16) * 50
    return same(run_binary("cast", x, out_dtype=torch.int32), x.to(torch.int32))


def float8_case(dtype):
    x = torch.tensor([0.1, 0.3, -0.7, 1.1, 1e6, -1e6, 1.0625, 1.1875, 0.002, -0.0, 100.0, 300.0, 2.5, 3.5, 17.0, 19.0])
    largest = torch.finfo(dtype).max
    stored = run_binary("cast", x, out_dtype=dtype)
    everything = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.float8_e5m2:  # Inf is an input no kernel should build on; NaN must stay NaN
        everything = everything[~everything.view(dtype).float().isinf()][:128]
    loaded = run_binary("cast", everything.view(dtype), out_dtype=FP32)
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


@triton.jit
def reduce_kernel(x_ptr, out_ptr, index_ptr, OP: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    if OP == "sum":
        tl.store(out_ptr, tl.sum(x, axis=0))
    elif OP == "max":
        tl.store(out_ptr, tl.max(x, axis=0))
    elif OP == "min":
        tl.store(out_ptr, tl.min(x, axis=0))
    elif OP == "argmax":
        tl.store(index_ptr, tl.argmax(x, axis=0))
    elif OP == "cumsum":
        tl.store(out_ptr + offsets, tl.cumsum(x, axis=0))


def run_reduce(op, x):
    out, index = torch.zeros_like(x), torch.zeros(1, dtype=torch.int32)
    reduce_kernel[(1,)](x, out, index, OP=op, N=x.numel())
    return out, index


@case
def bf16_sum():
    x = random(seed=5)
    return same(run_reduce("sum", x)[0][0], x.float().sum().to(BF16))


@case
def bf16_max_of_negative_numbers():
    x = -random(seed=6).abs() - 1
    return same(run_reduce("max", x)[0][0], x.max()) and same(run_reduce("min", x)[0][0], x.min())


@case
def bf16_argmax():
    x = random(seed=7)
    return run_reduce("argmax", x)[1].item() == x.argmax().item()


@case
def bf16_cumsum():
    x = random(seed=8)
    return same(run_reduce("cumsum", x)[0], x.float().cumsum(0).to(BF16))


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
    return same(run_binary("maximum", x, y), torch.fmax(x, y)) and same(run_binary("minimum", x, y), torch.fmin(x, y))


@triton.jit
def libdevice_kernel(x_ptr, out_ptr, OP: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    if OP == "tanh":
        out = libdevice.tanh(x)
    elif OP == "erf":
        out = libdevice.erf(x)
    elif OP == "exp":
        out = libdevice.exp(x)
    elif OP == "exp2":
        out = libdevice.exp2(x)
    elif OP == "expm1":
        out = libdevice.expm1(x)
    elif OP == "log":
        out = libdevice.log(x)
    elif OP == "log1p":
        out = libdevice.log1p(x)
    elif OP == "rsqrt":
        out = libdevice.rsqrt(x)
    elif OP == "sqrt":
        out = libdevice.sqrt(x)
    elif OP == "pow":
        out = libdevice.pow(x, 3.0)
    elif OP == "atan":
        out = libdevice.atan(x)
    elif OP == "sinh":
        out = libdevice.sinh(x)
    elif OP == "acosh":
        out = libdevice.acosh(x + 1.0)
    elif OP == "erfinv":
        out = libdevice.erfinv(x / 8)
    elif OP == "normcdf":
        out = libdevice.normcdf(x)
    elif OP == "lgamma":
        out = libdevice.lgamma(x)
    elif OP == "fast_dividef":
        out = libdevice.fast_dividef(x, 3.0)
    elif OP == "rint":
        out = libdevice.rint(x)
    elif OP == "round":
        out = libdevice.round(x)
    elif OP == "trunc":
        out = libdevice.trunc(x)
    elif OP == "fast_tanhf":
        out = libdevice.tanh(x)
    elif OP == "div_rn":
        out = libdevice.div_rn(x, 3.0)
    elif OP == "isnan":
        out = tl.where(libdevice.isnan(tl.sqrt(1.0 - x)), 1.0, 0.0)
    tl.store(out_ptr + offsets, out)


@triton.jit
def masked_load_kernel(x_ptr, out_ptr, n, WAY: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    if WAY == "mask":
        x = tl.load(x_ptr + offsets, mask=offsets < n)
    elif WAY == "other":
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    elif WAY == "scalar":
        x = tl.load(x_ptr + n, mask=n < 0) + tl.zeros((N,), x_ptr.dtype.element_ty)
    elif WAY == "block pointer":
        x = tl.load(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (N,), (0,)), boundary_check=(0,))
    elif WAY == "padding":
        x = tl.load(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (N,), (0,)), boundary_check=(0,), padding_option="zero")
    elif WAY == "descriptor":
        x = tl.make_tensor_descriptor(x_ptr, [n], [1], [N]).load([0])
    tl.store(out_ptr + offsets, x)


def load_eight_of_sixteen(way, dtype):
    """The first 8 of 16 ones through a masked load that covers all 16."""
    x, out = torch.ones(16).to(dtype), torch.zeros(16).to(dtype)
    masked_load_kernel[(1,)](x, out, 8, WAY=way, N=16)
    return out


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


def register_libdevice():
    torch_of = {
        "pow": lambda x: x**3,
        "acosh": lambda x: torch.acosh(x + 1),
        "erfinv": lambda x: torch.erfinv(x / 8),
        "normcdf": torch.special.ndtr,
        "fast_dividef": lambda x: x / 3,
        "div_rn": lambda x: x / 3,
        "rint": torch.round,
        "round": lambda x: torch.floor(x + 0.5),
        "isnan": lambda x: (x > 1).double(),
        "fast_tanhf": torch.tanh,
    }
    names = "tanh erf exp exp2 expm1 log log1p rsqrt sqrt atan sinh lgamma trunc".split()
    for name, function in {**{n: getattr(torch, n) for n in names}, **torch_of}.items():

        def check(name=name, function=function):
            x = torch.cat(
                [torch.rand(61, generator=torch.Generator().manual_seed(10)) * 6 + 0.01, torch.tensor([0.5, 2.5, 3.5])]
            )
            out = torch.empty_like(x)
            libdevice_kernel[(1,)](x, out, OP=name, N=64)
            return torch.allclose(out.double(), function(x.double()), rtol=2e-7, atol=1e-7)

        CASES[f"libdevice_{name}"] = check


register_libdevice()


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
