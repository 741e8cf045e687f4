"""The profiles of the guide to profiling (docs/guides/profiling.md), which shows this code and quotes its results.

`python benchmarks/profiling.py` profiles LayerNorm on this machine's GPU: with Proton, and with Nsight Compute where it
is installed and may read the card's counters. It writes `benchmarks/results/<device>/experiments/profiling.json`.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SHAPE = (32768, 4096)
CALLS = 20
MODULES = {"lesson": "annotated_examples.classics.layernorm", "fast": "annotated_examples.fast.layernorm"}
#: Kernels that Nsight Compute looks at, each with the file that it comes from.
COUNTED = {"layernorm_forward_kernel": "lesson", "layernorm_backward_columns_kernel": "lesson"}


# --8<-- [start:work]
def layernorm_passes(module):
    """One forward and one backward pass in bfloat16, on the same tensors each time."""
    x, dy = (torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight, bias = (torch.randn(SHAPE[1], device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def run():
        _, mean, rstd = module.layernorm_forward(x, weight, bias)
        module.layernorm_backward(dy, x, weight, bias, mean, rstd)

    return run
    # --8<-- [end:work]


# --8<-- [start:proton]
def proton_tree() -> dict:
    """What Proton recorded: a tree of scopes, the kernels as its leaves."""
    import triton.profiler as proton

    runs = {name: layernorm_passes(importlib.import_module(path)) for name, path in MODULES.items()}
    for run in runs.values():
        run()  # compiles: that isn't what we want to see
    with tempfile.TemporaryDirectory() as folder:
        proton.start(f"{folder}/layernorm")
        for name, run in runs.items():
            with proton.scope(name):
                for _ in range(CALLS):
                    run()
        proton.finalize()
        return json.loads(Path(folder, "layernorm.hatchet").read_text())[0]
    # --8<-- [end:proton]


def kernel_times(tree: dict) -> dict[str, float]:
    """`lesson/layernorm_forward_kernel` -> µs per call of the pass. PyTorch's kernels of a scope are one entry."""
    found: dict[str, float] = {}

    def visit(node: dict, scope: str) -> None:
        name = node["frame"]["name"]
        if name in MODULES:
            scope = name
        children = node.get("children", [])
        if nanoseconds := 0 if children else node.get("metrics", {}).get("time (ns)", 0):
            key = f"{scope}/{name if re.fullmatch(r'[a-z_]+_kernel', name) else 'PyTorch'}"
            found[key] = found.get(key, 0.0) + nanoseconds / CALLS / 1e3
        for child in children:
            visit(child, scope)

    visit(tree, "")
    return found


# --8<-- [start:counters]
#: The name in the guide -> Nsight Compute's name, and what its base unit is divided by.
COUNTERS = {
    "time": ("gpu__time_duration.sum", "µs", 1e3),
    "read": ("dram__bytes_read.sum", "MB", 1e6),
    "written": ("dram__bytes_write.sum", "MB", 1e6),
    "memory": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", 1),
    "sm": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", 1),
    "occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", 1),
    "registers": ("launch__registers_per_thread", "registers", 1),
    "l2_hits": ("lts__t_sector_hit_rate.pct", "%", 1),
    "sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sectors", 1),
    "requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "requests", 1),
}


def ncu_command(kernel: str) -> list[str]:
    """Nsight Compute on the second launch of a kernel. It replays the launch as often as the counters need."""
    metrics = ",".join(metric for metric, _, _ in COUNTERS.values())
    options = ["--csv", "--print-units", "base", "--metrics", metrics]
    options += ["--kernel-name", kernel, "--launch-skip", "1", "--launch-count", "1"]
    options += ["--clock-control", "none"]  # the card's clocks stay as they are
    return ["ncu", *options, sys.executable, __file__, "--only-run", COUNTED[kernel]]
    # --8<-- [end:counters]


def counters(output: str) -> dict[str, float]:
    """Name -> value out of what `ncu --csv` prints: rows of metrics, after lines of its own."""
    begin = output.find('"ID"')
    rows = list(csv.DictReader(io.StringIO(output[begin:]))) if begin >= 0 else []
    raw = {row["Metric Name"]: row["Metric Value"].replace(",", "") for row in rows if row.get("Metric Name")}
    found = {}
    for name, (metric, _, divisor) in COUNTERS.items():
        if re.fullmatch(r"[\d.]+", raw.get(metric, "")):
            found[name] = float(raw[metric]) / divisor
    return found


def counted(kernel: str) -> tuple[dict[str, float], str]:
    """The counters of a kernel, and why there are none."""
    if not shutil.which("ncu"):
        return {}, "ncu is not installed"
    done = subprocess.run(ncu_command(kernel), capture_output=True, text=True, timeout=300)
    found = counters(done.stdout)
    return found, "" if found else (done.stdout + done.stderr).strip()[-400:] or "ncu printed nothing"


def run() -> tuple[dict, list[str]]:
    """Name -> (value, unit) (None where it couldn't be measured), and what went wrong."""
    values = {name: (time, "µs") for name, time in kernel_times(proton_tree()).items()}
    problems = []
    for kernel in COUNTED:
        found, problem = counted(kernel)
        problems += [f"{kernel}: {problem}"] if problem else []
        for name, (_, unit, _) in COUNTERS.items():
            values[f"{kernel}/{name}"] = (found.get(name), unit)
        ratio = found["sectors"] / found["requests"] if found.get("requests") else None
        values[f"{kernel}/sectors_per_request"] = (ratio, "sectors")
    return values, problems


def main() -> int:
    from academy.bench import experiment

    parser = experiment.parser("Profile LayerNorm for the guide to profiling.")
    parser.add_argument("--only-run", choices=MODULES, help="launch its kernels twice and stop: what ncu looks at")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("profiles need a CUDA device", file=sys.stderr)
        return 2
    if arguments.only_run:
        passes = layernorm_passes(importlib.import_module(MODULES[arguments.only_run]))
        passes()
        passes()
        torch.cuda.synchronize()
        return 0
    found, problems = run()
    values = experiment.rounded(found)
    experiment.write_experiment("profiling", arguments.results, {"problems": problems, "values": values})
    print(values)
    print(*problems, sep="\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
