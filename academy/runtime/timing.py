"""How long a call takes on a GPU, how much memory it needs, and how fast the card itself is.

Everything here follows the guide "Measuring" (docs/guides/measuring.md): CUDA events, a cold L2 cache, random data, the
median of many repeats. Times are in milliseconds unless a name says otherwise, memory is in bytes.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

#: Four times the L2 cache of an H200: reading it leaves nothing else in the cache.
FLUSH_BYTES = 256 << 20
#: How often the cache is cleared before one call, at most.
MOST_FLUSHES = 20
#: The sizes at which the card's own limits are measured.
LARGE_COPY_BYTES = 4 << 30
MATRIX_SIZE = 8192


@dataclass(frozen=True)
class Timing:
    """Median time of one call in ms, the 20 % and 80 % quantiles, and how often it ran."""

    median: float
    low: float
    high: float
    repeats: int


class Gpu:
    """Measures on the current CUDA device.

    Args:
        warmup_ms: how long a call is repeated before anything is recorded.
        measure_ms: how long it is then measured, the clearing of the cache included (at least ten repeats).
        wall_ms: how long each row of plain calls takes, about.
    """

    def __init__(self, warmup_ms: float = 25, measure_ms: float = 100, wall_ms: float = 20):
        if not torch.cuda.is_available():
            raise RuntimeError("measuring needs a CUDA device: the interpreter's times say nothing about a GPU")
        self.warmup_ms, self.measure_ms, self.wall_ms = warmup_ms, measure_ms, wall_ms
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device=self.device)
        self._flushed = torch.zeros((), dtype=torch.float32, device=self.device)
        self._copies: dict[int, float] = {}
        self._rates: dict[torch.dtype, float] = {}
        self._flush_ms = self._mean_ms(self.clear_cache, 20)

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device)

    def clear_cache(self) -> None:
        """Fill the L2 cache with clean lines.

        It reads instead of writing zeros, as `triton.testing.do_bench` does: lines that were written have to go back to
        memory first, and the call that is measured would pay for that.
        """
        torch.sum(self._flush, 0, out=self._flushed)

    def milliseconds(self, run: Callable, prepare: Callable[[], object] = lambda: None) -> Timing:
        """Time `run(prepare())`; only `run` counts. Compiling and autotuning happen before.

        While the cache is being cleared the CPU gets ahead of the GPU. Where one clearing is too short for that it is
        repeated, so that a small kernel's time isn't the time that Python needs to launch it. Did the CPU stay ahead?
        When all of `run` is launched, the GPU must not have come to its beginning yet. If it has in more than one of
        ten repeats, all is measured again with more clearing, up to `MOST_FLUSHES`. (A `run` that itself waits for the
        GPU is late in any case.)
        """
        for _ in range(2):
            run(prepare())
        torch.cuda.synchronize()
        host_ms = min(self._enqueue_ms(run, prepare) for _ in range(3))
        flushes = min(MOST_FLUSHES, math.ceil(1.5 * host_ms / self._flush_ms) or 1)

        def repeat(count: int, flushes: int) -> tuple[list[float], int]:
            """The times in ms, and in how many of them the GPU may have waited for the CPU."""
            late = 0
            starts, ends = _events(count), _events(count)
            for start, end in zip(starts, ends):
                state = prepare()
                for _ in range(flushes):
                    self.clear_cache()
                start.record()
                kept = run(state)
                end.record()
                late += start.query()
                del state, kept
            torch.cuda.synchronize()
            return [start.elapsed_time(end) for start, end in zip(starts, ends)], late

        with _no_garbage_collection():
            begin = time.perf_counter()
            repeat(3, flushes)
            each_ms = (time.perf_counter() - begin) / 3 * 1e3
            repeat(_between(1, self.warmup_ms / each_ms, 200), flushes)
            while True:
                times, late = repeat(_between(10, self.measure_ms / each_ms, 400), flushes)
                if late <= len(times) // 10 or flushes == MOST_FLUSHES:
                    return _timing(times)
                flushes = min(MOST_FLUSHES, 2 * flushes)

    def graph_milliseconds(self, run: Callable[[], object]) -> Timing:
        """Time one replay of a CUDA graph of `run()`, the cache cold: no launch from Python is in it."""
        replay = captured(run)
        return self.milliseconds(lambda _: replay())

    def peak_bytes(self, run: Callable, prepare: Callable[[], object] = lambda: None) -> int:
        """The most memory that one call held beyond what was allocated before it (its outputs included)."""
        state = prepare()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        run(state)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(self.device) - before

    def host_microseconds(self, run: Callable[[], object]) -> float:
        """Time that the CPU spends on one call with small inputs, in µs: the median of nine runs of fifty calls."""
        for _ in range(20):
            run()
        times = []
        with _no_garbage_collection():
            for _ in range(9):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(50):
                    run()
                times.append((time.perf_counter() - begin) / 50 * 1e6)
        torch.cuda.synchronize()
        return statistics.median(times)

    def wall_milliseconds(self, run: Callable[[], object]) -> float:
        """Time of one call in a row of plain calls from Python, in ms: until the GPU has done the last of them.

        It is the longer of what the CPU and what the GPU spends on a call. The cache is warm.
        """
        for _ in range(3):
            run()
        each_ms = max(self._enqueue_ms(lambda _: run(), lambda: None), self._mean_ms(run, 3))
        times, count = [], _between(1, self.wall_ms / each_ms, 100)
        with _no_garbage_collection():
            for _ in range(9):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(count):
                    run()
                torch.cuda.synchronize()
                times.append((time.perf_counter() - begin) / count * 1e3)
        return statistics.median(times)

    def copy_milliseconds(self, total_bytes: int) -> float:
        """Time of a `torch` copy that moves `total_bytes`: half of them read, half written."""
        size = max(1, total_bytes // 2)
        if size not in self._copies:
            source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=self.device)
            target = torch.empty_like(source)
            self._copies[size] = self.milliseconds(lambda _: target.copy_(source)).median
        return self._copies[size]

    def copy_rate(self) -> float:
        """Bandwidth of a large copy in TB/s, bytes read plus bytes written."""
        return LARGE_COPY_BYTES / self.copy_milliseconds(LARGE_COPY_BYTES) / 1e9

    def matrix_rate(self, dtype: torch.dtype) -> float:
        """Rate of a large square matrix product in TFLOP/s (a multiply and an add are two operations)."""
        if dtype not in self._rates:
            size = MATRIX_SIZE
            a, b = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
            if dtype.itemsize == 1:  # PyTorch's `@` doesn't take codes
                one, b = torch.ones((), device=self.device), b.t()
                product = lambda _: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)  # noqa: E731
            else:
                product = lambda _: a @ b  # noqa: E731
            self._rates[dtype] = 2 * size**3 / self.milliseconds(product).median / 1e9
        return self._rates[dtype]

    def _enqueue_ms(self, run: Callable, prepare: Callable) -> float:
        state = prepare()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run(state)
        elapsed = (time.perf_counter() - begin) * 1e3
        torch.cuda.synchronize()
        return elapsed

    def _mean_ms(self, run: Callable[[], object], count: int) -> float:
        run()
        (start, end) = _events(2)
        start.record()
        for _ in range(count):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / count


def captured(run: Callable[[], object]) -> Callable[[], None]:
    """`run()` as a CUDA graph, which costs Python a single launch."""
    side = torch.cuda.Stream()  # on which the call is run a few times first, as PyTorch asks
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


class _no_garbage_collection:
    """Python's collector would pause the CPU in the middle of a measurement."""

    def __enter__(self):
        self.was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self.was_enabled:
            gc.enable()


def _events(count: int) -> list[torch.cuda.Event]:
    return [torch.cuda.Event(enable_timing=True) for _ in range(count)]


def _between(least: int, value: float, most: int) -> int:
    return int(max(least, min(value, most)))


def _timing(times: list[float]) -> Timing:
    fifths = statistics.quantiles(times, n=5)
    return Timing(statistics.median(times), fifths[0], fifths[3], len(times))
