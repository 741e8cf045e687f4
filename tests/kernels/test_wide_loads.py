"""Softmax of long rows loads and stores 16 bytes at a time, wherever its rows begin: seen in the code for a GPU."""

from tests.kernels import harness


def test_wide_loads():
    """Narrow ones only in the first chunk and in the last; everywhere where x and y can't both be aligned."""
    cases = odd, padded, even = "50257,50257", "50257,50304", "128256,128256"
    counts = harness.without_gpu("compile_without_gpu.py", *cases)
    for case in (odd, even):
        assert counts[case]["cp.async.cg.shared.global"] and counts[case]["st.global.v4"], counts[case]
    assert counts[odd]["ld.global.b16"] and counts[odd]["st.global.b16"], "the ends of a row that begins anywhere"
    assert not counts[even]["ld.global.b16"] and not counts[even]["st.global.b16"], counts[even]
    assert not counts[padded]["st.global.v4"], "then the note at the launcher is wrong"
