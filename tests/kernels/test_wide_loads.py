"""Softmax of long rows loads and stores 16 bytes at a time, wherever its rows begin: seen in the code for a GPU."""

from tests.kernels import harness


def test_wide_loads():
    """Narrow ones only for the edges, one for each thread; all stores where x and y can't both be aligned."""
    cases = odd, padded, even = "50257,50257", "50257,50304", "128256,128256"
    counts = harness.without_gpu("compile_without_gpu.py", *cases)
    for case in (odd, even):
        assert counts[case]["ld.global.v4"] and counts[case]["st.global.v4"], counts[case]
        assert counts[case]["ld.global.b16"] == counts[case]["st.global.b16"] == 1, counts[case]
    assert not counts[padded]["st.global.v4"], "then the note at the launcher is wrong"
