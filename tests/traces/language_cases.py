"""Triton as people write it, one kernel a construct: with the repairs, and recorded, each does what it does in Triton.

`CASES` maps a name to a function that launches and returns tensors; numbers are such that nothing is rounded. Run as a
script, the file does *not* install the repairs, and prints as JSON what each case gives.
"""

import json
import os
import sys
import warnings
from typing import NamedTuple

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.traces import language_helpers as helpers
from tests.traces.interpreter_cases import kernel_of, place

CASES = {}
FOUR: tl.constexpr = tl.constexpr(4)


def case(function):
    CASES[function.__name__] = function
    return function


def launching(name, launch, *shape, dtype=torch.float32):
    """A case with one result of this shape, which it is given to write to."""

    def function():
        launch(out := torch.full(shape, -1, dtype=dtype))
        return [out]

    CASES[name] = function


def numbers(*shape, dtype=torch.float32):
    """Small whole numbers of both signs, in no order."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7 % 23 - 11).view(shape).to(dtype)


def out_like(x, *shape, dtype=None):
    return torch.full(shape or x.shape, -1, dtype=dtype or x.dtype)


# ---- block pointers ----
@triton.jit
def block_pointer_kernel(x_ptr, out_ptr, rows, cols, stride, PADDING: tl.constexpr):
    block = tl.make_block_ptr(x_ptr, (rows, cols), (stride, 1), (0, 0), (4, 8), (1, 0))
    to = tl.make_block_ptr(
        out_ptr, shape=(rows, cols), strides=(cols, 1), offsets=(0, 0), block_shape=(4, 8), order=(1, 0)
    )
    total = tl.zeros((4, 8), tl.float32)
    for _ in range(0, tl.cdiv(cols, 8)):
        x = tl.load(block, boundary_check=(0, 1), padding_option=PADDING)
        total += x
        tl.store(to, x + total, boundary_check=(0, 1))
        block = tl.advance(block, (0, 8))
        to = tl.advance(to, [0, 8])


@triton.jit
def inner_block_kernel(x_ptr, out_ptr, N: tl.constexpr):
    pid = tl.program_id(0)
    block = tl.make_block_ptr(x_ptr, (N * 2,), (1,), (pid * N,), (N,), (0,))
    to = tl.make_block_ptr(out_ptr, (N * 2,), (1,), (0,), (N,), (0,)).advance((pid * N,))
    tl.store(to, tl.load(block).to(out_ptr.dtype.element_ty))


@case
def block_pointers():
    x = numbers(5, 21)[:3, :19]
    out = out_like(x)
    block_pointer_kernel[(1,)](x, out, *x.shape, x.stride(0), "zero")
    return [out]


launching(
    "block_pointers_inside_of_a_tensor",
    lambda out: inner_block_kernel[(2,)](numbers(16), out, 8),
    16,
    dtype=torch.float16,
)


# ---- tuples ----
class Pair(NamedTuple):
    first: tl.tensor
    second: tl.tensor


class Strided(NamedTuple):
    ptr: torch.Tensor
    stride: int


@triton.jit
def sum_and_difference(a, b):
    return a + b, a - b


@triton.jit
def as_pair(a, b):
    return Pair(a * 2, b)


@triton.jit
def tuple_kernel(x, out_ptr, sizes, N: tl.constexpr):
    offs = tl.arange(0, N)
    ptr, stride = x
    first, second = sum_and_difference(tl.load(ptr + offs * stride), sizes[1])
    pair = as_pair(first, second)
    both = (pair.first, pair.second)
    tl.store(out_ptr + offs, both[0] + both[1] * sizes[0])


launching("tuples_as_arguments_and_results", lambda out: tuple_kernel[(1,)]((numbers(16), 2), out, (3, 5), 8), 8)


@triton.jit
def named_tuple_kernel(x, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x.ptr + offs * x.stride))


launching("named_tuples_as_arguments", lambda out: named_tuple_kernel[(1,)](Strided(numbers(16), 2), out, 8), 8)


@triton.jit
def tuple_of_pointers_kernel(xs, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in tl.static_range(len(xs)):
        total += tl.load(xs[i] + offs)
    tl.store(out_ptr + offs, total)


launching(
    "a_tuple_of_tensors",
    lambda out: tuple_of_pointers_kernel[(1,)](tuple(numbers(8) + i for i in range(3)), out, N=8),
    8,
)


# ---- constants ----
@triton.constexpr_function
def next_even(n):
    return n + n % 2


@triton.jit
def with_default(x, factor=3, KIND: tl.constexpr = "mul"):
    if KIND == "mul":
        return x * factor
    else:
        return x + factor


@triton.jit
def constants_kernel(
    x_ptr, out_ptr, n, BLOCK: tl.constexpr = 8, FLAG: tl.constexpr = None, DTYPE: tl.constexpr = tl.float32
):
    tl.static_assert(BLOCK % FOUR == 0, "BLOCK")
    tl.static_print(BLOCK)
    EVEN: tl.constexpr = next_even(BLOCK - 1)
    HALF: tl.constexpr = EVEN // 2
    offs = tl.arange(0, EVEN)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0)
    if FLAG is None:
        y = with_default(x)
    else:
        y = with_default(x, KIND="add", factor=FLAG)
    y += tl.full([EVEN], HALF, DTYPE)
    tl.store(out_ptr + offs, y.to(DTYPE), mask=offs < n)


@case
def constants():
    x, out, other = numbers(8), out_like(numbers(8)), out_like(numbers(8))
    constants_kernel[(1,)](x, out, 7)
    constants_kernel[(1,)](x_ptr=x, n=8, out_ptr=other, BLOCK=8, FLAG=2, DTYPE=tl.int32)
    return [out, other]


@triton.jit
def function_kernel(x_ptr, out_ptr, FN: tl.constexpr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, FN(tl.load(x_ptr + offs)))


launching(
    "a_jitted_function_as_an_argument", lambda out: function_kernel[(1,)](numbers(8), out, FN=helpers.squared, N=8), 8
)


@triton.jit
def other_file_kernel(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, helpers.squared(x) + helpers.SHIFT)


launching("a_device_function_of_another_file", lambda out: other_file_kernel[(1,)](numbers(8), out, 8), 8)


@triton.jit
def keyword_only_kernel(x_ptr, out_ptr, *, N: tl.constexpr, FACTOR: tl.constexpr = 3):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) * FACTOR)


launching(
    "keyword_only_arguments", lambda out: keyword_only_kernel[lambda meta: (meta["N"] // 8,)](numbers(8), out, N=8), 8
)


# ---- loops and branches ----
@triton.jit
def loops_kernel(out_ptr, n, N: tl.constexpr):
    total = 0
    for i in range(n):
        total += i
    for i in tl.range(0, n, 2, num_stages=3, loop_unroll_factor=2):
        total += i * 10
    for i in tl.static_range(N):
        total += i * 100
    left = n
    while left > 0:
        total += 1000
        left -= 2
    i = n
    while (i & 1) == 1 and i > 1:
        i //= 2
    total = total if n > 100 else total + i
    if n == 5:
        tl.store(out_ptr, total)
    elif n > 5:
        tl.store(out_ptr, -total)
    else:
        tl.store(out_ptr, 0)


@case
def loops():
    outs = [torch.zeros(1, dtype=torch.int32) for _ in range(3)]
    for out, n in zip(outs, (5, 6, 2)):
        loops_kernel[(1,)](out, n, N=3)
    return outs


@triton.jit
def early_return_kernel(out_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    tl.store(out_ptr + pid, pid)


launching("an_early_return", lambda out: early_return_kernel[(4,)](out, 2), 4, dtype=torch.int32)


# ---- descriptors ----
@triton.jit
def descriptor_kernel(x_desc, out_ptr, rows, cols, N: tl.constexpr):
    to = tl.make_tensor_descriptor(out_ptr, shape=[rows, cols], strides=[cols, 1], block_shape=[4, N])
    for start in range(0, cols, N):
        to.store([0, start], x_desc.load([0, start]) * 2)


launching(
    "descriptors",
    lambda out: descriptor_kernel[(1,)](TensorDescriptor.from_tensor(numbers(5, 20), [4, 8]), out, 5, 20, 8),
    5,
    20,
)


launching(
    "a_descriptor_with_strides",
    lambda out: descriptor_kernel[(1,)](TensorDescriptor(numbers(5, 24), [4, 20], [24, 1], [4, 8]), out, 5, 20, 8),
    5,
    20,
)


# ---- atomics ----
#: Two lanes meet, or each has a place of its own. `y` is what is changed; what was there before is the result.
TO, MASK = "y_ptr + offsets // 2, x", "mask=offsets < N - 1"
ATOMICS = {kind: f"tl.atomic_{kind}({TO}, {MASK})" for kind in ("max", "and", "or", "xor")} | {
    "add": f"tl.atomic_add({TO}, {MASK}, sem='relaxed')",
    "min": f"tl.atomic_min({TO}, {MASK}, scope='cta')",
    "xchg": f"tl.atomic_xchg(y_ptr + offsets, x, {MASK})",
    "cas": "tl.atomic_cas(y_ptr + offsets, tl.zeros_like(x), x)",
}


def atomics(kind, dtype):
    x = numbers(8, dtype=dtype)
    out, before = numbers(8, dtype=dtype) // 2, torch.zeros(8, dtype=dtype)
    kernel_of(found_before(kind))[(2,)](x, out, before, 8, N=8)
    return [out, before]


def found_before(kind):
    return f"before = {ATOMICS[kind]}; tl.where(offsets < N - 1, before, 0)"


for kind in ATOMICS:
    CASES[f"atomic_{kind}"] = lambda kind=kind: atomics(kind, torch.int32)
for kind in ("add", "max", "min", "xchg"):
    CASES[f"atomic_{kind}_of_floats"] = lambda kind=kind: atomics(kind, torch.float32)


@triton.jit
def scalar_atomics_kernel(lock_ptr, count_ptr, out_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.debug_barrier()
    count = tl.load(count_ptr)
    tl.store(count_ptr, count + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
    tl.store(out_ptr + tl.program_id(0), tl.atomic_add(out_ptr + 4, 1) + count)


@case
def a_lock_and_a_counter():
    lock, count, out = (torch.zeros(n, dtype=torch.int32) for n in (1, 1, 5))
    scalar_atomics_kernel[(4,)](lock, count, out)
    return [count, out]


# ---- blocks ----
@triton.jit
def add_and_count(a, n, b, m):
    return a + b, n + m


#: What is computed of `x`, sixteen numbers, and of `offsets`.
BLOCKS = {
    "sort": "tl.sort(x)",
    "sort down": "tl.sort(x, descending=True)",
    "topk": "top = tl.topk(tl.reshape(x, (2, N // 2)), N // 4).reshape((N // 2,)).to(x.dtype); "
    "tl.join(top, top).reshape((N,))",
    "histogram": "tl.histogram((x + 11).to(tl.int32) // 4, N)",
    "gather": "tl.gather(x, (offsets * 3) % N, axis=0)",
    "cumsum": "tl.cumsum(x, axis=0) + tl.cumprod(tl.where(offsets < 3, x, 1), axis=0)",
    "scan": "total, n = tl.associative_scan((x, offsets), 0, add_and_count); total += n; total",
    "reduce": "total, n = tl.reduce((x, offsets), 0, add_and_count); x + total + n",
    "extrema": "low, where = tl.min(x, axis=0, return_indices=True); "
    "x + low * 2 + where + tl.argmax(x, axis=0) + tl.max(tl.reshape(x, (2, N // 2)), axis=1, keep_dims=True).sum()",
    "any": "x + tl.sum((x > 0).to(tl.int32)) + tl.xor_sum(offsets, axis=0)",
    "shapes": "z = tl.reshape(x, (2, N // 2)); z = tl.trans(z) + tl.permute(z, (1, 0)); "
    "z = tl.expand_dims(tl.view(z, (N,)), 0).broadcast_to(1, N); tl.ravel(z) + tl.flip(x, 0)",
    "split": "a, b = tl.split(tl.reshape(x, (N // 2, 2))); tl.reshape(tl.join(b, a), (N,)) "
    "+ tl.reshape(tl.cat(a, b, can_reorder=True), (N,)) * 0 + tl.interleave(a, b)",
    "swizzle": "i, j = tl.swizzle2d(offsets // 4, offsets % 4, N // 4, 4, 2); i * 10 + j",
    "philox": "(tl.randint(7, offsets) & 255) + (tl.rand(7, offsets) * 256).to(tl.int32)",
    "softmax": "tl.where(tl.softmax(x.to(tl.float32)) >= 0.0, tl.sigmoid(x.to(tl.float32)) > 0.5, False).to(tl.int32)",
    "bits": "y = x.to(tl.int32); y = (y << 2) ^ (y >> 1) | (y & 3) + (~y); "
    "y.to(tl.float32).to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)",
    "whole numbers": "i = x.to(tl.int32); high = tl.umulhi(offsets.to(tl.uint32), offsets.to(tl.uint32)); "
    "tl.cdiv(offsets, 3) + high.to(tl.int32) + (-i) + i % 4 + i // 2",
    "hints": "places = tl.multiple_of(tl.max_contiguous(x_ptr + offsets, N), N); tl.assume(offsets.shape[0] == N); "
    "tl.device_assert(N > 1, 'more than one'); tl.device_print('x', offsets); "
    "tl.load(places, cache_modifier='.cg', eviction_policy='evict_last')",
    "methods": "x.sum() + x.max() + x.min() + x.abs().to(x.dtype) + x.cumsum(0) + x.argmax(0)",
}
FLOATS = {
    "math": "tl.floor(x / 2) + tl.ceil(x / 3) + tl.abs(x) + tl.sqrt(x * x) + tl.fma(x, x, x) + tl.clamp(x, -1, 1)",
    "libdevice": "libdevice.abs(x) + libdevice.rint(x / 2) * 0 + libdevice.floor(x)",
}


def blocks(code, dtype=torch.float32):
    x = numbers(16, dtype=dtype)
    out = out_like(x, dtype=torch.float32)
    kernel_of(code, add_and_count=add_and_count)[(1,)](x, x, out, 16, 16)
    return [out]


for kind, code in (BLOCKS | FLOATS).items():
    CASES[f"blocks_{kind}".replace(" ", "_")] = lambda code=code: blocks(code)
    if kind in BLOCKS:
        CASES[f"blocks_{kind}_of_int32".replace(" ", "_")] = lambda code=code: blocks(code, torch.int32)


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, PRECISION: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * 16 + i[None, :])
    acc = tl.dot(a, b, input_precision=PRECISION, out_dtype=out_ptr.dtype.element_ty)
    acc = tl.dot(a, b, acc, out_dtype=out_ptr.dtype.element_ty)
    acc += tl.dot(a, b, out_dtype=out_ptr.dtype.element_ty)
    tl.store(out_ptr + i[:, None] * 16 + i[None, :], acc)


def products(dtype, out):
    a, b, c = numbers(16, 32).to(dtype), numbers(32, 16).to(dtype), torch.zeros(16, 16, dtype=out)
    dot_kernel[(1,)](a, b, c, "ieee", 32)
    return [c]


for dtype, out in [
    (torch.float32,) * 2,
    (torch.float16, torch.float32),
    (torch.int8, torch.int32),
    (torch.float16,) * 2,
    (torch.float8_e5m2, torch.float32),
]:
    CASES[f"dot_of_{dtype}"] = lambda dtype=dtype, out=out: products(dtype, out)


@triton.jit
def batched_dot_kernel(a_ptr, out_ptr):
    b, i = tl.arange(0, 2), tl.arange(0, 16)
    offs = b[:, None, None] * 256 + i[None, :, None] * 16 + i[None, None, :]
    a = tl.load(a_ptr + offs)
    tl.store(out_ptr + offs, tl.dot(a, tl.trans(a, 0, 2, 1)))


launching("batched_dot", lambda out: batched_dot_kernel[(1,)](numbers(2, 16, 16), out), 2, 16, 16)


# ---- launches ----
@triton.jit
def grid_kernel(out_ptr, value):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(axis=2)
    place = (x * tl.num_programs(1) + y) * tl.num_programs(2) + z
    tl.store(out_ptr + place, place * value)


@case
def grids():
    outs = [torch.full((24,), -1, dtype=torch.int32) for _ in range(7)]
    grid_kernel[(2, 3, 4)](outs[0], 1)
    grid_kernel[lambda meta: (2, meta["value"])](outs[1], 3)
    grid_kernel[[2, 2]](outs[2], 1)
    grid_kernel[(torch.tensor(3).item(), triton.cdiv(5, 2))](outs[3], value=2)
    bound = grid_kernel[(4,)]
    bound(outs[4], 5)
    grid_kernel.run(outs[5], 5, grid=(3,), warmup=False)
    grid_kernel[(0,)](outs[6], 1)
    return outs


def plain_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) + 1, mask=offs < n)


@triton.jit(do_not_specialize=["n"], debug=True, noinline=False)
def decorated_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, inlined_nowhere(tl.load(x_ptr + offs, mask=offs < n)), mask=offs < n)


@triton.jit(noinline=True)
def inlined_nowhere(x):
    return x + 2


@case
def ways_to_decorate():
    x, outs = numbers(20), [out_like(numbers(20)) for _ in range(2)]
    triton.jit(plain_kernel)[(3,)](x, outs[0], 20, BLOCK=8, num_warps=2, num_stages=1)
    decorated_kernel[(3,)](x, outs[1], 20, 8)
    return outs


launching(
    "warmup_launches_nothing", lambda out: triton.jit(plain_kernel).warmup(numbers(8), out, 8, BLOCK=8, grid=(1,)), 8
)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def heuristics_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * BLOCK, mask=offs < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 8}, num_warps=2, pre_hook=lambda nargs: nargs["out_ptr"].zero_())], key=["n"]
)
@triton.heuristics({"WHOLE": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs) if WHOLE else tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=offs < n) + x, mask=offs < n)


@triton.heuristics({"WHOLE": lambda args: args["n"] % 8 == 0})
@triton.autotune(configs=[triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def other_order_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) + WHOLE, mask=offs < n)


launching("heuristics", lambda out: heuristics_kernel[(1,)](numbers(7), out, 7), 7)


launching(
    "heuristics_below_autotune",
    lambda out: tuned_kernel[lambda meta: (triton.cdiv(20, meta["BLOCK"]),)](numbers(20), out, 20),
    20,
)


launching(
    "heuristics_above_autotune",
    lambda out: other_order_kernel[lambda meta: (triton.cdiv(20, 8),)](numbers(20), out, 20),
    20,
)


@triton.jit
def kinds_kernel(x_ptr, out_ptr, nothing_ptr, flag, factor, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    if nothing_ptr is not None:
        x += tl.load(nothing_ptr + offs)
    if flag:
        x = x * factor
    tl.store(out_ptr + offs, x, mask=(offs % 2 == 0) & (x != 3))
    tl.store(out_ptr + N, tl.sum(x))


@case
def optional_pointers_and_flags():
    outs = [out_like(numbers(9)) for _ in range(4)]
    for out, other, flag in zip(outs, (None, numbers(8), None, numbers(8)), (True, False, 0, 1)):
        kinds_kernel[(1,)](numbers(8), out, other, flag, 2.5, N=8)
    return outs


@case
def a_parameter_and_a_view():
    x, outs = torch.nn.Parameter(numbers(16)), [out_like(numbers(9)) for _ in range(2)]
    kinds_kernel[(1,)](x.detach()[4:], outs[0], None, True, 2, 8)
    kinds_kernel[(1,)](x, outs[1], None, False, 2, 8)
    return outs


@triton.jit
def pointers_kernel(addresses_ptr, out_ptr, N: tl.constexpr):
    which = tl.program_id(0)
    x_ptr = tl.load(addresses_ptr + which).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, N)
    tl.store(out_ptr + which * N + offs, tl.load(x_ptr + offs))


@case
def a_table_of_addresses():
    xs = [numbers(8), numbers(8) + 1]
    out = torch.zeros(16)
    pointers_kernel[(2,)](torch.tensor([x.data_ptr() for x in xs]), out, 8)
    return [out]


#: Where the statements of all of these kernels stand.
FILES = [__file__, helpers.__file__, *map(place, [*BLOCKS.values(), *FLOATS.values(), *map(found_before, ATOMICS)])]


def data(outs) -> list:
    """dtype, shape and numbers of tensors, as JSON can hold them."""
    return [[str(out.dtype), list(out.shape), out.double().flatten().tolist()] for out in outs]


def given(name) -> list | str:
    """What a case gives; or the error, as a text."""
    try:
        return data(CASES[name]())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def padded(values, count=1):
    return torch.cat([values, torch.full((count,), -1.0).to(values.dtype)])


def flagged(x, factor):
    shown = torch.where((torch.arange(8) % 2 == 0) & (x * factor != 3), x * factor, -1.0)
    return torch.cat([shown, (x * factor).sum()[None]])


#: What Triton's interpreter refuses, or can't do, in some version, and a GPU does.
RIGHT = {
    "constants": lambda: [padded((numbers(8) * 3 + 4)[:7]), numbers(8) + 2 + 4],
    "atomic_xchg_of_floats": lambda: [
        torch.cat([numbers(8)[:7], numbers(8)[7:] // 2]),
        torch.cat([numbers(8)[:7], torch.zeros(1)]),
    ],
    "blocks_libdevice": lambda: [numbers(16).abs() + numbers(16)],
    "grids": lambda: [
        torch.where(torch.arange(24) < count, torch.arange(24) * value, -1).int()
        for count, value in ((24, 1), (6, 3), (4, 1), (9, 2), (4, 5), (3, 5), (0, 1))
    ],
    "optional_pointers_and_flags": lambda: [
        flagged(numbers(8) * (1 + at % 2), 2.5 if at in (0, 3) else 1) for at in range(4)
    ],
    "a_parameter_and_a_view": lambda: [flagged(numbers(16)[4:12], 2), flagged(numbers(16)[:8], 1)],
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # a kernel may print
    print(json.dumps({name: given(name) for name in CASES}), file=out)
