"""How wide softmax loads and stores, and where: seen in the code that a GPU would get."""

import pytest

from tests.kernels import harness

PASSES = "forward", "backward"


@pytest.fixture(scope="module")
def counts():
    """Instructions of the kernels for `MODULE,PASS,DTYPE,N,stride`."""
    fast = [f"fast,{which},bf16,{rows}" for which in PASSES for rows in ("50257,50257", "128256,128256")]
    lesson = [f"lesson,{which},{dtype},32000,32000" for which in PASSES for dtype in ("fp32", "bf16")]
    return harness.without_gpu("compile_without_gpu.py", *fast, "fast,forward,bf16,50257,50304", *lesson)


@pytest.mark.parametrize("rows", ["50257,50257", "128256,128256"])
@pytest.mark.parametrize("which", PASSES)
def test_long_rows_that_begin_anywhere(counts, which, rows):
    """16 bytes at a time; narrow loads only for the edges, one a thread and tensor."""
    seen = counts[f"fast,{which},bf16,{rows}"]
    tensors_read = 2 if which == "backward" else 1
    assert seen["ld.global.v4"] and seen["st.global.v4"], seen
    assert (seen["ld.global.b16"], seen["st.global.b16"]) == (tensors_read, 1), seen


def test_rows_that_begin_differently(counts):
    assert not counts["fast,forward,bf16,50257,50304"]["st.global.v4"], "then the note at `alignment` is wrong"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("which", PASSES)
def test_the_lesson(counts, which, dtype):
    """Rows of a multiple of 16 elements: all loads and stores are wide, although the width is an argument."""
    seen = counts[f"lesson,{which},{dtype},32000,32000"]
    assert seen["ld.global.v4"] and seen["st.global.v4"], seen
    assert not seen["ld.global.b16"] and not seen["st.global.b16"], seen
