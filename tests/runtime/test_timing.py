"""The clock itself, on a GPU: cold cache, head start, graphs, memory. And the refusal without one."""

import statistics
import time

import pytest
import torch

from academy.runtime import device, timing


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        timing.Gpu()


def test_quantiles():
    found = timing._timing([float(i) for i in range(1, 101)])
    assert (found.median, found.repeats) == (50.5, 100)
    assert found.low == pytest.approx(20, abs=1) and found.high == pytest.approx(80, abs=1)


def test_compiling_is_in_no_time(monkeypatch):
    """The first call takes a second, as one that compiles does, and the others a millisecond, on a clock of our own."""
    now, calls = 0.0, 0

    class Event:
        def record(self):
            self.at = now

        def query(self):
            return False

        def elapsed_time(self, end):
            return end.at - self.at

    def run(_):
        nonlocal now, calls
        calls += 1
        now += 1000.0 if calls == 1 else 1.0

    monkeypatch.setattr(timing, "_events", lambda count: [Event() for _ in range(count)])
    monkeypatch.setattr(timing, "_timing", lambda times: times)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    gpu = object.__new__(timing.Gpu)
    gpu.warmup_ms, gpu.measure_ms, gpu._flush_ms = 0.0, 0.0, 1.0
    gpu.clear_cache, gpu._enqueue_ms = (lambda: None), (lambda run, prepare: 0.1)
    assert set(gpu.milliseconds(run)) == {1.0}


@pytest.fixture(scope="module")
def gpu():
    if device.INTERPRET:
        pytest.skip("needs a CUDA device")
    return timing.Gpu()


@pytest.mark.gpu
def test_a_copy_is_timed_from_memory_not_from_the_cache(gpu):
    """A copy that fits the L2 cache: repeated without clearing it is far quicker."""
    source = torch.randn(2 << 20, device="cuda")
    target = torch.empty_like(source)
    cold = gpu.milliseconds(lambda _: target.copy_(source)).median
    gpu.clear_cache, kept = (lambda: torch.cuda._sleep(100_000)), gpu.clear_cache
    try:
        warm = gpu.milliseconds(lambda _: target.copy_(source)).median
    finally:
        gpu.clear_cache = kept
    assert cold > 1.3 * warm


@pytest.mark.gpu
def test_the_time_of_a_small_kernel_is_not_the_time_of_its_launch(gpu):
    """Small kernels with slow launches: the events must see the kernels only."""
    x = torch.zeros(1, device="cuda")

    def run(_):
        for _ in range(4):
            sum(range(2000))  # what a slow launcher does before it launches
            x.add_(1)

    host_ms = gpu.host_microseconds(lambda: run(None)) / 1e3
    assert host_ms > 0.05 and gpu.milliseconds(run).median < 0.5 * host_ms


@pytest.mark.gpu
def test_a_launch_that_became_slower_is_noticed(gpu):
    """The head start is chosen from the first calls. When later ones take longer, it has to grow."""
    x = torch.zeros(1, device="cuda")
    calls = iter(range(10**9))

    def run(_):
        if next(calls) > 5:
            until = time.perf_counter() + 3e-4
            while time.perf_counter() < until:
                pass
        x.add_(1)
        x.add_(1)

    assert gpu.milliseconds(run).median < 0.1


@pytest.mark.gpu
def test_a_graph_takes_as_long_as_its_kernels(gpu):
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    events = gpu.milliseconds(lambda _: a @ a).median
    graph = gpu.graph_milliseconds(lambda: a @ a).median
    assert graph == pytest.approx(events, rel=0.15)


@pytest.mark.gpu
def test_only_run_is_timed(gpu):
    big = torch.randn(64 << 20, device="cuda")
    alone = gpu.milliseconds(lambda _: big[:1024].clone()).median
    prepared = gpu.milliseconds(lambda _: big[:1024].clone(), prepare=lambda: big.sin()).median
    assert prepared < 3 * alone + 0.01


@pytest.mark.gpu
def test_peak_memory(gpu):
    x = torch.zeros(8 << 20, device="cuda")
    assert gpu.peak_bytes(lambda _: (x + 1) * 2) == 2 * x.numel() * 4
    assert gpu.peak_bytes(lambda state: state + 1, prepare=lambda: x * 2) == x.numel() * 4


@pytest.mark.gpu
def test_the_card_is_plausible(gpu):
    assert 0.1 < gpu.copy_rate() < 20
    assert 10 < gpu.matrix_rate(torch.bfloat16) < 5000
    rates = [gpu.copy_milliseconds(64 << 20) for _ in range(3)]
    assert len(set(rates)) == 1, "a copy is measured once a run"


@pytest.mark.gpu
def test_repeats_agree(gpu):
    source = torch.randn(32 << 20, device="cuda")
    target = torch.empty_like(source)
    times = [gpu.milliseconds(lambda _: target.copy_(source)).median for _ in range(5)]
    assert max(times) < 1.1 * statistics.median(times)
