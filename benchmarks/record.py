"""One record: each operation at the shape at which people quote it, ours beside every rival, in one run on one card.

`python benchmarks/record.py` runs on this machine's GPU and writes
`benchmarks/results/<device>/experiments/record.json`, which the page "Beside its rivals" (docs/benchmarks/record.md)
shows. What is measured is said in `operations/`; `ROWS` only chooses. A rival that isn't installed is named, with what
its import said.

First, several processes compile what each row needs and compare every result with float64, by the rule of all
benchmarks. Then the card is left alone, and one process measures row after row. It writes the file after each, and
stops in time if `--seconds` are given: the rows stand in the order of how often they are quoted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib.metadata
import multiprocessing
import os
import platform
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from academy.runtime import device, launch  # before anything imports triton
from academy.bench import experiment, operation, run
from academy.book import layout
from academy.results import figures
from academy.runtime.timing import Gpu

NAME = "record"
#: Rival -> the packages whose versions are told, and the module without which there is none of it.
RIVALS = {
    "PyTorch": (("torch",), "torch"),
    "torch.compile, flex_attention": (("torch", "triton"), "torch._inductor"),
    "cuBLAS": (("nvidia-cublas", "nvidia-cublas-cu12"), "torch"),
    "cuDNN": (("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"), "torch"),
    "liger-kernel": (("liger-kernel",), "liger_kernel"),
    "flash-linear-attention": (("flash-linear-attention", "fla-core"), "fla"),
    "transformers": (("transformers",), "transformers"),
    "quack": (("quack-kernels", "nvidia-cutlass-dsl"), "quack.softmax"),
    "FlashAttention-3": (("flash-attn-3", "flash_attn_3"), "flash_attn_interface"),
    "FlashAttention-4": (("flash-attn-4",), "flash_attn.cute"),
    "FlashInfer": (("flashinfer-python",), "flashinfer"),
    "gemlite": (("gemlite",), "gemlite"),
}
#: Provider -> why no row has it, although it may be installed.
LEFT_OUT = {"gemlite": "its search for tiles takes a minute for each shape, longer than this whole run"}
#: Environment of the processes that compile beside each other. What a search finds there is chance, and isn't kept.
BUSY = {"TRITON_CACHE_AUTOTUNING": "0", "FLA_CACHE_RESULTS": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
#: Seconds of products before the card's own rate is measured: a cool card is faster than the rows will find it.
WARM_UP = 1.0
#: What PyTorch's compiler writes of its searches.
FOUND_BY_PYTORCH = "*.best_config"


@dataclass(frozen=True)
class Row:
    """A case of `operations/<operation>.py`.

    passes: of the variant's (default: all). checked: the smaller shape at which results are compared, where float64
    takes longer than the rest of the run. without: providers that aren't rivals here, because one call takes as long as
    all others together, or no tile fits the card. rate: the dtype that is multiplied, where it isn't the case's: its
    rate sets the limit. parts: how many processes share what is tried in its searches for tiles.
    """

    operation: str
    shape: tuple[int, ...]
    variant: str = ""
    passes: tuple[str, ...] = ()
    checked: tuple[int, ...] = ()
    without: tuple[str, ...] = ()
    rate: torch.dtype | None = None
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.operation} {self.variant} {figures.label(self.shape)}".replace("  ", " ")


EIGHT = torch.float8_e4m3fn
_CHUNKED: dict[str, Any] = dict(shape=(8, 4096, 16, 128), checked=(1, 1024, 16, 128), parts=5)
ROWS = [
    Row("matmul_autotuned", (8192, 8192, 8192), parts=7),
    Row("flash_attention", (4, 16, 16, 4096, 128), "causal"),
    Row("flash_attention", (1, 16, 16, 16384, 128), "causal"),
    Row("layernorm", (32768, 4096)),
    Row("rmsnorm", (32768, 4096)),
    Row("softmax", (8192, 32000)),
    Row("cross_entropy", (8192, 128256)),
    Row("scaled_matmul", (8192, 8192, 8192), "row", rate=EIGHT),
    Row("decode", (16, 32, 8, 8192, 128)),
    Row("linear_cross_entropy", (8192, 4096, 128256)),
    Row("gemm_splitK", (16, 8192, 8192)),
    Row("grouped_matmul", (49152, 64, 2048, 1408)),
    Row("gated_delta_rule", **_CHUNKED),
    Row("linear_attention", **_CHUNKED),
    Row("kda", **_CHUNKED),
    Row("mla", (1, 128, 4096, 128, 64, 128)),
    Row("mla_decode", (128, 128, 4096), without=("flex, compiled",)),
    Row("select_keys", (4096, 65536)),
    Row("sparse_mla", (4096, 128, 8192, 2048), passes=("forward",)),
    Row("sample", (64, 151936), "top-p alone"),
    Row("token_logprobs", (8192, 151936), "logprobs"),
    Row("adamw", (148, 837_000)),
    Row("muon", (4, 4096, 4096), rate=torch.bfloat16),
    Row("causal_conv1d", (8, 4096, 4096), parts=3),
    Row("cumsum", (8192, 32000)),
    Row("quantize", (16384, 8192), "1x128"),
    Row("mx_matmul", (16, 8192, 8192)),
    Row("moe_mlp", (8192, 6, 64, 2048, 1408), without=("eager",)),
    Row("rope", (8, 32, 8, 4096, 128)),
    Row("swiglu", (8192, 14336)),
    Row("scaled_matmul", (8192, 8192, 8192), "block", rate=EIGHT),
    Row("scaled_matmul", (8192, 8192, 8192), "tensor", rate=EIGHT),
    Row("matmul_autotuned", (4096, 4096, 4096), parts=3),
]


@functools.cache
def operation_of(name: str) -> operation.Operation:
    return operation.Operation.from_file(layout.facts(layout.ROOT, name))


def variant_of(row: Row) -> operation.Variant:
    """With the row's passes. Of ours only the one that is meant: the fast version, the lesson where there is none."""
    found = next(each for each in operation_of(row.operation).variants if each.name == row.variant)
    ours = {name: found.ours[name] for name in figures.OURS if name in found.ours}
    return replace(found, ours=dict([next(iter(ours.items()))]), passes=list(row.passes or found.passes))


def providers(row: Row) -> dict[str, operation.Provider]:
    given = variant_of(row).providers()
    return {name: make for name, make in given.items() if name not in (*LEFT_OUT, *row.without)}


# ---------------------------------------------------------------- first: compile, and compare
@contextlib.contextmanager
def short_searches() -> Iterator[None]:
    """Triton tries each configuration for a tenth of a second; some kernels have hundreds."""
    import triton

    with mock.patch("triton.testing.do_bench", functools.partial(triton.testing.do_bench, warmup=1, rep=5)):
        yield


def inputs_of(row: Row, shape: tuple[int, ...]) -> dict:
    torch.manual_seed(0)
    variant = variant_of(row)
    return variant.inputs(shape, variant.dtypes[0], device.DEVICE)


def with_room(made: Callable, tries: int = 12):
    """`made()`, once the other processes have left memory for it: what is in the way is compared in float64, too."""
    for left in reversed(range(tries)):
        try:
            return made()
        except torch.OutOfMemoryError:
            if not left:
                raise
        gc.collect()
        torch.cuda.empty_cache()
        time.sleep(4)


def checked(row: Row) -> dict[str, dict]:
    """Provider -> what `run.prepared` says of it: `missing`, `failed`, `inaccurate`, `writes_inputs`."""
    gc.collect()
    torch.cuda.empty_cache()
    variant, notes = variant_of(row), {}
    inputs = inputs_of(row, row.checked or row.shape)
    checker = with_room(lambda: run.Checker(variant, inputs))
    for name, make in providers(row).items():

        def once(name=name, make=make) -> dict:
            note = run.prepared(name, make, inputs, variant, checker)[1]
            if any(words in note.get("failed", "") for words in ("CUDA out of memory", "ALLOC_FAILED")):
                raise torch.OutOfMemoryError(note["failed"])
            return note

        try:
            with short_searches():
                notes[name] = with_room(once)
        except torch.OutOfMemoryError as error:
            notes[name] = {"failed": str(error)}
        torch.cuda.empty_cache()
    if row.checked:  # and compile what the larger shape needs
        del checker, inputs
        inputs = inputs_of(row, row.shape)
        for make in providers(row).values():
            with contextlib.suppress(Exception), short_searches():
                call = run.Call(make(inputs), inputs, variant)
                call.results(run.upstream_of(call()) if call.wanted else None)
    return {name: note for name, note in notes.items() if note}


def compile_part(row: Row, part: int) -> None:
    """Compile a part of what the row's searches try, so that `checked` finds all of it in Triton's cache."""
    from triton.runtime.autotuner import Autotuner

    every = Autotuner.prune_configs

    def some(self, arguments):
        found = every(self, arguments)
        return found[part :: row.parts] or found[:1]

    variant, inputs = variant_of(row), inputs_of(row, row.checked or row.shape)
    with mock.patch.object(Autotuner, "prune_configs", some), short_searches():
        for make in providers(row).values():
            with contextlib.suppress(Exception):
                call = run.Call(make(inputs), inputs, variant)
                call.results(run.upstream_of(call()) if call.wanted else None)


def prepared(rows: list[Row], processes: int, seconds: float) -> dict[Row, dict]:
    """Row -> `checked(row)`, of what was ready within the time. What has parts comes last, when they are compiled."""
    begin, done = time.monotonic(), {}
    with mock.patch.dict(os.environ, BUSY):
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), max_tasks_per_child=None)
        for row in rows:
            for part in range(row.parts if row.parts > 1 else 0):
                pool.submit(compile_part, row, part)
        tasks = {pool.submit(checked, row): row for row in sorted(rows, key=lambda row: row.parts > 1)}
        try:
            for task in as_completed(tasks, timeout=seconds):
                row = tasks[task]
                try:
                    done[row] = task.result()
                except Exception as error:
                    print(f"{row}: {type(error).__name__}: {error}"[:300], flush=True)
                else:
                    print(f"{time.monotonic() - begin:5.0f} s  ready: {row} {done[row] or ''}"[:300], flush=True)
        except TimeoutError:
            print(f"not ready in time: {', '.join(str(row) for row in rows if row not in done)}", flush=True)
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
    return done


# ---------------------------------------------------------------- then: measure
def measured(row: Row, notes: dict[str, dict], gpu: Gpu) -> dict:
    """The row as `run.measure_case` would give it, without its comparison."""
    gc.collect()
    torch.cuda.empty_cache()
    variant, notes = variant_of(row), dict(notes)
    dtype, inputs, upstream = variant.dtypes[0], inputs_of(row, row.shape), None
    passes = {which: run.pass_limits(variant, row.shape, dtype, which, gpu) for which in variant.passes}
    if row.rate:
        for limits in passes.values():
            products = limits["operations"] / gpu.matrix_rate(row.rate) / 1e9
            limits["limit_ms"] = float(f"{max(limits['copy_ms'], products):.4g}")
    for name, make in providers(row).items():
        note = notes.get(name, {})
        if "missing" in note or "failed" in note:
            continue
        try:
            with short_searches():
                call = run.Call(make(inputs), inputs, variant)
                out = call()
                if call.wanted:
                    upstream = run.upstream_of(out) if upstream is None else upstream
                    call.upstream = run.each(torch.Tensor.clone, upstream)
                    call.gradients(out)
            call.writes_inputs = note.get("writes_inputs", [])
            for which in variant.passes:
                entry = run.measure_pass(call, which, variant.timing, gpu)
                if which == "backward" and not call.writes_inputs:
                    both = gpu.wall_milliseconds(lambda call=call: call.gradients(call()))
                    entry["both_wall_ms"] = float(f"{both:.4g}")
                passes[which]["providers"][name] = entry
            del call, out
        except Exception as error:
            traceback.print_exc()
            notes[name] = note | {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}
        torch.cuda.empty_cache()
    head = dict(operation=row.operation, variant=row.variant, shape=list(row.shape), dtype=run.dtype_name(dtype))
    if row.rate:
        head["rate"] = run.dtype_name(row.rate)
    if row.checked:
        head["checked"] = list(row.checked)
    return head | dict(sources=operation_of(row.operation).sources, timing=variant.timing, passes=passes, notes=notes)


def warm_up(seconds: float) -> None:
    """Products for so long."""
    begin, a = time.monotonic(), torch.randn(8192, 8192, dtype=torch.bfloat16, device=device.DEVICE)
    while time.monotonic() - begin < seconds:
        torch.mm(a, a)
        torch.cuda.synchronize()


def rivals() -> dict[str, dict[str, str]]:
    """Rival -> `version`, or `why` it takes no part."""
    found = {}
    for name, (packages, module) in RIVALS.items():
        versions = []
        for package in packages:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions.append(f"{package} {importlib.metadata.version(package)}")
        found[name] = {"version": ", ".join(versions)}
        try:
            importlib.import_module(module)
        except Exception as error:
            found[name]["why"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
        if name in LEFT_OUT:
            found[name]["why"] = LEFT_OUT[name]
    return found


def processor() -> str:
    """The CPU's name: what a user waits for depends on it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def one_line(row: dict) -> str:
    """For the terminal: of each pass ours, the best rival, and how many times our time it takes."""
    said = []
    for each in figures.passes([row]):
        against = f"{each.best_peer} {each.ms(each.best_peer):.4g}, {each.against_best:.2f}x" if each.best_peer else "-"
        said.append(f"{each.which} {each.ms():.4g} ms ({each.share():.0%}), {against}")
    return f"{row['operation']} {row['variant']} {figures.label(row['shape'])}: {'; '.join(said)}"


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--processes", type=int, default=min(15, os.cpu_count() or 1), help="that compile at once")
    parser.add_argument("--seconds", type=float, default=3600, help="start no row after this time (default: an hour)")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="keep the rows of a run that stopped")
    options = parser.parse_args()
    if device.INTERPRET:
        raise SystemExit("times need a GPU, and there is none here")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        record(options)


def record(options: argparse.Namespace) -> None:
    """Measure, and write after each row."""
    begin = time.monotonic()
    content: dict = experiment.kept(NAME, options.results) if options.go_on else {}
    packages = sorted({package for packages, _ in RIVALS.values() for package in packages})
    if content and content["versions"] != experiment.versions(*packages):
        raise SystemExit(f"that run had other versions: {content['versions']}")
    content = dict(rivals={}, left=[], runs=[], rows=[]) | content
    have = {(row["operation"], row["variant"], *row["shape"]) for row in content["rows"]}
    rows = [row for row in ROWS if (row.operation, row.variant, *row.shape) not in have]
    print(f"{device.describe()}, launches {launch.describe()}", flush=True)
    notes = prepared(rows, options.processes, 0.65 * options.seconds)
    for file in Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob(FOUND_BY_PYTORCH):
        file.unlink()
    gpu = Gpu(warmup_ms=10, measure_ms=50, wall_ms=10)
    warm_up(WARM_UP)
    this = dict(copy_tb_s=round(gpu.copy_rate(), 3), matrix_tflop_s=round(gpu.matrix_rate(torch.bfloat16), 1),
                processor=processor(), rows=0)  # fmt: skip
    content |= dict(rivals=rivals(), left=[], runs=[*content["runs"], this])
    for row in sorted(rows, key=lambda row: row not in notes):
        if time.monotonic() - begin < options.seconds:
            try:
                said = notes[row] if row in notes else checked(row)
                content["rows"].append(measured(row, said, gpu))
                this["rows"] += 1
                print(f"{time.monotonic() - begin:5.0f} s  {one_line(content['rows'][-1])}", flush=True)
            except Exception as error:
                traceback.print_exc()
                content["left"].append(f"{row}: {type(error).__name__}")
        else:
            content["left"].append(str(row))
        experiment.write_experiment(NAME, options.results, content, *packages)
    print(f"{time.monotonic() - begin:5.0f} s  left out: {content['left'] or 'nothing'}")


if __name__ == "__main__":
    main()
