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


def test_two_programs_storing_one_element_is_a_race(record):
    found = problems(record, STORE.format(body="    tl.store(y_ptr + pid * 3 + offsets, 1.0)", y="torch.empty(7)"))
    assert found == [
        "race in store_kernel: program 0 stores y_ptr[3] (line 11) and program 1 stores it too; "
        "on a GPU their order is undefined"
    ]


def test_reading_what_another_program_stores_is_a_race(record):
    body = "    x = tl.load(x_ptr + pid * 4 + offsets)\n    tl.store(x_ptr + (1 - pid) * 4 + offsets, x + 1)"
    (found,) = problems(record, STORE.format(body=body, y="None"))
    assert "program 0 reads x_ptr[0] (line 11) and program 1 stores it too" in found


def test_a_race_through_two_views_of_one_storage(record):
    source = STORE.format(
        body="    tl.store(x_ptr + pid * 4 + offsets, 1.0)\n    tl.store(y_ptr + 1 - pid, 2.0)", y="None"
    )
    source = source.replace("x, y = torch.ones(8), None", "x = torch.ones(8); y = x[3:5]")
    (found,) = problems(record, source)
    assert found.startswith("race in store_kernel") and "[" in found


def test_two_lanes_of_one_store_at_one_element(record):
    body = "    tl.store(y_ptr + pid * 2 + offsets // 2, {value})"
    (found,) = problems(record, STORE.format(body=body.format(value="offsets"), y="torch.empty(4)"))
    assert found.startswith("program 0 of store_kernel stores two different values in y_ptr[0] at once")
    assert problems(record, STORE.format(body=body.format(value="offsets // 2"), y="torch.empty(4)")) == []


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


ROWS = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, stride_xm, stride_xn, stride_ym, stride_yn, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + columns * stride_xn, mask=columns < N)
    tl.store(y_ptr + row * STRIDE + columns * stride_yn, x, mask=columns < N)

def EXAMPLE():
    x, y = {tensors}
    copy_kernel[(3,)](x, y, *x.stride(), *y.stride(), 5, BLOCK=8)
"""


@pytest.mark.parametrize(
    "tensors, step, pid",
    [
        ("torch.ones(3, 8)[:, :5], torch.empty(3, 5)", 8, 1),
        ("torch.ones(3, 5), torch.empty(3, 8)[:, :5]", 5, 0),
        ("torch.ones(5).expand(3, 5), torch.empty(3, 5)", 0, 1),
    ],
)
def test_a_row_that_starts_at_another_tensors_stride_is_named(record, tensors, step, pid):
    source = ROWS.format(tensors=tensors)
    found = " ".join(problems(record, source.replace("STRIDE", "stride_xm")))
    assert f"moves on by {step} elements, a stride of x_ptr, but y_ptr has strides" in found
    assert found.endswith(f"compare with --pid {pid}")
    assert problems(record, source.replace("STRIDE", "stride_ym")) == []


@pytest.mark.parametrize(
    "tensors, program",
    [
        ("torch.arange(15.0).view(5, 3).T, torch.empty(3, 5)", 0),  # program 1 fails, program 0 doesn't
        ("torch.arange(24.0).view(3, 8)[:, :5].T.contiguous().T, torch.empty(3, 5)", 0),
        ("torch.ones(5, 9)[:, :3].T, torch.empty(3, 5)", 0),  # the first program fails
    ],
)
def test_lanes_that_lie_another_tensors_stride_apart_are_named(record, tensors, program):
    source = ROWS.format(tensors=tensors).replace("STRIDE", "stride_ym")
    (found,) = problems(record, source.replace("* stride_yn", "* stride_xn"))
    step = 9 if "9" in tensors else 3
    assert "does a store outside a tensor" in found
    assert f". In program {program} its lanes are {step} elements apart, a stride of x_ptr, but y_ptr has" in found


def test_an_output_that_nobody_writes_is_said_at_its_store(record):
    source = ROWS.format(tensors="torch.ones(5).expand(3, 5), torch.empty(3, 5)").replace("STRIDE", "stride_xm")
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


def test_atomics_are_no_race(record):
    assert problems(record, STORE.format(body="    tl.atomic_add(y_ptr + offsets, 1.0)", y="torch.zeros(4)")) == []


def test_an_atomic_beside_a_store_is_a_race(record):
    body = "    if pid == 0:\n        tl.store(y_ptr + offsets, 1.0)\n    else:\n"
    body += "        tl.atomic_add(y_ptr + offsets, 1.0)"
    (found,) = problems(record, STORE.format(body=body, y="torch.zeros(4)"))
    assert "program 0 stores y_ptr[0] (line 12) and program 1 updates it too" in found


LOCK = """
    {early}
    while tl.atomic_cas(lock_ptr, 0, 1, sem="{acquire}") == 1:
        pass
    tl.store(y_ptr + offsets, {sum} + 1.0)
    {barrier}
    tl.atomic_xchg(lock_ptr, 0, sem="{release}")
    {late}
"""
LOCKED = dict(early="before = 0.0", acquire="acquire", sum="tl.load(y_ptr + offsets)", barrier="tl.debug_barrier()")
LOCKED |= dict(release="release", late="pass")


@pytest.mark.parametrize(("change", "message"), [
    ({}, ""),
    (dict(barrier="pass"), r"program 0 stores y_ptr\[0\] \(line 15\) .*The atomic in line 17 says that it is done"),
    (dict(barrier="pass", release="relaxed"), r"program 0 stores y_ptr\[0\] \(line 15\) .*their order is undefined"),
    (dict(acquire="relaxed"), r"program 0 stores y_ptr\[0\] \(line 15\) .*their order is undefined"),
    (dict(early="before = tl.load(y_ptr + offsets)", sum="before"), r"program 0 stores .* and program 1 reads it too"),
    (dict(late="tl.store(y_ptr + offsets, 0.0)"), r"program 0 stores y_ptr\[0\] \(line 18\) and program 1 reads it"),
    (dict(early="tl.atomic_add(lock_ptr + 1, 1)", acquire="relaxed"), r"their order is undefined"),
], ids=str)  # fmt: skip
def test_what_a_lock_protects(record, change, message):
    """Also with an atomic on another word before, which is no lock that both take."""
    source = STORE.format(body=LOCK.format(**LOCKED | change), y="torch.zeros(4)")
    source = source.replace("y_ptr, n,", "y_ptr, lock_ptr, n,")
    source = source.replace("y, 8,", "y, torch.zeros(2, dtype=torch.int32), 8,")
    found = problems(record, source)
    assert re.search(message, found[0]) if message else not found, found


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize(("body", "message"), [
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + 3 - offsets)", "reads"),
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + 1)", "reads"),
    ("tl.store(y_ptr + pid * 4, 1.0)\n{0}x = tl.load(y_ptr + pid * 4)", "reads"),
    ("tl.store(y_ptr + pid * 4 + offsets, 1.0)\n{0}x = tl.load(y_ptr + pid * 4 + tl.arange(0, 2)[:, None])", "reads"),
    ("for i in range(2):\n    {0}    tl.store(y_ptr + pid * 4 + (offsets + i) % 4, 1.0 + i)", "stores something else"),
])  # fmt: skip
def test_threads_of_a_program_that_do_not_wait_for_each_other(record, body, message, barrier):
    wait = "    tl.debug_barrier()\n    " if barrier else "    pass\n    "
    found = problems(record, STORE.format(body="    " + body.format(wait), y="torch.zeros(8)"))
    told = rf"program 0 of store_kernel stores y_ptr\[\d\] in line 1\d, and another thread {message}( in)? it in line 1"
    assert not found if barrier else re.match(told + r"\d, with no tl\.debug_barrier", found[0]), found


@pytest.mark.parametrize("body", [
    "for i in range(3):\n        tl.store(y_ptr + pid * 4 + offsets, tl.load(y_ptr + pid * 4 + offsets) + 1.0)",
    "tl.store(y_ptr + pid + offsets * 0, 1.0)\n    tl.store(y_ptr + pid + offsets * 0, 1.0)",
    "tl.store(y_ptr + pid * 4 + offsets, 1.0)\n    tl.store(y_ptr + pid * 4 + 3 - offsets, 1.0)",
    "tl.store(y_ptr + pid * 4, 1.0)\n    tl.store(y_ptr + pid * 4, 2.0)",
], ids=["the same lanes", "all lanes", "the same value", "numbers"])  # fmt: skip
def test_threads_that_need_not_wait(record, body):
    assert problems(record, STORE.format(body="    " + body, y="torch.zeros(8)")) == []


def test_the_last_program_may_add_up_the_others_sums(record):
    source = STORE.format(
        body="""
    tl.store(x_ptr + pid, 1.0)
    if tl.atomic_add(count_ptr, 1) == 1:
        tl.store(y_ptr, tl.load(x_ptr) + tl.load(x_ptr + 1))
""",
        y="torch.empty(1)",
    )
    source = source.replace("y_ptr, n,", "y_ptr, count_ptr, n,").replace(
        "y, 8,", "y, torch.zeros(1, dtype=torch.int32), 8,"
    )
    assert problems(record, source) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int64"])
def test_an_output_that_nobody_writes(record, dtype):
    body = "    tl.store(y_ptr + pid * 4 + offsets, 1, mask=offsets < 3)"
    found = problems(record, STORE.format(body=body, y=f"torch.empty(2, 4, dtype=torch.{dtype})"))
    assert found == ["no program of store_kernel writes y_ptr[0, 3] (2 of 8 elements are left out)"]


def test_zeros_need_not_be_overwritten(record):
    body = "    tl.store(y_ptr + pid * 4 + offsets, 1.0, mask=offsets < 3)"
    assert problems(record, STORE.format(body=body, y="torch.zeros(2, 4)")) == []


def test_a_later_launch_may_fill_the_rest(record):
    source = STORE.format(body="    tl.store(y_ptr + pid * 4 + offsets, 1.0, mask=offsets < n)", y="torch.empty(2, 4)")
    both = source.replace("BLOCK=4)", "BLOCK=4); store_kernel[(2,)](x, y, 4, BLOCK=4)").replace("y, 8,", "y, 3,")
    assert problems(record, both) == []


def test_reading_memory_that_nobody_wrote(record):
    body = "    tl.store(y_ptr + pid * 4 + offsets, tl.load(x_ptr + pid * 4 + offsets))"
    source = STORE.format(body=body, y="torch.empty(8)").replace("torch.ones(8)", "torch.empty(8)")
    assert "store_kernel reads x_ptr[0], which nobody has written" in problems(record, source)


def test_adding_to_memory_that_nobody_wrote_is_still_a_store(record):
    body = "    tl.store(y_ptr + pid * 4 + offsets, tl.load(y_ptr + pid * 4 + offsets) + 1.0)"
    found = problems(record, STORE.format(body=body, y="torch.empty(8)"))
    assert found and all("which nobody has written" in message for message in found)


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
