"""What the interpreter makes of whole blocks: scans, reductions, histograms and casts, in any thread."""

import threading

import pytest
import torch

from academy.runtime import device

if not device.INTERPRET:
    pytest.skip("compiled kernels don't pass through the interpreter", allow_module_level=True)

import triton
import triton.language as tl

from tests.traces import interpreter_cases

FP8 = {torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2: tl.float8e5}
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@triton.jit
def decayed(decay, state, next_decay, x):
    """h ← a·h + x, as a product of affine maps."""
    return decay * next_decay, next_decay * state + x


@triton.jit
def first_of_two(a, b):
    return a


@triton.jit
def to_float32(a, b):
    return a.to(tl.float32) + b.to(tl.float32)


@triton.jit
def affine_scan_kernel(a_ptr, x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REV: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    _, h = tl.associative_scan((tl.load(a_ptr + offsets), tl.load(x_ptr + offsets)), AXIS, decayed, reverse=REV)
    tl.store(out_ptr + offsets, h)


@triton.jit
def block_kernel(x_ptr, out_ptr, OP: tl.constexpr, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + offsets)
    if OP == "cumsum":
        tl.store(out_ptr + offsets, tl.cumsum(x, AXIS))
    elif OP == "cumsum reversed":
        tl.store(out_ptr + offsets, tl.cumsum(x, AXIS, reverse=True))
    elif OP == "cumprod":
        tl.store(out_ptr + offsets, tl.cumprod(x, AXIS))
    elif OP == "first":
        tl.store(out_ptr + tl.arange(0, M), tl.reduce(x, AXIS, first_of_two))
    elif OP == "first, kept":
        tl.store(out_ptr + tl.arange(0, M)[:, None], tl.reduce(x, AXIS, first_of_two, keep_dims=True))
    elif OP == "first of all":
        tl.store(out_ptr, tl.reduce(x, None, first_of_two))
    elif OP == "float32":
        tl.store(out_ptr + offsets, tl.associative_scan(x, AXIS, to_float32))


def run(op, x, axis=-1, dtype=None):
    out = torch.zeros(x.shape, dtype=dtype or x.dtype)
    block_kernel[(1,)](x, out, OP=op, AXIS=axis, M=x.shape[0], N=x.shape[1])
    return out


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_a_scan_of_two_operands(axis, backwards, dtype):
    a, x = torch.rand(8, 16).to(dtype), torch.randn(8, 16).to(dtype)
    out = torch.empty_like(x)
    affine_scan_kernel[(1,)](a, x, out, M=8, N=16, AXIS=axis, REV=backwards)
    decays, inputs = (v.double().movedim(axis, 0) for v in (a, x))
    if backwards:
        decays, inputs = decays.flip(0), inputs.flip(0)
    states = [inputs[0]]
    for decay, value in zip(decays[1:], inputs[1:]):
        states.append(decay * states[-1] + value)
    want = torch.stack(states[::-1] if backwards else states).movedim(0, axis)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=2e-6 if dtype is FP32 else 0.05)


@pytest.mark.parametrize("axis, size", [(-3, 2), (2, 2)])
def test_an_axis_that_is_not_there_is_refused(axis, size):
    with pytest.raises(Exception, match=f"axis {axis} "):
        run("first", torch.zeros(size, size), axis)


def test_a_scan_calls_its_function_once_a_round(monkeypatch):
    calls = []
    combine = decayed.fn
    monkeypatch.setattr(decayed, "fn", lambda *values: calls.append(values) or combine(*values))
    a, x = torch.rand(1, 1024), torch.randn(1, 1024)
    affine_scan_kernel[(1,)](a, x, torch.empty_like(x), M=1, N=1024, AXIS=1, REV=False)
    assert len(calls) == 10


def test_a_reduction_keeps_the_order_of_the_elements():
    x = torch.randn(4, 8)
    assert torch.equal(run("first", x)[0], torch.cat([x[:, 0], torch.zeros(4)]))
    assert torch.equal(run("first, kept", x)[0], torch.cat([x[:, 0], torch.zeros(4)]))
    assert run("first of all", x)[0, 0] == x[0, 0]
    x = torch.randn(4, 4)
    assert torch.equal(run("first", x, axis=-2)[0], x[0])


def test_another_type_out_of_a_combine_function_is_refused():
    with pytest.raises(Exception, match=r"gets fp16 as operand 0 and returns fp32; .* add \.to\(fp16\)"):
        run("float32", torch.zeros(2, 4, dtype=FP16))


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums_are_rounded_once(axis, dtype):
    x = torch.randn(64, 64).to(dtype)
    assert torch.equal(run("cumsum", x, axis), x.double().cumsum(axis).to(FP32).to(dtype))
    x = x.exp()
    assert torch.equal(run("cumprod", x / x.mean(), axis), (x / x.mean()).double().cumprod(axis).to(FP32).to(dtype))


def test_running_sums_of_whole_numbers_and_from_the_end():
    x = torch.randint(-(2**30), 2**30, (4, 16), dtype=torch.int32)
    assert torch.equal(run("cumsum", x), x.cumsum(1).to(torch.int32))
    assert torch.equal(run("cumsum reversed", x), x.flip(1).cumsum(1).flip(1).to(torch.int32))


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, N: tl.constexpr, BINS: tl.constexpr, MASKED: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=BINS)
    if MASKED:
        counts = tl.histogram(x, BINS, mask=offsets < n)
    else:
        counts = tl.histogram(x, BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)


@pytest.mark.parametrize("masked", [False, True])
def test_a_histogram_counts_nothing_beyond_its_last_bin(masked):
    x = torch.randint(0, 8, (50,), dtype=torch.int32)
    out = torch.empty(8, dtype=torch.int32)
    histogram_kernel[(1,)](x, out, 50, N=64, BINS=8, MASKED=masked)
    assert torch.equal(out, x.bincount(minlength=8).int())


def cast(x, dtype, rounding=None):
    code = f"x.to(out_ptr.dtype.element_ty, fp_downcast_rounding={rounding!r})" if rounding else "x"
    return interpreter_cases.run(code, x, out_dtype=dtype)


def same(got, want):
    assert got.dtype == want.dtype
    got, want = got.double(), want.double()
    assert torch.equal(got.isnan(), want.isnan())
    finite = ~want.isnan()
    assert torch.equal(got[finite], want[finite]) and torch.equal(got[finite].signbit(), want[finite].signbit())


@pytest.mark.parametrize("to", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize("float8", FP8, ids=str)
def test_every_code_of_float8(float8, to):
    codes = torch.arange(256, dtype=torch.uint8).view(float8)
    same(cast(codes, to), codes.to(to))
    finite = codes[codes.float().isfinite()]
    values = torch.zeros(256, dtype=to)
    values[: len(finite)] = finite.to(to)
    same(cast(values, float8)[: len(finite)], finite)


#: Every float16, and float32 numbers around each of them: exact, ties, and a little beside.
HALVES = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(FP16)
AROUND = torch.cat([HALVES.float() * factor for factor in (1.0, 1.0 + 2**-9, 1.0 + 2**-12, 1.0 - 2**-12)])


@pytest.mark.parametrize("float8", FP8, ids=str)
def test_float8_rounds_to_nearest_even_and_saturates(float8):
    largest = torch.finfo(float8).max
    same(cast(AROUND, float8), AROUND.clamp(-largest, largest).to(float8))


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, FP16, BF16], ids=str)
def test_rounding_towards_zero(dtype):
    x = torch.cat([AROUND, AROUND * 1e-6, AROUND * 1e4])
    x = torch.cat([x, torch.zeros(2 ** (len(x) - 1).bit_length() - len(x))])
    got = cast(x, dtype, "rtz")
    nearest = x.to(dtype)
    bits = nearest.view(torch.uint8 if dtype is torch.float8_e5m2 else torch.int16)
    beyond = nearest.float().abs() > x.abs()  # a step of the magnitude, whatever the sign
    same(got, torch.where(beyond, bits - 1, bits).to(bits.dtype).view(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=str)
def test_bfloat16_is_rounded_once_from_wide_types(dtype):
    """2²⁵ + 2¹⁷ + 1 is just above a tie of bfloat16, and float32 would round it to the tie."""
    x = torch.tensor([2**25 + 2**17 + 1, 2**25 + 2**17, 2**25 + 2**17 - 1, -(2**25) - 2**17 - 1], dtype=dtype)
    assert cast(x, BF16).tolist() == [2**25 + 2**18, 2**25, 2**25, -(2**25) - 2**18]


@pytest.mark.parametrize(
    "x, dtype, rounding, message",
    [
        (torch.zeros(4), torch.float8_e4m3fn, "rtz", "from tl.float32 to tl.float8e5 only, not from fp32 to fp8e4nv"),
        (torch.zeros(4, dtype=FP16), torch.float8_e5m2, "rtz", "towards zero from tl.float32 to tl.float8e5 only"),
        (torch.zeros(4, dtype=torch.float64), torch.float8_e5m2, None, "no cast from fp64 to fp8e5: go through"),
        (torch.zeros(4).to(torch.float8_e5m2), torch.float8_e4m3fn, None, "no cast from fp8e5 to fp8e4nv"),
    ],
)
def test_a_cast_that_the_compiler_lacks_is_refused(x, dtype, rounding, message):
    with pytest.raises(Exception, match=message):
        cast(x, dtype, rounding)


@pytest.mark.parametrize("float8", FP8, ids=str)
def test_arithmetic_on_float8_is_refused(float8):
    with pytest.raises(Exception, match="the compiler has no arithmetic on fp8"):
        interpreter_cases.run("(x + x).to(tl.float32)", torch.ones(4).to(float8))


# ---------------------------------------------------------------- threads


@triton.jit
def program_kernel(x_ptr, out_ptr, N: tl.constexpr):
    columns = tl.arange(0, N)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * N + columns)
    tl.store(out_ptr + row * N + columns, tl.exp(x - tl.max(x, 0)) + row)


def in_threads(count, work):
    """The errors of `work(number)` in as many threads at once."""
    errors, start = [], threading.Barrier(count)

    def guarded(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_several_threads_launch_kernels():
    def work(number):
        x = torch.randn(4 + number, 8)
        want = (x - x.amax(1, keepdim=True)).exp() + torch.arange(len(x))[:, None]
        for _ in range(20):
            out = torch.empty_like(x)
            program_kernel[(len(x),)](x, out, N=8)
            torch.testing.assert_close(out, want)

    assert in_threads(8, work) == []


def test_a_launch_from_inside_a_launch():
    """The function that gives a grid may launch a kernel itself; the lock is this thread's already."""
    x, out, inner = torch.randn(2, 8), torch.empty(2, 8), torch.empty(2, 8)

    def grid(_):
        program_kernel[(2,)](x, inner, N=8)
        return (2,)

    finished = threading.Event()

    def work():
        program_kernel[grid](x, out, N=8)
        finished.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert finished.is_set() and torch.equal(out, inner)
