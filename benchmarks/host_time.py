"""What a call costs on the host: the experiments of the guide "What a call costs" (docs/guides/what-a-call-costs.md).

`python benchmarks/host_time.py` runs them on this machine's GPU and writes
`benchmarks/results/<device>/experiments/host_time.json`:

- `calls`: host time of a call on tiny tensors, each operation with its peers, ours also with nothing remembered, in µs,
  without a gradient and forward with backward;
- `functions`: the same for every public function and its reference in PyTorch, with the inputs of `PUBLIC`;
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

import torch

from academy.runtime import device, launch  # before anything imports triton
from academy.bench import experiment, operation, run
from academy.book import layout
from academy.judge import public
from academy.runtime.timing import Gpu

ROOT = Path(__file__).resolve().parents[1]


# --8<-- [start:clock]
def host_us(calls: dict, rounds: int = 15, count: int = 50) -> dict:
    """How long the CPU is busy with one call of each, in µs. They take turns,
    so that a slow moment of the machine meets all of them. A loop in Python
    that takes a second has its turn three times."""
    times: dict = {name: [] for name in calls}
    counts: dict = {}
    turns: dict = {}
    for name, call in calls.items():
        call()  # compiles
        begin, done = time.perf_counter(), 0
        while done < 20 and time.perf_counter() - begin < 0.1:
            call()
            done += 1
        counts[name] = count if done == 20 else 1 + done // 5  # a loop in Python
        turns[name] = rounds if done == 20 else min(rounds, 3 + done // 2)
    for turn in range(rounds):
        for name, call in calls.items():
            if turn >= turns[name]:
                continue
            torch.cuda.synchronize()  # an empty queue: nobody waits for room
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - begin) / counts[name] * 1e6)
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
    """The same call, every launch made by Triton, and nothing replayed."""

    def by_triton(*arguments, **named):
        remembers, launch.REMEMBERS = launch.REMEMBERS, False
        try:
            return call(*arguments, **named)
        finally:
            launch.REMEMBERS = remembers

    return by_triton


def providers(variant: operation.Variant, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[dict, dict]:
    """(name -> a `run.Call`, name -> why there is none). The last of ours comes a second time, launched by Triton."""
    inputs, found, missing = variant.inputs(shape, dtype, device.DEVICE), {}, {}
    for name, factory in variant.providers().items():
        if name == "torch.compile":
            continue
        try:
            found[name] = run.Call(factory(inputs), inputs, variant)
            if name == list(variant.ours)[-1]:
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


def calls(operations: dict[str, operation.Operation], rounds: int = 21) -> list[dict]:
    """All of them take turns: a machine can be slow for seconds, and then every operation is."""
    rows: list[dict] = []
    timed: dict[tuple, Callable] = {}
    for name, each in operations.items():
        for variant in each.variants:
            if variant.name == "backward":  # forward and backward are timed together
                continue
            found, missing = providers(variant, variant.host_shape, variant.dtypes[0])
            for which, measured in zip(("forward", "forward+backward"), pairs(found)):
                timed |= {(len(rows), which, provider): call for provider, call in measured.items()}
            rows.append(dict(operation=name, variant=variant.name, shape=list(variant.host_shape), missing=missing))
            print(name, variant.name, "ready", flush=True)
    return timed_rows(rows, timed, rounds)


def timed_rows(rows: list[dict], timed: dict[tuple, Callable], rounds: int) -> list[dict]:
    """The rows with what the calls take, which are named (row, pass, provider)."""
    for (row, which, provider), time_us in rounded(host_us(timed, rounds=rounds, count=20)).items():
        rows[row].setdefault(which, {})[provider] = time_us
    for row in rows:
        print(row, flush=True)
    return rows


def functions(rounds: int = 21) -> list[dict]:
    """The first call of every public function that runs on a single card."""
    rows: list[dict] = []
    timed: dict[tuple, Callable] = {}
    for each in public.functions():
        if each.module.startswith("distributed."):
            continue
        case = next(case for case in public.calls() if str(case.public) == str(each))
        row = dict(function=str(each), call=str(case), missing={})
        for provider, function in ("ours", each.function()), ("reference", each.reference_function()):
            try:
                forward, gradients = without_and_with_gradients(case, function)
                forward()
                timed[len(rows), "forward", provider] = forward
                if each.differentiable:
                    gradients()
                    timed[len(rows), "forward+backward", provider] = gradients
            except Exception as error:
                row["missing"][provider] = f"{type(error).__name__}: {error}"[:200]
        rows.append(row)
        print(row["call"], "ready", flush=True)
    return timed_rows(rows, timed, rounds)


def without_and_with_gradients(case: public.Call, function: Callable) -> tuple[Callable, Callable]:
    """The call with its inputs, and the same with the gradients of all floating ones.

    A judge's `wrap` turns arguments and results into others: without gradients that is left out, and the function is
    called with what it got there.
    """
    wrap, inputs, given = case.said.get("wrap", case.public.wrap), case.inputs(), {}
    bare = function

    def noted(*arguments, **named):
        given.update(call=functools.partial(bare, *arguments, **named))
        return bare(*arguments, **named)

    function = wrap(bare) if wrap else bare
    if wrap:
        wrap(noted)(**inputs, **case.options)
    forward = given.get("call") or functools.partial(function, **inputs, **case.options)
    leaves = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in inputs.items()}
    wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
    upstream: list[torch.Tensor] = []

    def both():
        out = function(**leaves, **case.options)
        results = [each for each in (out if isinstance(out, tuple) else (out,)) if each.requires_grad]
        if not upstream:
            upstream.extend(torch.ones_like(each) for each in results)
        torch.autograd.grad(results, wanted, upstream, allow_unused=True)

    return forward, both


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
            "replayed": lambda: fast.layernorm_forward(x, weight, bias, 1e-5, save=False),
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
        for row in content.get(kind, []):
            name = ":".join(filter(None, (row["operation"], row.get("variant"))))
            if kind == "wall":
                name = f"wall/{name}/{'x'.join(map(str, row['shape']))}"
            for which in ("forward", "forward+backward"):
                found |= {f"{name}/{which}/{provider}": value for provider, value in row.get(which, {}).items()}
    return {name: {"value": value, "unit": "µs"} for name, value in found.items()}


def main() -> int:
    parser = experiment.parser("Measure what a call costs on the host.")
    parser.add_argument("--name", default="host_time", help="of the file with the results")
    parser.add_argument("--operation", action="append", help="one of operations/, without .py (default: all)")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("host time of a launch needs a CUDA device", file=sys.stderr)
        return 2
    Gpu()  # the context, the first allocations
    wanted = arguments.operation or [path.stem for path in sorted((ROOT / "operations").glob("[!_]*.py"))]
    operations = {path: operation.Operation.from_file(layout.facts(ROOT, path)) for path in wanted}
    operations = {name: each for name, each in operations.items() if "/distributed/" not in each.files["lesson"]}
    content: dict = {"breakdown": breakdown(), "calls": calls(operations)}
    print(content["breakdown"], flush=True)
    if not arguments.operation:
        content |= {"functions": functions(), "wall": wall(operations)}
    content["values"] = values(content)
    experiment.write_experiment(arguments.name, arguments.results, content, "liger-kernel", "gemlite", "quack-kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
