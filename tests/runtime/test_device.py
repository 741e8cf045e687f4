"""academy/runtime/device: where kernels run is decided once, and said clearly."""

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device, timing  # before triton
from academy import cli
from tests.python import run

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "annotated_examples" / "tutorials" / "vector_add.py"


def python(*arguments, **environment):
    """Run Python in the repository's root with `environment` on top of this one (None removes a variable)."""
    return run(arguments, ROOT, {k: v for k, v in {**os.environ, **environment}.items() if v is not None})


#: What another process imports first.
WORKERS = """academy.traces.worker academy.compiler.worker academy.exercises.limited academy.exercises.marking
    academy.formulas.verify academy.formulas.mutation.engine academy.judge academy.playground.run
    academy.gluon.simulator
    annotated_examples.tutorials.softmax annotated_examples.gluon.tile_copy""".split()


without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")


TOLD = "from academy.runtime import device; print(device.INTERPRET, device.DEVICE)"


@pytest.mark.parametrize(
    ("arguments", "variable", "status", "said"),
    [
        pytest.param(("-c", TOLD), None, 0, "True cpu\n", marks=without_gpu),
        (("-c", TOLD), "1", 0, "True cpu\n"),
        (("-c", TOLD), "0", 0, "False cuda\n"),
        (("-c", "import triton; " + TOLD), "1", 0, "True cpu\n"),
        pytest.param(("-c", "import triton; " + TOLD), None, 1, "triton was imported before academy.runtime.device",
                     marks=without_gpu),
        pytest.param((SCRIPT, "--device", "cuda"), None, 2, "no CUDA device", marks=without_gpu),
        ((SCRIPT, "--device", "cpu"), None, 0, "in Triton's interpreter"),  # on a GPU machine it is started again
        pytest.param((SCRIPT, "--device", "cuda"), "1", 0, "(compiled)", marks=pytest.mark.gpu),
    ],
)  # fmt: skip
def test_where_kernels_run(arguments, variable, status, said):
    done = python(*arguments, TRITON_INTERPRET=variable)
    assert done.returncode == status and said in done.stdout + done.stderr, done


def test_a_kernel_and_fences_do_without_pytorchs_compiler():
    """Importing it takes two seconds, and hundreds of processes start in a run of all tests."""
    code = """
import sys
import annotated_examples.classics.matmul
import torch
from academy.judge.fences import Fences
with Fences():
    torch.ones(2)
print("torch._dynamo" in sys.modules)
"""
    assert python("-c", code).stdout.split() == ["False"]


def test_the_precision_of_products_is_a_constant_of_a_compiled_function():
    """Dynamo can't follow the setting itself."""
    function = torch.compile(lambda x: x + device.tf32_allowed(), fullgraph=True, backend="eager")
    assert function(torch.zeros(1)).item() == device.tf32_allowed()


@pytest.mark.nightly  # a fork for each
@without_gpu
def test_what_a_process_begins_with_imports_this_first():
    """Each in a fork of its own, which saves it the import of torch."""
    code = """
import os, sys, torch
from importlib import import_module
for name in sys.argv[1:]:
    if not (child := os.fork()):
        import_module(name), import_module("academy.runtime.device")
        os._exit(0)
    print(name, os.waitpid(child, 0)[1])
"""
    done = python("-c", code, *cli._PASSED_ON.values(), *WORKERS, TRITON_INTERPRET=None)
    told = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert set(told) >= {*cli._PASSED_ON.values(), *WORKERS} and set(told.values()) == {"0"}, done.stderr


def test_autotune_keeps_one_config_in_the_interpreter():
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

    class Gpu:
        def __init__(self, **durations):
            assert durations == dict(warmup_ms=5, measure_ms=20)

        def milliseconds(self, run):
            run(None)
            return timing.Timing(median=2.0, low=1.0, high=3.0, repeats=10)

    calls, options = [], []
    monkeypatch.setattr(timing, "Gpu", Gpu)
    monkeypatch.setattr(device.triton, "autotune", lambda **given: options.append(given))
    device.autotune([], key=["n"])
    device.autotune([], key=["n"], do_bench=print)
    assert options[0]["do_bench"](lambda: calls.append(1), quantiles=(0.5, 0.2, 0.8)) == [2.0, 1.0, 3.0]
    assert calls and options[1]["do_bench"] is print


# ---------------------------------------------------------------- other cards


class Card:
    """Stands for `torch.cuda` of a machine with two GPUs: what is asked of it, and which one is current."""

    def __init__(self, monkeypatch, capability=(9, 0), shared=232_448):
        self.current, self.entered = 0, []
        properties = SimpleNamespace(shared_memory_per_block_optin=shared)
        answers = dict(
            current_device=lambda: self.current, device=self.switch, get_device_name=lambda index: "Test card",
            get_device_capability=lambda index: capability, get_device_properties=lambda index: properties,
        )  # fmt: skip
        for name, value in answers.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(device, "INTERPRET", False)
        device.shared_memory.cache_clear()
        find = lambda values: next((x.index for x in values if isinstance(x, SimpleNamespace)), None)  # noqa: E731
        monkeypatch.setattr(device, "_device_of", find)

    @contextlib.contextmanager
    def switch(self, index):
        before, self.current = self.current, index
        self.entered.append(index)
        yield
        self.current = before


def test_a_launch_goes_where_the_tensors_are(monkeypatch):
    """Triton takes the current GPU, where the address of a tensor of another one means nothing."""
    card, ran = Card(monkeypatch), []
    method = device.on_the_tensors_device(lambda kernel, *args, **kwargs: ran.append((card.current, args, kwargs)))
    first, second = SimpleNamespace(index=0), SimpleNamespace(index=1)
    method("kernel", first, 3, grid=(1,))
    method("kernel", 3, y=second, grid=(1,))
    method("kernel", 3, grid=(1,))
    assert [current for current, *_ in ran] == [0, 1, 0] and card.entered == [1] and card.current == 0
    assert ran[1][1:] == ((3,), dict(y=second, grid=(1,)))


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: ((1, 2), (x, 3)), lambda x: (SimpleNamespace(base=x),)])
def test_the_tensor_is_found_among_the_arguments(wrap):
    class OnGpu(torch.Tensor):
        is_cuda = True

        def get_device(self):
            return 1

    assert device._device_of((1, None, torch.ones(1), *wrap(torch.ones(1).as_subclass(OnGpu)))) == 1
    assert device._device_of((1, None, torch.ones(1))) is None


@pytest.mark.parametrize(
    ("feature", "capability", "allowed"),
    [("fp8", (8, 9), True), ("fp8", (8, 6), False), ("fp8", (12, 0), True), ("gluon", (9, 0), True),
     ("gluon", (8, 9), False), ("gluon", (10, 0), False), ("descriptors", (8, 0), False)],
)  # fmt: skip
def test_what_a_card_lacks_is_refused_by_name(monkeypatch, feature, capability, allowed):
    assert device.has(feature) and device.require(feature, "f") is None  # the interpreter has everything
    Card(monkeypatch, capability)
    assert device.has(feature, 0) is allowed
    if not allowed:
        found = f"matmul needs .* compute capability .*; Test card has {capability[0]}.{capability[1]}"
        with pytest.raises(RuntimeError, match=found):
            device.require(feature, "matmul", 0)


@pytest.mark.skipif(not device.INTERPRET, reason="on a CPU, of a card that is made up")
def test_tiles_shrink_where_shared_memory_is_short(monkeypatch):
    """`gemm` asked for 115,712 bytes on cards that allow 101,376."""
    from annotated_examples.gemlite import gemm

    depths = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda **arguments: depths.append(arguments["BLOCK_K"])

    monkeypatch.setattr(gemm, "gemm_kernel", Kernel())
    words, scales, zeros = gemm.quantize(torch.randn(128, 32, dtype=torch.float16), 4, 32)
    for shared in (232_448, 101_376):
        monkeypatch.setattr(device, "shared_memory", lambda index, shared=shared: shared)
        for M in (16, 100):
            gemm.gemm_forward(torch.ones(M, 128).half(), words, scales, zeros, W_nbits=4, group_size=32)
    assert depths == [128, 64, 64, 32]


def test_shared_memory_is_asked_of_the_card(monkeypatch):
    assert device.shared_memory(None) == 232_448
    Card(monkeypatch, shared=101_376)
    assert device.shared_memory(0) == 101_376
    device.shared_memory.cache_clear()
