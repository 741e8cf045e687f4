"""What `academy judge` learnt from the last third of the corpus: small kernels, each with the fault and without it."""

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
    "two programs that store a number": (
        MOVED_BACK, "programs", ("out_ptr + at, 2 *", "out_ptr + at, tl.program_id(0) * 0.5 + 2 *"), "race in"
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
