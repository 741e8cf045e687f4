"""What a call costs on the host: the experiments of the guide "What a call costs" (docs/guides/what-a-call-costs.md).

`python benchmarks/host_time.py` runs them on this machine's GPU and writes
`benchmarks/results/<device>/experiments/host_time.json`:

- `calls`: host time of a call on tiny tensors, ours with launches remembered and without, PyTorch's and the peers', in
  µs, without a gradient and forward with backward;
- `wall`: the time of a plain call in a row of them, on tensors as large as in a model, in µs;
- `breakdown`: where the time of one layernorm call goes, in µs;
- `values`: the same numbers under the names by which the guide quotes them.
"""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # run as a script: make the repository importable
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from academy.runtime import device, launch  # noqa: E402  before anything imports triton
from academy.bench import experiment, operation, run  # noqa: E402
from academy.book import layout  # noqa: E402
from academy.runtime.timing import Gpu  # noqa: E402

#: file of operations/ -> the variants whose host time is measured.
OPERATIONS = {
    "vector_add": [""],
    "matmul_blocked": [""],
    "matmul_grouped": [""],
    "flash_attention": [],
    "decode": [],
    "softmax": [""],
    "layernorm": [""],
    "rmsnorm": [""],
    "swiglu": [],
    "geglu": [],
    "cross_entropy": [""],
    "linear_cross_entropy": [],
    "matmul_autotuned": [""],
    "gemm_splitK": [""],
}


# --8<-- [start:clock]
def host_us(calls: dict, rounds: int = 15, count: int = 50) -> dict:
    """How long the CPU is busy with one call of each, in µs. They take turns,
    so that a slow moment of the machine meets all of them."""
    times: dict = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(20):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()  # an empty queue: nobody waits for room
            begin = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - begin) / count * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}
    # --8<-- [end:clock]


def wall_us(calls: dict[str, Callable], rounds: int = 15, count: int = 20) -> dict[str, float]:
    """From the first of a row of calls until the GPU has done the last, divided by their number, in µs."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(10):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - begin) / count * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def plainly(call: Callable) -> Callable:
    """The same call, every launch made by Triton."""

    def by_triton(*arguments, **named):
        remembers, launch.REMEMBERS = launch.REMEMBERS, False
        try:
            return call(*arguments, **named)
        finally:
            launch.REMEMBERS = remembers

    return by_triton


def providers(variant: operation.Variant, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[dict, dict]:
    """(name -> a `run.Call`, name -> why there is none). Ours comes a second time, launched by Triton."""
    inputs, found, missing = variant.inputs(shape, dtype, device.DEVICE), {}, {}
    for name, factory in variant.providers().items():
        if name in ("torch.compile", "lesson") and len(variant.ours) > 1 or name == "torch.compile":
            continue
        try:
            found[name] = run.Call(factory(inputs), inputs, variant)
            if name in variant.ours:
                found["launched by Triton"] = run.Call(factory(inputs), inputs, variant)
            out = found[name]()
            for each in (name, "launched by Triton"):
                if each in found and found[each].wanted:
                    found[each].upstream = run.upstream_of(out)
        except Exception as error:
            found.pop(name, None)
            missing[name] = f"{type(error).__name__}: {error}"[:200]
    return found, missing


def pairs(found: dict) -> tuple[dict, dict]:
    """Calls without a gradient, and calls forward and backward."""

    forward = {name: functools.partial(call.function, **call.originals) for name, call in found.items()}
    both = {name: lambda call=call: call.gradients(call()) for name, call in found.items() if call.wanted}
    for each in (forward, both):
        if "launched by Triton" in each:
            each["launched by Triton"] = plainly(each["launched by Triton"])
    return forward, both


def calls(operations: dict[str, operation.Operation]) -> list[dict]:
    """All of them take turns: a machine can be slow for seconds, and then every operation is."""
    rows: list[dict] = []
    timed: dict[tuple, Callable] = {}
    for name, wanted in OPERATIONS.items():
        for variant in operations[name].variants:
            if variant.name == "backward" or wanted and variant.name not in wanted:
                continue
            found, missing = providers(variant, variant.host_shape, variant.dtypes[0])
            for which, each in zip(("forward", "forward+backward"), pairs(found)):
                timed |= {(len(rows), which, provider): call for provider, call in each.items()}
            rows.append(dict(operation=name, variant=variant.name, shape=list(variant.host_shape), missing=missing))
    for (row, which, provider), time_us in rounded(host_us(timed, rounds=41, count=20)).items():
        rows[row].setdefault(which, {})[provider] = time_us
    for row in rows:
        print(row, flush=True)
    return rows


WALL = {"matmul_autotuned": [(n, n, n) for n in (512, 1024, 2048)], "cross_entropy": [(8192, 32000)]}


def wall(operations: dict[str, operation.Operation]) -> list[dict]:
    rows = []
    for name, shapes in WALL.items():
        variant = next(v for v in operations[name].variants if v.name in ("", "mean"))
        for shape in shapes:
            found, missing = providers(variant, shape, torch.bfloat16)
            forward, both = pairs(found)
            row = dict(operation=name, shape=list(shape), missing=missing, forward=rounded(wall_us(forward)))
            if both:
                row["forward+backward"] = rounded(wall_us(both))
            rows.append(row)
            print(row, flush=True)
            del found, forward, both
            torch.cuda.empty_cache()
    return rows


def breakdown() -> dict[str, float]:
    """A layernorm call on a 128 x 128 matrix, and its parts by themselves."""
    from academy.runtime import autograd
    from annotated_examples.classics.layernorm import contract
    from annotated_examples.fast import layernorm as fast

    x = torch.randn(128, 128, device="cuda", dtype=torch.bfloat16)
    weight, bias, y = torch.ones_like(x[0]), torch.zeros_like(x[0]), torch.empty_like(x)
    BLOCK_M, BLOCK_N, num_warps = fast.forward_tiles(128, None, None, None)
    tensors, numbers = (x, weight, bias, y, None, None), (128, 128, 128, 1e-5)
    grid, options = (128 // BLOCK_M,), dict(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps)
    kernel = fast.layernorm_forward_kernel
    compiled = kernel[grid](*tensors, *numbers, **options)
    stream, metadata = torch.cuda.current_stream().cuda_stream, compiled.packed_metadata
    runner = compiled.run
    values = [None if each is None else each.data_ptr() for each in tensors]

    def driver():
        if launch.ONE_LAUNCHER:
            runner.launch(
                grid[0], 1, 1, stream, compiled.function, False, False, metadata, None, None, None, None, None,
                runner.arg_annotations, runner.kernel_signature, (*values, *numbers, None, None, None),
            )  # fmt: skip
            return
        runner.launch(
            grid[0], 1, 1, stream, compiled.function, False, False, None, None, metadata, None, None, None,
            *values, *numbers, None, None,
        )  # fmt: skip

    known = fast.checked(x, weight, bias, 1e-5)
    plan = fast.forward_plan(x, weight, bias, 1e-5, False, None, None, None, known=known, besides=(False,))
    measured = host_us(
        {
            "call": lambda: fast.layernorm(x, weight, bias),
            "call by Triton": plainly(lambda: fast.layernorm(x, weight, bias)),
            "torch": lambda: torch.nn.functional.layer_norm(x, (128,), weight, bias),
            "checks": lambda: contract(x, weight, bias, 1e-5),
            "checks remembered": lambda: fast.checked(x, weight, bias, 1e-5),
            "gradient": lambda: autograd.needs_frame(x, weight, bias),
            "outputs": lambda: torch.empty_like(x, memory_format=torch.contiguous_format),
            "launch by Triton": lambda: kernel[grid](*tensors, *numbers, **options),
            "launch": lambda: launch.launch(kernel, grid, tensors, numbers, **options),
            "prepared launch": lambda: plan(x, weight, bias, y, None, None),
            "key": lambda: launch.look(tensors),
            "driver": driver,
            "empty": lambda: None,
        },
        rounds=25,
        count=200,
    )
    return rounded(measured)


def rounded(times: dict) -> dict:
    return {name: float(f"{value:.3g}") for name, value in times.items()}


def values(content: dict) -> dict[str, dict]:
    """`<operation>/<pass>/<provider>`, `wall/<operation>/<shape>/<pass>/<provider>`, `breakdown/<part>`."""
    found = {f"breakdown/{name}": value for name, value in content["breakdown"].items()}
    for kind in ("calls", "wall"):
        for row in content[kind]:
            name = ":".join(filter(None, (row["operation"], row.get("variant"))))
            if kind == "wall":
                name = f"wall/{name}/{'x'.join(map(str, row['shape']))}"
            for which in ("forward", "forward+backward"):
                found |= {f"{name}/{which}/{provider}": value for provider, value in row.get(which, {}).items()}
    return {name: {"value": value, "unit": "µs"} for name, value in found.items()}


def main() -> int:
    parser = experiment.parser("Measure what a call costs on the host.")
    parser.add_argument("--name", default="host_time", help="of the file with the results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("host time of a launch needs a CUDA device", file=sys.stderr)
        return 2
    Gpu()  # the context, the first allocations
    operations = {path: operation.Operation.from_file(layout.facts(ROOT, path)) for path in OPERATIONS}
    content: dict = {"breakdown": breakdown()}
    print(content["breakdown"], flush=True)
    content |= {"calls": calls(operations), "wall": wall(operations)}
    content["values"] = values(content)
    experiment.write_experiment(arguments.name, arguments.results, content, "liger-kernel", "gemlite", "quack-kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
