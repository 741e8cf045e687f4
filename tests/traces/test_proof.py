"""What a recording proves: races, unwritten outputs, reads of unwritten memory, and the bytes that move."""

import re

import pytest

from academy.traces import faults
from academy.traces.faults import of_recording


def problems(record, source):
    path, recording = record(source)
    return [problem.message for problem in of_recording(path, recording, quoted=False)]


STORE = """
@triton.jit
def store_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
{body}

def EXAMPLE():
    x, y = torch.ones(8), {y}
    store_kernel[(2,)](x, y, 8, BLOCK=4)
"""


ROWS = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, stride_xm, stride_xn, stride_ym, stride_yn, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + columns * stride_xn, mask=columns < N)
    tl.store(y_ptr + row * {0} + columns * {1}, x, mask=columns < N)

def EXAMPLE():
    x, y = {2}
    copy_kernel[(3,)](x, y, *x.stride(), *y.stride(), 5, BLOCK=8)
"""
LOCK = """
    {early}
    while tl.atomic_cas(count_ptr, 0, 1, sem="{acquire}") == 1:
        pass
    tl.store(y_ptr + offsets, {sum} + 1.0)
    {barrier}
    tl.atomic_xchg(count_ptr, 0, sem="{release}")
    {late}
"""
LOCKED = dict(early="before = 0.0", acquire="acquire", sum="tl.load(y_ptr + offsets)", barrier="tl.debug_barrier()")
LOCKED |= dict(release="release", late="pass")


def stored(body: str, y: str, x: str = "torch.ones(8)") -> str:
    """A file with this kernel; where it counts, it has a pointer to two words of zeros for that."""
    source = STORE.format(body="    " + body, y=y).replace("torch.ones(8)", x)
    if "count_ptr" not in body:
        return source
    return source.replace("y_ptr, n,", "y_ptr, count_ptr, n,").replace("y, 8,", "y, torch.zeros(2).int(), 8,")


def locked(**change: str) -> str:
    """With an atomic on another word before, too, which is no lock that both take."""
    return stored(LOCK.format(**LOCKED | change), "torch.zeros(4)")


#: A store, perhaps a barrier, and what another thread of the same program does with the element.
UNORDERED = [
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + 3 - offsets)", "reads"),
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + 1)", "reads"),
    ("tl.store(y_ptr + pid * 4, 1.0)\n{0}x = tl.load(y_ptr + pid * 4)", "reads"),
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + tl.arange(0, 2)[:, None])", "reads"),
    ("for i in range(2):\n    {0}    tl.store(y_ptr + pid * 4 + (offsets + i) % 4, 1.0 + i)", "stores something else"),
]
LANES = "tl.store(y_ptr + pid * 2 + offsets // 2, {})"
THREE = "tl.store(y_ptr + pid * 4 + offsets, 1.0, mask=offsets < 3)"
FIRST_N = stored("tl.store(y_ptr + pid * 4 + offsets, 1.0, mask=offsets < n)", "torch.empty(2, 4)")
LAST = """
    tl.store(x_ptr + pid, 1.0)
    if tl.atomic_add(count_ptr, 1) == 1:
        tl.store(y_ptr, tl.load(x_ptr) + tl.load(x_ptr + 1))
"""
#: A file, and what is found in it: all of it, unless the pattern says otherwise.
FOUND = [
    (stored("tl.store(y_ptr + pid * 3 + offsets, 1.0)", "torch.empty(7)"),
     r"race in store_kernel: program 0 stores y_ptr\[3\] \(line 11\) and program 1 stores it too; "
     "on a GPU their order is undefined"),
    (stored("x = tl.load(x_ptr + pid * 4 + offsets)\n    tl.store(x_ptr + (1 - pid) * 4 + offsets, x + 1)", "None"),
     r".*program 0 reads x_ptr\[0\] \(line 11\) and program 1 stores it too.*"),
    (stored("tl.store(x_ptr + pid * 4 + offsets, 1.0)\n    tl.store(y_ptr + 1 - pid, 2.0)", "None")
     .replace("x, y = torch.ones(8), None", "x = torch.ones(8); y = x[3:5]"), r"race in store_kernel.*\[.*"),
    (stored(LANES.format("offsets"), "torch.empty(4)"),
     r"program 0 of store_kernel stores two different values in y_ptr\[0\] at once.*"),
    (stored(LANES.format("offsets // 2"), "torch.empty(4)"), ""),
    (stored("tl.atomic_add(y_ptr + offsets, 1.0)", "torch.zeros(4)"), ""),
    (stored("if pid == 0:\n        tl.store(y_ptr + offsets, 1.0)\n    else:\n"
            "        tl.atomic_add(y_ptr + offsets, 1.0)", "torch.zeros(4)"),
     r".*program 0 stores y_ptr\[0\] \(line 12\) and program 1 updates it too.*"),
    (locked(), ""),
    (locked(barrier="pass"),
     r"(?s).*program 0 stores y_ptr\[0\] \(line 15\) .*The atomic in line 17 says that it is done.*"),
    (locked(barrier="pass", release="relaxed"),
     r"(?s).*program 0 stores y_ptr\[0\] \(line 15\) .*their order is undefined.*"),
    (locked(acquire="relaxed"), r"(?s).*program 0 stores y_ptr\[0\] \(line 15\) .*their order is undefined.*"),
    (locked(early="before = tl.load(y_ptr + offsets)", sum="before"),
     r"(?s).*program 0 stores .* and program 1 reads it too.*"),
    (locked(late="tl.store(y_ptr + offsets, 0.0)"),
     r"(?s).*program 0 stores y_ptr\[0\] \(line 18\) and program 1 reads it.*"),
    (locked(early="tl.atomic_add(count_ptr + 1, 1)", acquire="relaxed"), r"(?s).*their order is undefined.*"),
    *((stored(body.format("    tl.debug_barrier()\n    "), "torch.zeros(8)"), "") for body, _ in UNORDERED),
    *((stored(body.format("    pass\n    "), "torch.zeros(8)"),
       rf"(?s)program 0 of store_kernel stores y_ptr\[\d\] in line 1\d, and another thread {does}( in)? it in line 1"
       r"\d, with no tl\.debug_barrier.*") for body, does in UNORDERED),
    # threads that need not wait: the same lanes, all lanes, the same value, numbers
    (stored("for i in range(3):\n        tl.store(y_ptr + pid * 4 + offsets, tl.load(y_ptr + pid * 4 + offsets) + 1.0)",
            "torch.zeros(8)"), ""),
    (stored("tl.store(y_ptr + pid + offsets * 0, 1.0)\n    tl.store(y_ptr + pid + offsets * 0, 1.0)",
            "torch.zeros(8)"), ""),
    (stored("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n    tl.store(y_ptr + pid * 4 + 3 - offsets, 1.0)",
            "torch.zeros(8)"), ""),
    (stored("tl.store(y_ptr + pid * 4, 1.0)\n    tl.store(y_ptr + pid * 4, 2.0)", "torch.zeros(8)"), ""),
    (stored(LAST, "torch.empty(1)"), ""),
    *((stored(THREE, f"torch.empty(2, 4, dtype=torch.{dtype})").replace("1.0,", "1,"),
       r"no program of store_kernel writes y_ptr\[0, 3\] \(2 of 8 elements are left out\)")
      for dtype in ("float32", "bfloat16", "int32", "int64")),
    (stored(THREE, "torch.zeros(2, 4)"), ""),
    (FIRST_N.replace("BLOCK=4)", "BLOCK=4); store_kernel[(2,)](x, y, 4, BLOCK=4)").replace("y, 8,", "y, 3,"), ""),
    (stored("tl.store(y_ptr + pid * 4 + offsets, tl.load(x_ptr + pid * 4 + offsets))",
            "torch.empty(8)", "torch.empty(8)"),
     r"(?s).*store_kernel reads x_ptr\[0\], which nobody has written.*"),
    (stored("tl.store(y_ptr + pid * 4 + offsets, tl.load(y_ptr + pid * 4 + offsets) + 1.0)", "torch.empty(8)"),
     "(.*which nobody has written.*\n?)+"),
    (stored("tl.atomic_add(y_ptr + offsets, 1.0)", "torch.empty(4)"),
     r"store_kernel updates y_ptr\[0\], which nobody has written"),
    (stored("tl.atomic_xchg(y_ptr + pid * 4 + offsets, 1.0)", "torch.empty(8)"), ""),
    # rows that begin at another tensor's stride; lanes that lie so far apart
    *(pair for x, y, step, pid in (("ones(3, 8)[:, :5]", "empty(3, 5)", 8, 1),
                                   ("ones(3, 5)", "empty(3, 8)[:, :5]", 5, 0),
                                   ("ones(5).expand(3, 5)", "empty(3, 5)", 0, 1))
      for pair in [
          (ROWS.format("stride_xm", "stride_yn", f"torch.{x}, torch.{y}"),
           f"(?s).*moves on by {step} elements, a stride of x_ptr, but y_ptr has strides.*compare with --pid {pid}"),
          (ROWS.format("stride_ym", "stride_yn", f"torch.{x}, torch.{y}"), ""),
      ]),
    *((ROWS.format("stride_ym", "stride_xn", f"torch.{x}, torch.empty(3, 5)"),
       rf".*does a store outside a tensor.*\. In program 0 its lanes are {step} elements apart, a stride of x_ptr, but "
       "y_ptr has.*")
      for x, step in (("arange(15.0).view(5, 3).T", 3), ("arange(24.0).view(3, 8)[:, :5].T.contiguous().T", 3),
                      ("ones(5, 9)[:, :3].T", 9))),
]  # fmt: skip


@pytest.mark.parametrize("source, wanted", FOUND)
def test_what_is_found(record, source, wanted):
    assert re.fullmatch(wanted, "\n".join(problems(record, source)))


TILES = """
@triton.jit
def tile_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, stride_ym, stride_yn, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (columns < N)
    x = tl.load(x_ptr + rows * stride_xm + columns * stride_xn, mask=mask)
    {store}

def EXAMPLE():
    x, y = {tensors}
    grid = triton.cdiv(x.shape[0], 2), triton.cdiv(x.shape[1], 2)
    tile_kernel[grid](x, y, *x.shape, *x.stride(), *y.stride(), BLOCK=2)
"""
RIGHT = "tl.store(y_ptr + rows * stride_ym + columns * stride_yn, x, mask=mask)"
X_STRIDES = "tl.store(y_ptr + rows * stride_xm + columns * stride_xn, x, mask=mask)"
CONTIGUOUS = "tl.store(y_ptr + rows * N + columns, x, mask=mask)"
TRANSPOSED = "torch.arange(15.0).view(3, 5).T"


def warned(record, store, tensors):
    path, recording = record(TILES.format(store=store, tensors=tensors))
    assert recording.data["error"] is None
    return [str(problem) for problem in faults.warnings(recording)]


@pytest.mark.parametrize(
    "store, tensors, reason",
    [
        (X_STRIDES, f"{TRANSPOSED}, torch.empty(5, 3)", "5 elements apart, a stride of x_ptr"),
        (CONTIGUOUS, f"torch.ones(5, 3), {TRANSPOSED}", "3 elements apart, a stride of x_ptr"),
        (CONTIGUOUS, f"torch.ones(6, 4)[1:, :3], {TRANSPOSED}", "3 elements apart, as if it were contiguous"),
    ],
)
def test_a_store_through_wrong_strides_that_stays_inside(record, store, tensors, reason):
    (found,) = warned(record, store, tensors)
    assert reason in found and "of tile_kernel stores in y_ptr[" in found
    assert warned(record, RIGHT, tensors) == []


def test_an_output_that_nobody_writes_is_said_at_its_store(record):
    source = ROWS.format("stride_xm", "stride_yn", "torch.ones(5).expand(3, 5), torch.empty(3, 5)")
    path, recording = record(source)
    found = [p for p in of_recording(path, recording, quoted=False) if "no program" in p.message]
    line = next(i for i, text in enumerate(path.read_text().split("\n"), 1) if "tl.store" in text)
    assert [p.line for p in found] == [line]
    assert "From program 1 to 2 this store moves on by 0 elements, a stride of x_ptr" in found[0].message


def test_in_the_padding_between_rows_a_store_is_outside(record):
    path, recording = record(TILES.format(store=CONTIGUOUS, tensors="torch.ones(5, 3), torch.empty(5, 4)[:, :3]"))
    (found,) = of_recording(path, recording, quoted=False)
    assert "does a store outside a tensor: element 3 of y_ptr, which has shape (5, 3) and strides (4, 1)" in str(found)


FLAT = """
@triton.jit
def flat_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {body}

def EXAMPLE():
    x = {x}
    flat_kernel[(4,)](x, torch.empty{like}, 15, BLOCK=4)
"""


@pytest.mark.parametrize(
    "x, like, body",
    [
        # element by element, in the order of memory
        (TRANSPOSED, "_like(x)", "tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), offsets < n)"),
        (
            "torch.ones(5, 3)",
            "_like(x)",
            "tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, offsets < n), offsets < n)",
        ),
        # the elements of two blocks in turn, as when two numbers are unpacked from one
        (
            TRANSPOSED,
            "(10, 3)",
            "tl.store(y_ptr + 2 * offsets, 1, offsets < n); tl.store(y_ptr + 2 * offsets + 1, 2, offsets < n)",
        ),
        # to places that are read from memory; into a tensor with one axis
        (TRANSPOSED, "(5, 3)", "tl.store(y_ptr + (offsets * 7) % 15, 1.0, offsets < n)"),
        (
            TRANSPOSED,
            "(15)",
            "tl.store(y_ptr + (tl.program_id(0) + offsets % 4 * 5), 1.0, tl.program_id(0) + offsets % 4 * 5 < 5)",
        ),
    ],
)
def test_other_orders_may_be_meant(record, x, like, body):
    path, recording = record(FLAT.format(x=x, like=like, body=body))
    assert recording.data["error"] is None and recording.data["warnings"] == []


LOCKED |= dict(release="release", late="pass")


def test_bytes_requested_and_distinct(record):
    body = "    x = tl.load(x_ptr + offsets) + tl.load(x_ptr + offsets)\n    tl.store(y_ptr + pid * 4 + offsets, x)"
    _, recording = record(STORE.format(body=body, y="torch.empty(8, dtype=torch.float16)"))
    assert recording.launches[0]["traffic"] == {
        "requested_read": 64,
        "bytes_read": 16,
        "requested_written": 16,
        "bytes_written": 16,
    }


COST = """
@triton.jit
def half_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) / 2)

def half_forward(x):
    scratch, y = torch.empty_like(x), torch.empty_like(x)
    half_kernel[(1,)](x, scratch, BLOCK=8)
    half_kernel[(1,)](scratch, y, BLOCK=8)
    return y

def half_backward(dy):
    return half_forward(dy)

def EXAMPLE():
    half_backward(half_forward(torch.ones(8)))
    half_forward(torch.ones(8))
"""


def test_the_recorded_bytes_are_compared_with_those_of_the_benchmark(record):
    traffic = record(COST)[1].data["traffic"]
    right = dict(bytes_read=32, bytes_written=32, operations=8)
    assert faults.contradictions(dict(forward=right, backward=right), traffic) == []
    (found,) = faults.contradictions(dict(forward=right, backward=right | dict(bytes_read=64)), traffic)
    assert found.startswith("64 bytes_read for backward; the recorded run moves 32 distinct ones. Only what kernels")
    assert "torch.sum" in found  # a PyTorch operation in the launcher is what usually makes the difference
    assert faults.contradictions(dict(forward=right), traffic) == ["there is no entry for backward"]
    assert faults.contradictions({"forward+backward": right}, {}) == []
    assert "it is missing" in faults.contradictions(None, traffic)[0]
