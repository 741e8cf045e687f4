"""The experiments of the guide to measuring (docs/guides/measuring.md), which shows this code and quotes its results.

`python benchmarks/measuring.py` runs them on this machine's GPU and writes
`benchmarks/results/<device>/experiments/measuring.json`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

# --8<-- [start:roofline]
BANDWIDTH = 4.8e12  # bytes per second: an H200's data sheet
FLOAT32_RATE = 67e12  # operations per second, outside the tensor cores
MATRIX_RATE = 989e12  # bf16 operations per second in the tensor cores; a multiply-add counts as two


def floor_us(total_bytes: int, operations: int, rate: float) -> float:
    """No kernel with these bytes and operations can be faster, in µs."""
    return max(total_bytes / BANDWIDTH, operations / rate) * 1e6


# LayerNorm reads each bf16 value once, writes one for it, and computes in float32.
rows, width = 32768, 4096
layernorm_us = floor_us(2 * 2 * rows * width, 8 * rows * width, FLOAT32_RATE)
# A matrix product reads two matrices and writes one.
n = 8192
matmul_us = floor_us(3 * 2 * n * n, 2 * n**3, MATRIX_RATE)
# --8<-- [end:roofline]


# --8<-- [start:waiting]
def host_clock_ms() -> tuple[float, float]:
    """The CPU's clock: when a call had returned, and when the GPU was done."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    a @ a  # the first call sets things up
    torch.cuda.synchronize()
    begin = time.perf_counter()
    a @ a
    returned = time.perf_counter()
    torch.cuda.synchronize()
    done = time.perf_counter()
    return (returned - begin) * 1e3, (done - begin) * 1e3
    # --8<-- [end:waiting]


# --8<-- [start:events]
def event_times_ms(run, repeats: int = 100, before=lambda: None) -> list[float]:
    """GPU time of each call of `run`. `before` comes first and isn't counted."""
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    for start, end in zip(starts, ends):
        before()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in zip(starts, ends)]
    # --8<-- [end:events]


# --8<-- [start:start]
def head_start() -> Callable[[], None]:
    """Some tens of µs of work for the GPU, in one launch and little memory."""
    matrix = torch.randn(1024, 1024, device="cuda")
    return lambda: matrix @ matrix


def small_copy_us() -> tuple[float, float]:
    """A copy of 4 MiB: without a head start for the CPU, and with one."""
    source = torch.randn(1 << 20, device="cuda")
    target = torch.empty_like(source)
    alone = event_times_ms(lambda: target.copy_(source), 300)
    after = event_times_ms(lambda: target.copy_(source), 300, head_start())
    return 1e3 * statistics.median(alone), 1e3 * statistics.median(after)
    # --8<-- [end:start]


# --8<-- [start:first]
def first_call_ms() -> tuple[float, float]:
    """A kernel's first call, which compiles it, and a later one (CPU's clock)."""
    from annotated_examples.tutorials.vector_add import vector_add

    x = torch.randn(1 << 20, device="cuda")
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        vector_add(x, x)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return times[0], statistics.median(times[1:])
    # --8<-- [end:first]


# --8<-- [start:spread]
def spread_us() -> dict[str, float]:
    """One small copy, three hundred times, in µs."""
    source = torch.randn(1 << 20, device="cuda")
    target = torch.empty_like(source)
    times = event_times_ms(lambda: target.copy_(source), 300, head_start())
    return dict(
        quickest=1e3 * min(times),
        median=1e3 * statistics.median(times),
        mean=1e3 * statistics.mean(times),
        slowest=1e3 * max(times),
    )
    # --8<-- [end:spread]


# --8<-- [start:zeros]
def matmul_rates() -> tuple[float, float]:
    """TFLOP/s of the same product: of random numbers, and of zeros."""
    rates = []
    for make in (torch.randn, torch.zeros):
        a, b = (make(8192, 8192, device="cuda").bfloat16() for _ in range(2))
        times = event_times_ms(lambda a=a, b=b: a @ b, repeats=800)
        hot = statistics.median(times[400:])  # the power limit takes a while to bite
        rates.append(2 * 8192**3 / hot / 1e9)
    return rates[0], rates[1]
    # --8<-- [end:zeros]


# --8<-- [start:cache]
def copy_rates() -> tuple[float, float]:
    """TB/s of copying 8 MiB again and again, and with the L2 cache full of
    something else before each copy."""
    source = torch.randn(4 << 20, device="cuda").bfloat16()
    target = torch.empty_like(source)
    other = torch.zeros(64 << 20, device="cuda")
    warm = event_times_ms(lambda: target.copy_(source), 200, head_start())
    cold = event_times_ms(lambda: target.copy_(source), 200, lambda: other.sum())
    moved = 2 * source.numel() * source.element_size()
    return moved / statistics.median(warm) / 1e9, moved / statistics.median(cold) / 1e9
    # --8<-- [end:cache]


# --8<-- [start:noise]
def noise_percent() -> float:
    """`do_bench` ten times on one kernel: how far apart the answers are, in %."""
    from triton.testing import do_bench

    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    answers = [do_bench(lambda: a @ a, return_mode="median") for _ in range(10)]
    return 100 * (max(answers) / min(answers) - 1)
    # --8<-- [end:noise]


def run() -> dict:
    """All experiments: name -> (value, unit)."""
    first, later = first_call_ms()
    returned, done = host_clock_ms()
    random_rate, zeros_rate = matmul_rates()
    warm, cold = copy_rates()
    alone, after = small_copy_us()
    values = {
        "first_call": (first, "ms"),
        "later_call": (later, "ms"),
        "returned": (1e3 * returned, "µs"),
        "done": (done, "ms"),
        "without_head_start": (alone, "µs"),
        "with_head_start": (after, "µs"),
        "random_rate": (random_rate, "TFLOP/s"),
        "zeros_rate": (zeros_rate, "TFLOP/s"),
        "warm_copy": (warm, "TB/s"),
        "cold_copy": (cold, "TB/s"),
        **{name: (value, "µs") for name, value in spread_us().items()},
        "noise": (noise_percent(), "%"),
        "l2": (torch.cuda.get_device_properties(0).L2_cache_size / 1e6, "MB"),
    }
    return values


def main() -> int:
    from academy.bench import experiment

    arguments = experiment.parser("Run the experiments of the guide to measuring.").parse_args()
    if not torch.cuda.is_available():
        print("these experiments need a CUDA device", file=sys.stderr)
        return 2
    values = experiment.rounded(run())
    experiment.write_experiment("measuring", arguments.results, {"values": values})
    print(values)
    return 0


if __name__ == "__main__":
    sys.exit(main())
