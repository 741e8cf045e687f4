"""academy/device: where kernels run is decided once, and said clearly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "annotated_examples" / "tutorials" / "vector_add.py"


def python(*arguments, **environment):
    """Run Python in the repository's root with `environment` on top of this one (None removes a variable)."""
    variables = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=ROOT, env=variables, capture_output=True, text=True
    )


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")


@without_gpu
def test_interpreter_is_chosen_without_a_variable():
    done = python("-c", "from academy import device; print(device.INTERPRET, device.DEVICE)", TRITON_INTERPRET=None)
    assert done.stdout.split() == ["True", "cpu"], done.stderr


@without_gpu
def test_triton_first_is_a_clear_error():
    done = python("-c", "import triton, academy.device", TRITON_INTERPRET=None)
    assert done.returncode == 1
    assert "triton was imported before academy.device" in done.stderr


def test_triton_first_is_fine_when_the_variable_was_set():
    done = python("-c", "import triton, academy.device as d; print(d.INTERPRET)", TRITON_INTERPRET="1")
    assert done.stdout.strip() == "True", done.stderr


def test_variable_is_respected():
    code = "from academy import device; print(device.INTERPRET, device.DEVICE)"
    assert python("-c", code, TRITON_INTERPRET="1").stdout.split() == ["True", "cpu"]
    assert python("-c", code, TRITON_INTERPRET="0").stdout.split() == ["False", "cuda"]


@without_gpu
def test_asking_for_cuda_without_a_gpu_is_status_2():
    done = python(SCRIPT, "--device", "cuda", TRITON_INTERPRET=None)
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr


def test_device_cpu_interprets():
    """On a GPU machine the script is started again with the variable set."""
    done = python(SCRIPT, "--device", "cpu", TRITON_INTERPRET=None)
    assert done.returncode == 0, done.stderr
    assert "in Triton's interpreter" in done.stdout


@pytest.mark.gpu
def test_device_cuda_compiles_even_when_the_variable_says_interpret():
    done = python(SCRIPT, "--device", "cuda", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert "(compiled)" in done.stdout


def test_autotune_keeps_one_config_in_the_interpreter():
    import triton
    import triton.language as tl

    from academy import device

    @device.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
    @triton.jit
    def ones(out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, 1.0, mask=offsets < n)

    assert len(ones.configs) == (1 if device.INTERPRET else 2)
    out = torch.zeros(10, device=device.DEVICE)
    ones[lambda meta: (triton.cdiv(10, meta["BLOCK"]),)](out, 10)
    assert out.sum().item() == 10


def test_autotune_times_with_the_clock_of_the_benchmark(monkeypatch):
    """Median, 20 % and 80 %, in the order in which the tuner asks for them. A clock of the caller's own goes first."""
    from academy import device
    from academy.bench import measure

    class Gpu:
        def __init__(self, **durations):
            assert durations == dict(warmup_ms=5, measure_ms=20)

        def milliseconds(self, run):
            run(None)
            return measure.Timing(median=2.0, low=1.0, high=3.0, repeats=10)

    calls, options = [], []
    monkeypatch.setattr(measure, "Gpu", Gpu)
    monkeypatch.setattr(device.triton, "autotune", lambda **given: options.append(given))
    device.autotune([], key=["n"])
    device.autotune([], key=["n"], do_bench=print)
    assert options[0]["do_bench"](lambda: calls.append(1), quantiles=(0.5, 0.2, 0.8)) == [2.0, 1.0, 3.0]
    assert calls and options[1]["do_bench"] is print
