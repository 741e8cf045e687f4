"""Softmax of long rows loads and stores 16 bytes at a time, wherever its rows begin: seen in the code for a GPU."""

from tests.kernels import harness


def test_wide_loads():
    """Narrow ones only for the edges, one a thread and tensor; all stores where x and y can't both be aligned."""
    odd, even = ("50257,50257", "128256,128256")
    cases = [f"{which},{rows}" for which in ("forward", "backward") for rows in (odd, even)]
    counts = harness.without_gpu("compile_without_gpu.py", *cases, "forward,50257,50304")
    for case in cases:
        tensors_read = 2 if case.startswith("backward") else 1
        assert counts[case]["ld.global.v4"] and counts[case]["st.global.v4"], case
        assert (counts[case]["ld.global.b16"], counts[case]["st.global.b16"]) == (tensors_read, 1), (case, counts[case])
    assert not counts["forward,50257,50304"]["st.global.v4"], "then the note at the launcher is wrong"
