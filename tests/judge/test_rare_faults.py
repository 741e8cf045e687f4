"""What `academy judge` learnt from kernels whose authors had not seen it: small ones, with the fault and without it.
None computes what a kernel there does."""

import pytest

from academy.runtime import device
from academy.judge.session import File, Session

pytestmark = pytest.mark.skipif(not device.INTERPRET, reason="small kernels for the interpreter")

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n"

SUM_OF_TWO = """
INPUTS = {"x": "rows cols", "y": "rows cols"}

@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, cols, x_row, y_row, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + c, mask=c < cols)
    tl.store(out_ptr + row * cols + c, x + tl.load(y_ptr + row * y_row + c, mask=c < cols), mask=c < cols)

def add(x, y):
    x, y = (one if one.stride(1) == 1 else one.contiguous() for one in (x, y))
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        block = triton.next_power_of_2(x.shape[1])
        add_kernel[(x.shape[0],)](x, y, out, x.shape[1], x.stride(0), y.stride(0), BLOCK=block)
    return out

def add_reference(x, y):
    return x + y
"""

MEANS = """
def mean_inputs(rows):
    return {"x": torch.randn(rows, 4), "counts": torch.randint(0, 6, (rows,)).clamp(max=4)}

@triton.jit
def mean_kernel(x_ptr, count_ptr, out_ptr):
    row, c = tl.program_id(0), tl.arange(0, 4)
    count = tl.load(count_ptr + row)
    total = tl.sum(tl.load(x_ptr + row * 4 + c, mask=c < count, other=0.0).to(tl.float32))
    tl.store(out_ptr + row, total / tl.maximum(count, 1))

def mean(x, counts):
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    mean_kernel[(len(x),)](x.contiguous(), counts.contiguous(), out)
    return out

def mean_reference(x, counts):
    kept = torch.arange(4, device=x.device) < counts[:, None]
    return torch.where(kept, x, 0).sum(1) / counts.clamp(min=1)
"""

COUNTS = """
INPUTS = {"mask": "rows cols: bool"}

@triton.jit
def count_kernel(mask_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        total += tl.load(mask_ptr + row * cols + c, mask=c < cols, other=0).to(tl.int32)
    tl.store(out_ptr + row, tl.sum(total.to(tl.int64)))

def count(mask):
    out = torch.zeros(len(mask), dtype=torch.int64, device=mask.device)
    if mask.numel():
        count_kernel[(len(mask),)](mask.contiguous().view(torch.uint8), out, mask.shape[1], BLOCK=32)
    return out

def count_reference(mask):
    return mask.sum(1)
"""

SCALED = """
INPUTS = {"codes": "n: int8 below 100", "scales": "n: float32", "x": "n"}
_kept = {}

@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at, mask=at < n).to(tl.float32), tl.load(b_ptr + at, mask=at < n).to(tl.float32)
    tl.store(out_ptr + at, a * b, mask=at < n)

def product(a, b, dtype):
    out = torch.empty(a.shape, dtype=dtype, device=a.device)
    product_kernel[(max(triton.cdiv(len(a), 64), 1),)](a.contiguous(), b.contiguous(), out, len(a), BLOCK=64)
    return out

def scaled(codes, scales, x):
    key = (codes.data_ptr(), codes._version, scales.data_ptr(), scales._version)
    if key not in _kept:
        _kept.clear()
        _kept[key] = product(codes, scales, torch.float32), codes, scales
    return product(_kept[key][0], x, x.dtype)

def scaled_reference(codes, scales, x):
    return (codes * scales * x.float()).to(x.dtype)
"""

#: The last block is moved back, so that two programs store some numbers.
MOVED_BACK = """
INPUTS = {"x": "n"}

@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK) + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at >= 0), mask=at >= 0)

def twice(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        twice_kernel[(triton.cdiv(len(x), 16),)](x.contiguous(), out, len(x), BLOCK=16)
    return out

def twice_reference(x):
    return 2 * x
"""


def of_each(inputs: str, arguments: str, given: str, kernel: str, reference: str, before: str = "pass") -> str:
    """A function of each number x by itself. kernel, reference: what becomes of it."""
    names = ", ".join(part.split("=")[0] for part in arguments.split(", ") if part)
    parameters = "".join(f"{name.strip()}, " for name in names.split(",") if name)
    return f"""
INPUTS = {{"x": "rows cols"{inputs}}}
_kept = {{}}

@triton.jit
def each_kernel(x_ptr, y_ptr, n, {parameters}BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, {kernel}, mask=at < n)

def each(x, {arguments}):
    {before}
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        each_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), {given}BLOCK=32)
    return y

def each_reference(x, {arguments}):
    x, dtype = x.float(), x.dtype
    return ({reference}).to(dtype, copy=True)
"""


BENT = of_each("", "", "", "tl.where(tl.min(x) > 4096.0, x, tl.sqrt(1 + x * x))", "(1 + x * x).sqrt()")
SILU = of_each("", "", "", "tl.where(tl.max(x) < -90.0, 0.0, x / (1 + tl.exp(-x)))", "x * torch.sigmoid(x)")
MOVED = of_each(
    ', "gain": (1.0, 2.0), "shift": (0.0, 4.0)', "gain=1.0, shift=0.0", "gain, shift, ",
    "tl.minimum(tl.maximum(x * gain + shift, -32.0), 32.0)", "(x * gain + shift).clamp(-32, 32)",
)  # fmt: skip
BOUNDED = of_each(
    ', "beta": (1.0, 4.0)',
    "beta=1.0",
    "beta, ",
    "tl.exp(tl.minimum(x * beta, 30.0))",
    "torch.exp((x * beta).clamp(max=30))",
)
FADED = of_each(
    ', "rate": (0.5, 0.1)', "rate=0.5", "table(x, rate), ", "x * tl.load(rate + at % 8)",
    "x * torch.exp(-rate * (torch.arange(x.numel(), device=x.device) % 8)).view(x.shape)",
).replace("def each(", """def table(x, rate):
    key = x.device, rate
    if key not in _kept:
        _kept[key] = torch.exp(-rate * torch.arange(8, device=x.device))
    return _kept[key]

def each(""")  # fmt: skip
BY_A_NUMBER = of_each(
    ', "power": (1, 3)', "power=1", "factor(x, power), ", "x * tl.load(power)", "x * 2.0**power"
).replace("def each(", """def factor(x, power):
    if ("factor", power) not in _kept:
        _kept["factor", power] = torch.tensor(2.0**power, device=x.device)
    return _kept["factor", power]

def each(""")  # fmt: skip
CLIPPED = of_each(
    ', "most": (1.0, float("inf"))', "most=1.0", "most, ", "tl.minimum(x, most)", "x.clamp(max=most)",
    before="x = x.clone() if most == float('inf') else x",
).replace("    y = torch", "    if most == float('inf'):\n        return x\n    y = torch")  # fmt: skip
SHIFTED = of_each(
    ', "by": (1.0, 0.0)', "by=1.0", "by, ", "x + by", "x + by", before="x = x if by else x.clone()"
).replace("    y = torch", "    if not by:\n        return x.view(x.shape)\n    y = torch")  # fmt: skip

#: A result is kept for the tensor and what is in it.
KEPT = of_each("", "", "", "x * 0.5", "x * 0.5").replace("    y = torch", """    key = x.data_ptr(), x._version
    if _kept.get("key") == key:
        return _kept["y"].clone()
    y = torch""").replace("    return y", "    _kept.update(key=key, x=x, y=y)\n    return y.clone()")  # fmt: skip
#: The reference multiplies by zero what the kernel leaves out, and so spreads a NaN.
EVERY_SECOND = of_each(
    "", "", "", "tl.where(at % 2 == 0, x, 0.0)",
    "x * (torch.arange(x.numel(), device=x.device) % 2 == 0).view(x.shape)",
)  # fmt: skip
#: Numbers of float64 have twice as many bits, so its reference gives something else there.
HALF_OF_THE_BITS = of_each(
    "", "", "", "(x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)",
    "(x.contiguous().view(torch.int32) & -65536).view(torch.float32)",
).replace("x, dtype = x.float(), x.dtype", "dtype = torch.float32") + '\nDTYPES = ("float32",)\n'  # fmt: skip

#: Added up by all programs, in float32.
ABSOLUTE = """
INPUTS = {"x": "rows cols"}

@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.abs(tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)))
    tl.atomic_add(out_ptr, part.to(out_ptr.dtype.element_ty))

def total(x):
    out = torch.zeros((), dtype=torch.float32, device=x.device)
    if x.numel():
        total_kernel[(triton.cdiv(x.numel(), 128),)](x.contiguous(), out, x.numel(), BLOCK=128)
    return out.to(x.dtype)

def total_reference(x):
    return x.float().abs().sum().to(x.dtype)
"""

#: Means of all that came before, block after block.
MEANS_SO_FAR = """
INPUTS = {"x": "rows cols"}
SIZES = {"cols": (16, 100, 1000)}

@triton.jit
def means_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    before = tl.zeros((1,), tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * cols + c, (tl.cumsum(x) + before.to(tl.float32)) / (c + 1), mask=c < cols)
        before = (before.to(tl.float32) + tl.sum(x)).to(tl.float32)

def means(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        means_kernel[(len(x),)](x.contiguous(), out, x.shape[1], BLOCK=16)
    return out

def means_reference(x):
    return (x.float().cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)).to(x.dtype)
"""

#: Columns of zeros are left out, after a look at every row.
COLUMNS = """
INPUTS = {"x": "rows cols"}

@triton.jit
def columns_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seen, total = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(0, rows, 1):
        seen += tl.abs(tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32))
    for row in range(rows):
        total = total + tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + c, tl.where(seen > 0, total, 0.0), mask=c < cols)

def columns(x):
    out = torch.zeros(x.shape[1], dtype=torch.float32, device=x.device)
    if x.numel():
        columns_kernel[(triton.cdiv(x.shape[1], 32),)](x.contiguous(), out, *x.shape, BLOCK=32)
    return out

def columns_reference(x):
    return x.float().sum(0)
"""
LARGEST = (
    COLUMNS.replace("total + tl.load(", "tl.maximum(total, tl.load(")
    .replace("to(tl.float32)\n    tl.s", "to(tl.float32))\n    tl.s")
    .replace("x.float().sum(0)", "x.float().clamp(min=0).amax(0) if len(x) else x.float().sum(0)")
)  # fmt: skip

#: In another order than its reference, which says `.float()` and so computes no better in float64. It needs no kernel.
IN_ORDER = """
INPUTS = {"x": "rows cols: positive"}
SIZES = {"rows": (16,), "cols": (4096,)}

def added(columns):
    total = torch.zeros_like(columns[0])
    for column in columns:
        total = total + column
    return total

def total(x):
    return added(x.float().unbind(1))

def total_reference(x):
    return added(x.float().flip(1).unbind(1))
"""
#: A sum that is 0 but for rounding.
CENTRED = """
INPUTS = {"x": "rows cols"}

def centred(x):
    x = x.float()
    return (x - x.sum(1, keepdim=True) / x.shape[1]).flip(1).sum(1)

def centred_reference(x):
    return (x.float() - x.float().mean(1, keepdim=True)).sum(1)
"""

#: Two of its sizes are whole blocks, and lanes beside a row count for nothing until an option is added to them.
RAISED = """
INPUTS = {"x": "rows cols", "plus": (0.0, 1.0)}
SIZES = {"cols": (16, 64, 20)}

@triton.jit
def raised_kernel(x_ptr, out_ptr, cols, plus, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(tl.where(c < cols, x + plus, 0.0)))

def raised(x, plus=0.0):
    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    if len(x):
        block = triton.next_power_of_2(x.shape[1])
        raised_kernel[(len(x),)](x.contiguous(), out, x.shape[1], plus, BLOCK=block)
    return out

def raised_reference(x, plus=0.0):
    return (x.float() + plus).sum(1)
"""
#: It writes to an argument by way of a copy, as no kernel writes to what shows one element in several places.
HALVED = """
INPUTS = {"table": "rows cols"}

@triton.jit
def halve_kernel(table_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(table_ptr + at, tl.load(table_ptr + at, mask=at < n) / 2, mask=at < n)

def halve(table):
    whole = table.contiguous()
    if whole.numel():
        halve_kernel[(triton.cdiv(whole.numel(), 64),)](whole, whole.numel(), BLOCK=64)
    if whole is not table:
        table.copy_(whole)

def halve_reference(table):
    for row in range(len(table)):
        table[row] = table[row] / 2
"""
#: The result lies in memory of which more is allocated than it needs.
ROOMY = """
INPUTS = {"x": "rows cols"}

@triton.jit
def least_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=float("inf"))
    tl.store(out_ptr + row, tl.min(x), mask=row < rows)

def least(x):
    out = torch.empty(triton.cdiv(len(x), 64) * 64 + 64, dtype=x.dtype, device=x.device)
    if x.numel():
        block = triton.next_power_of_2(x.shape[1])
        least_kernel[(len(x),)](x.contiguous(), out, len(x), x.shape[1], BLOCK=block)
    return out[: len(x)]

def least_reference(x):
    return x.amin(1)
"""

#: Its result works when it is looked at. It needs no kernel.
LATE = """
INPUTS = {"x": "rows cols"}

class Later(torch.Tensor):
    todo = None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for one in args:
                if isinstance(one, Later) and one.todo:
                    one.todo.pop()()
            plain = (one.as_subclass(torch.Tensor) if isinstance(one, Later) else one for one in args)
            return function(*plain, **(kwargs or {}))

def twice(x):
    memory = torch.zeros_like(x)
    result = memory.as_subclass(Later)
    result.todo = [lambda: memory.copy_(2 * x)]
    result.todo.pop()()
    return result

def twice_reference(x):
    return 2 * x
"""
#: Of bounds that ascend, as they always do.
BOUNDS = """
def above_inputs(rows, bounds):
    return {"x": torch.randn(rows), "bounds": torch.randn(bounds).sort().values}

@triton.jit
def above_kernel(x_ptr, bounds_ptr, out_ptr, bounds, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    x, bound = tl.load(x_ptr + tl.program_id(0)), tl.load(bounds_ptr + c, mask=c < bounds, other=float("inf"))
    tl.store(out_ptr + tl.program_id(0), tl.sum((bound < x).to(tl.int32)))

def above(x, bounds):
    out = torch.zeros(len(x), dtype=torch.int64, device=x.device)
    if len(x) and len(bounds):
        block = triton.next_power_of_2(len(bounds))
        above_kernel[(len(x),)](x.contiguous(), bounds.contiguous(), out, len(bounds), BLOCK=block)
    return out

def above_reference(x, bounds):
    return torch.bucketize(x.contiguous(), bounds.contiguous())
"""

#: name -> source, the group that shows it, what makes it wrong, what it says then
KINDS = {
    "a stride of another input": (
        SUM_OF_TWO, "layouts", ("y_ptr + row * y_row", "y_ptr + row * x_row"), "sliced inputs"
    ),
    "a rare case of inputs that hang on each other": (
        MEANS, "sizes", ("tl.maximum(count, 1)", "count"), "other inputs of these sizes"
    ),
    "a count in 8 bits": (COUNTS, "values", ("int32", "int8"), "mask all true"),
    "a key that leaves an input out": (
        SCALED, "calls", (", scales.data_ptr(), scales._version)", ")"), "the same tensors with other values"
    ),
    "a key of a few numbers": (
        KEPT, "calls", ("x._version", "float(x.view(-1)[0])"), "the same tensors with other values"
    ),
    "a NaN that the reference multiplies by zero": (
        EVERY_SECOND, "non-finite", ("0, x, 0.0)", "0, tl.where(x == x, x, 0.0), 0.0)"), "hidden"
    ),
    "a reference of bits": (HALF_OF_THE_BITS, "sizes", ("bitcast=True) & -65536", "bitcast=True) & -131072"), "out[0"),
    "a shortcut for blocks of large numbers": (BENT, "magnitudes", ("> 4096.0", "> 2.0"), "runs of like numbers"),
    "a shortcut for blocks below zero": (SILU, "magnitudes", ("-90.0", "-4.0"), "runs of like numbers"),
    "a bound before an option": (
        MOVED, "options", ("tl.maximum(x * gain + shift, -32.0), 32.0)", "tl.maximum(x * gain, -32.0), 32.0) + shift"),
        "gain=2.0, shift=4.0, strided"
    ),
    "a bound before a factor": (BOUNDED, "options", ("x * beta, 30.0)", "x, 30.0) * beta"), "beta=4.0, strided"),
    "an option that a table's key leaves out": (FADED, "options", ("x.device, rate\n", "x.device\n"), "rate=0.1"),
    "an option that a number's key leaves out": (BY_A_NUMBER, "options", ('"factor", power', '"factor"'), "power=3"),
    "an argument is returned": (CLIPPED, "options", ("x.clone()", "x"), "out lies in the memory of x"),
    "a view of an argument is returned": (SHIFTED, "options", ("x.clone()", "x"), "out lies in the memory of x"),
    "parts that are added in float16": (
        ABSOLUTE, "dtypes", ("dtype=torch.float32, device", "dtype=x.dtype, device"), "float16, long rows, a first row"
    ),
    "a carry in 16 bits": (
        MEANS_SO_FAR, "dtypes", ("tl.sum(x)).to(tl.float32)", "tl.sum(x)).to(out_ptr.dtype.element_ty).to(tl.float32)"),
        "float16, long cols, a large number"
    ),
    "columns of zeros, by a look at some rows": (COLUMNS, "values", ("rows, 1)", "rows, 32)"), "mostly zeros"),
    "largest numbers, by a look at some rows": (LARGEST, "values", ("rows, 1)", "rows, 32)"), "mostly zeros"),
    "sums in another order": (IN_ORDER, "sizes", ("x.float().unbind(1)", "x.float().unbind(1)[9:]"), "out[0]"),
    "a sum that is 0 but for rounding": (CENTRED, "sizes", (".flip(1).sum", "[:, 1:].sum"), "out[0]"),
    "two programs that store a number": (
        MOVED_BACK, "programs", ("out_ptr + at, 2 *", "out_ptr + at, tl.program_id(0) * 0.5 + 2 *"), "race in"
    ),
    "a mask that only an option needs, at one of its sizes": (
        RAISED, "options", ("tl.where(c < cols, x + plus, 0.0)", "x + plus"), "plus=1.0, 20 cols"
    ),
    "work that is put off": (
        LATE, "calls", ("    result.todo.pop()()\n    r", "    r"), "where the inputs change after the call"
    ),
    "a clock that is replaced": (
        SILU, "calls", ("    pass\n", "    triton.testing.do_bench = lambda call, **_: call()\n"),
        "triton.testing.do_bench is a function of this file"
    ),
    "an equal number among bounds that ascend": (BOUNDS, "values", ("bound < x", "bound <= x"), "values: "),
    "a copy that isn't copied back": (
        HALVED, "layouts", ("whole is not table", "False"), "the call leaves it as it was"
    ),
    "a result in a part of its memory": (
        ROOMY, "programs", ("mask=row < rows", "mask=row < rows - 1"), "no program of least_kernel writes out_ptr[4]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("faulty", [True, False], ids=["faulty", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_found_and_what_is_right_is_not_blamed(kind, faulty, tmp_path):
    source, group, (right, wrong), said = KINDS[kind]
    assert right in source
    path = tmp_path / "kernel.py"
    path.write_text(HEAD + (source.replace(right, wrong) if faulty else source))
    report = Session(File(path, here=not faulty), [group], 0).run()
    assert not report.broken and report.right is not faulty, str(report)
    assert not faulty or said in str(report)


#: Two inputs, of which y may be shorter or longer than x, but for what is put in.
OTHERWISE = """
INPUTS = {"x": "n", "y": "n"}

@triton.jit
def product_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * y, mask=at < n)

def product(x, y):
    CHECK
    n = SIZE
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    if n:
        product_kernel[(triton.cdiv(n, 64),)](x.contiguous(), y.contiguous(), out, n, BLOCK=64)
    return out

def product_reference(x, y):
    STATED
    return PRODUCT
"""
#: What is put in, a line of a file -> what becomes of each trial, and what the first wrong one says.
MISFITS = {
    "it is refused": ({"CHECK": "assert len(x) == len(y), 'as long as each other'"}, "", "right", ""),
    "memory outside is read": (
        {}, "", "wrong", "x has shape (6,), not (5,): it is taken, and OutOfBounds: program 0 of product_kernel does a "
        "load outside a tensor: element 5 of y_ptr",
    ),
    "what is too much is left": ({"SIZE": "min(len(x), len(y))"}, "", "remark", ""),
    "the reference refuses it": (
        {"SIZE": "min(len(x), len(y))", "STATED": "assert len(x) == len(y), 'as long as each other'"}, "",
        "wrong", "it is taken, and should be refused, as the reference is",
    ),
    "the file says that it is refused": (
        {"SIZE": "min(len(x), len(y))"}, "STRICT = True", "wrong", "it is taken, and should be refused, as STRICT says"
    ),
    "the reference takes it": (
        {"SIZE": "min(len(x), len(y))", "PRODUCT": "x[: len(y)] * y[: len(x)]"}, "STRICT = True", "right", ""
    ),
    "the reference gives something else": (
        {"SIZE": "min(len(x), len(y))", "PRODUCT": "x[-len(y) :] * y[-len(x) :]"}, "", "wrong",
        "x has shape (6,), not (5,), which the reference takes: out[0] is",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_arguments_that_do_not_fit(case, tmp_path):
    """To take them is a remark, unless it does harm, or is said not to be done."""
    changes, line, state, said = MISFITS[case]
    source = OTHERWISE
    for word, text in ({"CHECK": "pass", "SIZE": "len(x)", "STATED": "pass", "PRODUCT": "x * y"} | changes).items():
        source = source.replace(word, text)
    path = tmp_path / "kernel.py"
    path.write_text(f"{HEAD}{line}\n{source}")
    report = Session(File(path), ["arguments"], 0).run()
    assert not report.broken and report.right is (state != "wrong"), str(report)
    outcomes = {each.trial.name: each for each in report.judged[0].outcomes}
    assert {outcomes[f"{name} too long in dim 0"].state for name in "xy"} <= {state, "right", "remark"}, outcomes
    assert outcomes["x too long in dim 0"].state == state and said in outcomes["x too long in dim 0"].message, outcomes
