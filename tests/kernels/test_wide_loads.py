"""Softmax of long rows loads and stores 16 bytes at a time, wherever its rows begin: seen in the code for a GPU."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("compile_without_gpu.py")


def test_wide_loads():
    """Narrow ones only in the first chunk and in the last; everywhere where x and y can't both be aligned."""
    cases = odd, padded, even = "50257,50257", "50257,50304", "128256,128256"
    run = subprocess.run([sys.executable, SCRIPT, *cases], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    counts = json.loads(run.stdout.splitlines()[-1])
    for case in (odd, even):
        assert counts[case]["cp.async.cg.shared.global"] and counts[case]["st.global.v4"], counts[case]
    assert counts[odd]["ld.global.b16"] and counts[odd]["st.global.b16"], "the ends of a row that begins anywhere"
    assert not counts[even]["ld.global.b16"] and not counts[even]["st.global.b16"], counts[even]
    assert not counts[padded]["st.global.v4"], "then the note at the launcher is wrong"
