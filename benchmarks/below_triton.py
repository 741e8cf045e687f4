"""What only a card shows of the Gluon lessons: 200 runs with the same bits, and what Triton's ConSan says of them.

`python benchmarks/below_triton.py` runs both on this machine's Hopper GPU and writes
`benchmarks/results/<device>/experiments/below_triton.json`. ConSan instruments the compiled kernel, so a compilation
takes minutes, and a kernel that it stops takes its process along: each case has a process of its own, and a time limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from academy.runtime import device
from academy.bench import experiment
from academy.book.layout import ROOT
from academy.judge import mutants, waits
from annotated_examples.gluon import flash_attention, matmul, tile_copy

RUNS = 200
#: Seconds for a case under ConSan, most of them for the compiler.
LIMIT = 240
#: Two configurations of the product: two groups of warps share a tile, or take turns.
CONFIGURATIONS = {
    "together": dict(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, STAGES=3),
    "turns": dict(BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, STAGES=3, HALVES=1, PINGPONG=True),
}
#: How many mutants of the product's synchronisation ConSan has to find: a sample, as each costs a compilation.
MUTANTS = 10


# ---------------------------------------------------------------- the same bits, again and again


def repeated() -> dict:
    """Name -> a call whose bits must not change."""
    calls = {}
    for n in (2048, 4096, 8192):
        a, b = (torch.randn(n, n, device=device.DEVICE, dtype=torch.bfloat16) for _ in "ab")
        calls[f"matmul {n}"] = lambda a=a, b=b: matmul.matmul(a, b)
    x = torch.randn(4096, 4096, device=device.DEVICE, dtype=torch.bfloat16)
    calls["copy"] = lambda: tile_copy.copy(x, 1.5)
    for D in (64, 128):
        q, k, v = (torch.randn(2, h, 4096, D, device=device.DEVICE, dtype=torch.bfloat16) for h in (16, 8, 8))
        for causal in (False, True):
            name = f"attention D{D} {'causal' if causal else 'full'}"
            calls[name] = lambda q=q, k=k, v=v, causal=causal: flash_attention.flash_attention(q, k, v, causal=causal)
    return calls


def different_runs(call) -> int:
    """How many of `RUNS` calls gave other bits than the first."""
    first = call()
    return sum(not torch.equal(call(), first) for _ in range(RUNS))


# ---------------------------------------------------------------- ConSan


def product_mutants() -> list[mutants.Mutant]:
    return mutants.sample(waits.mutants(Path(matmul.__file__).read_text("utf-8")), MUTANTS)


def product(configuration: str, number: str):
    """The product in a configuration, or, with the number of a mutant, in one that runs the changed line."""
    if not number:
        return lambda a, b: matmul.matmul_forward(a, b, **CONFIGURATIONS[configuration])
    mutant = product_mutants()[int(number)]
    module = mutants.mutated(matmul, mutant)
    if mutant.function == "matmul_tile_kernel":
        return lambda a, b: module.matmul_tile(a, b, BLOCK_M=64, BLOCK_N=64, STAGES=2, num_warps=4)
    chosen = CONFIGURATIONS["turns" if "turn" in mutant.name else "together"]
    return lambda a, b: module.matmul_forward(a, b, **chosen)


def case(name: str) -> int:
    """One product in this process: exit status 0 if it is right, 3 if not; ConSan ends the process in its own way."""
    import triton  # after academy.runtime.device

    configuration, _, number = name.partition("/")
    # ConSan keeps what it knows of each buffer in global memory.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device.DEVICE))
    if configuration == "attention":
        q = torch.randn(1, 2, 300, 64, device=device.DEVICE, dtype=torch.bfloat16)
        found = flash_attention.flash_attention(q, q, q, causal=True)
        right = flash_attention.flash_attention_reference(q, q, q, causal=True)
    else:
        a, b = (torch.randn(520, 520, device=device.DEVICE, dtype=torch.bfloat16) for _ in "ab")
        found, right = product(configuration, number)(a, b), a @ b
    torch.cuda.synchronize()
    return 0 if torch.allclose(found.float(), right.float(), atol=0.5, rtol=0.02) else 3


def under_consan(name: str) -> str:
    """What became of the case: "right", "wrong numbers", "hung", or what ConSan said."""
    with tempfile.TemporaryDirectory() as cache:
        settings = dict(TRITON_INSTRUMENTATION_MODE="consan", CUDA_LAUNCH_BLOCKING="1", TRITON_CACHE_DIR=cache)
        command = [sys.executable, __file__, "--case", name]
        try:
            done = subprocess.run(
                command, env=os.environ | settings, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            return "hung"
    if done.returncode in (0, 3):
        return "wrong numbers" if done.returncode else "right"
    said = [line for line in (done.stderr + done.stdout).splitlines() if "ssertion" in line or "Error" in line]
    return (said or done.stderr.splitlines() or [f"status {done.returncode}"])[0][-200:]


# ---------------------------------------------------------------- all of it


def main() -> int:
    parser = experiment.parser(__doc__.split("\n")[0])
    parser.add_argument("--case", help="(for the processes that this one starts)")
    arguments = parser.parse_args()
    if device.INTERPRET:
        print("this needs a Hopper GPU", file=sys.stderr)
        return 2
    if arguments.case:
        return case(arguments.case)
    values, different = {}, {}
    for name, call in repeated().items():
        different[name] = different_runs(call)
        print(name, different[name], "of", RUNS, "runs differ", flush=True)
    values["runs"] = (RUNS, "")
    values["runs/different"] = (sum(different.values()), "")
    content = {"different_runs": different}

    names = [*CONFIGURATIONS, "attention", *(f"mutant/{number}" for number in range(MUTANTS))]
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) - 2)) as pool:
        said = dict(zip(names, pool.map(under_consan, names)))
    titles = {f"mutant/{number}": mutant.name for number, mutant in enumerate(product_mutants())}
    content["consan"] = {titles.get(name, name): outcome for name, outcome in said.items()}
    for name, outcome in content["consan"].items():
        print(f"{name}: {outcome}", flush=True)
    found = [said[name] for name in titles]
    values["consan/mutants"] = (MUTANTS, "")
    values["consan/found"] = (sum(outcome != "right" for outcome in found), "")
    values["consan/stopped"] = (sum(outcome not in ("right", "wrong numbers", "hung") for outcome in found), "")
    values["consan/alarms"] = (sum(said[name] != "right" for name in names if name not in titles), "")
    content["values"] = experiment.rounded(values)
    experiment.write_experiment("below_triton", arguments.results, content)
    return int(bool(values["runs/different"][0]))


if __name__ == "__main__":
    sys.exit(main())
