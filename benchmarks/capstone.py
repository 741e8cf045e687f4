"""The transformer of annotated_examples/capstone: how fast it trains, in how much memory, and what it learns.

`python benchmarks/capstone.py` trains the model of 124 M parameters on this machine's GPU: in plain PyTorch, compiled,
and with our kernels. It writes `benchmarks/results/<device>/experiments/capstone.json`, and the steps from the plain
model to ours as `ladder/capstone.json`. With `--only` a part of it is measured, and the rest of the files stays.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch

from academy.runtime import device, timing  # before anything imports triton
from academy.bench import experiment
from academy.results import store
from annotated_examples.capstone.gpt import GPT, GPT_124M, OURS, PLAIN, Operations, adamw, batches

#: Sequences in a batch, each as long as the model's context.
B = 16
#: Who trains: the operations, and whether `torch.compile` gets the model.
CONTESTANTS = {
    "eager": (PLAIN, False),
    "torch.compile": (PLAIN, True),
    "ours": (OURS, False),
    "ours, compiled": (OURS, True),
}
#: The steps from the plain model to ours: what each replaces.
LADDER = {
    "plain PyTorch": ((), "every operation as PyTorch has it"),
    "loss": (("loss",), "`linear_cross_entropy`: no logits in float32, and most of them never kept"),
    "rotary embedding": (("rotate",), "`rope`: queries and keys in one launch, each element read and written once"),
    "gated unit": (("gate",), "`swiglu_packed`: the halves are read where they lie"),
    "norms": (("norm", "add_norm"), "`add_rmsnorm`: the addition and the norm in one kernel"),
    "dropout": (("drop",), "`dropout`: no mask is stored"),
    "attention": (("attend",), "`flash_attention`"),
    "products": (("linear",), "`matmul`"),
}
LR = 6e-4
SCOPE = "operation/"


# ---------------------------------------------------------------- one contestant


class Training:
    """A model that trains on the batch in `tokens` and `labels`, a step a call."""

    def __init__(self, operations: Operations, compiled: bool, config=GPT_124M, batch: int = B):
        torch.manual_seed(0)
        self.config = config
        self.model = GPT(config, operations, torch.bfloat16).to(device.DEVICE)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.optimizer = adamw(self.model, LR)
        self.tokens, self.labels = next(batches(config, batch))
        self.number = torch.zeros((), dtype=torch.int64, device=device.DEVICE)
        self.loss = torch.zeros((), device=device.DEVICE)

    def __call__(self) -> None:
        loss, shown = self.losses()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss.copy_(shown.detach())
        self.number.add_(1)

    def losses(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What is minimized, and what the curve shows."""
        loss = self.forward(self.tokens, self.labels, self.number)
        return loss, loss

    def captured(self) -> Callable[[], None]:
        """The same step as a CUDA graph, which costs Python a single launch."""
        return timing.captured(self)

    @torch.no_grad()
    def restart(self, seed: int) -> None:
        """Back to step 0, from the weights that belong to the seed: the same for every contestant. In place, since a
        recorded step knows addresses."""
        torch.manual_seed(seed)
        fresh = GPT(self.config, self.model.operations).state_dict()
        for name, value in self.model.state_dict().items():
            value.copy_(fresh[name])
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()
        self.number.fill_(seed * 1_000_000)


def losses(training: Training, step: Callable[[], None], steps: int, seed: int) -> list[float]:
    """The loss of each step of a run from the seed's weights over the seed's batches."""
    training.restart(seed)
    found = []
    for _, (tokens, labels) in zip(range(steps), batches(training.config, len(training.tokens), seed)):
        training.tokens.copy_(tokens)
        training.labels.copy_(labels)
        step()
        found.append(training.loss.clone())
    return [round(value, 4) for value in torch.stack(found).tolist()]


def now() -> float:
    """Seconds, once the GPU is done with everything so far."""
    torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(step: Callable[[], None], clock: Callable[[], float] = now, warmup: int = 5, repeats: int = 30):
    """The time of a step, the mean of many. The first steps compile, search and allocate, and don't count."""
    for _ in range(warmup):
        step()
    begin = clock()
    for _ in range(repeats):
        step()
    return (clock() - begin) / repeats * 1e3


def peak_gib(step: Callable[[], None]) -> float:
    """The most memory that is in use during a step: weights, gradients, averages of the optimizer, and the rest."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**30


# ---------------------------------------------------------------- where the time of the plain model goes


def scoped(operations: Operations) -> Operations:
    """The same operations, each under its name in a profile."""

    def named(name, function):
        def called(*arguments):
            with torch.profiler.record_function(SCOPE + name):
                return function(*arguments)

        return called

    return Operations(**{field: named(field, function) for field, function in vars(operations).items()})


# --8<-- [start:attribute]
def by_operation(events: Iterable, time_of: Callable) -> dict[str, dict[str, float]]:
    """Operation -> "forward" and "backward" -> the time of its kernels.

    In the forward pass an event lies inside of its operation's scope. In the backward pass it lies inside of a node of
    autograd, which carries the number that its forward event had.
    """
    events = sorted(events, key=lambda event: event.time_range.start)
    origin: dict[int, str] = {}
    found: dict[str, dict[str, float]] = defaultdict(lambda: {"forward": 0.0, "backward": 0.0})
    for event in events:
        chain = list(_ancestors(event))
        node = next((each for each in chain if each.name.startswith("autograd::engine::evaluate_function")), None)
        scope = next((each.name for each in chain if each.name.startswith((SCOPE, "Optimizer.step"))), "")
        if node is None and event.sequence_nr >= 0:
            origin[event.sequence_nr] = scope
        scope = scope if node is None else origin.get(node.sequence_nr, "")
        name = "optimizer" if scope.startswith("Optimizer") else scope.removeprefix(SCOPE) or "rest"
        found[name]["forward" if node is None else "backward"] += time_of(event)
    return {name: times for name, times in found.items() if any(times.values())}


def _ancestors(event):
    while event is not None:
        yield event
        event = event.cpu_parent
    # --8<-- [end:attribute]


def kernel_ms(event) -> float:
    """Milliseconds of the kernels that this event itself launched."""
    return sum(kernel.duration for kernel in event.kernels) / 1e3


def profiled(step: Callable[[], None]):
    """The events of one step, after warming up."""
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    for _ in range(3):
        step()
    with profile(activities=activities) as record:
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return record.events()


def largest_kernels(events: Iterable, count: int = 24) -> list[list]:
    """[name, ms, launches] of the kernels that take the most time."""
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation:
            found[event.name[:90]].append(event.device_time / 1e3)
    ordered = sorted(found.items(), key=lambda entry: -sum(entry[1]))[:count]
    return [[name, round(sum(times), 3), len(times)] for name, times in ordered]


# ---------------------------------------------------------------- all of it


def measure(name: str, steps: int, seeds: Iterable[int]) -> tuple[dict, dict]:
    """Values of a contestant, name -> (number, unit); and its loss curves and largest kernels."""
    training = Training(*CONTESTANTS[name])
    values = {"memory": (peak_gib(training), "GiB"), "loop": (milliseconds(training), "ms")}
    kernels = largest_kernels(profiled(training))
    step = training.captured()
    values["step"] = (milliseconds(step), "ms")
    values["tokens"] = (training.tokens.numel() / values["step"][0], "thousand tokens/s")
    curves = [losses(training, step, steps, seed) for seed in seeds]
    if curves:
        last = [statistics.mean(curve[-20:]) for curve in curves]
        values["loss"] = (statistics.mean(last), "")
        values["loss_spread"] = (max(last) - min(last), "")
    return values, {"losses": curves, "kernels": kernels}


def ladder() -> list[dict]:
    """A step of the model as one operation after the other becomes ours."""
    rungs, chosen = [], PLAIN
    for name, (fields, what) in LADDER.items():
        chosen = dataclasses.replace(chosen, **{field: getattr(OURS, field) for field in fields})
        training = Training(chosen, False)
        peak = peak_gib(training)
        ms = milliseconds(training.captured())
        rungs.append({"name": name, "what": what, "step_ms": round(ms, 3), "peak_gib": round(peak, 2)})
        print(rungs[-1], flush=True)
        del training
        torch.cuda.empty_cache()
    return rungs


def shares() -> dict[str, tuple[float, str]]:
    """Of the plain model's step: ms of each operation, forward and backward, and its share."""
    times = by_operation(profiled(Training(scoped(PLAIN), False)), kernel_ms)
    total = sum(sum(each.values()) for each in times.values())
    values = {"profile/total": (total, "ms")}
    for name, each in times.items():
        values |= {f"profile/{name}/{which}": (ms, "ms") for which, ms in each.items()}
        values[f"profile/{name}/share"] = (100 * sum(each.values()) / total, "%")
    return values


def main() -> int:
    parser = experiment.parser(__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", choices=[*CONTESTANTS, "profile", "ladder"], help="may be repeated")
    parser.add_argument("--steps", type=int, default=150, help="of each run for the loss curves; 0: leave them alone")
    parser.add_argument("--seeds", type=int, default=3, help="how many of these runs")
    arguments = parser.parse_args()
    if device.INTERPRET:
        print("this needs a CUDA device", file=sys.stderr)
        return 2
    begin, only = time.monotonic(), arguments.only or [*CONTESTANTS, "profile", "ladder"]
    content = experiment.kept("capstone", arguments.results, "values", "failed", "losses", "kernels")
    content["batch"] = B
    for name in [name for name in CONTESTANTS if name in only]:
        torch.cuda.empty_cache()
        content["failed"].pop(name, None)
        try:
            curves = () if "compile" in name or not arguments.steps else range(arguments.seeds)
            found, more = measure(name, arguments.steps, curves)
        except Exception as error:  # a contestant that fails is said to have failed, and the others are measured
            content["failed"][name] = f"{type(error).__name__}: {error}"[:500]
            found, more = {what: (None, "") for what in ("memory", "loop", "step", "tokens")}, {}
        content["values"] |= experiment.rounded({f"{name}/{what}": value for what, value in found.items()}, 4)
        for what, value in more.items():
            content[what] |= {name: value} if value else {}
        print(f"{time.monotonic() - begin:4.0f} s", name, found, content["failed"].get(name, ""), flush=True)
        experiment.write_experiment("capstone", arguments.results, content)
    if "profile" in only:
        content["values"] |= experiment.rounded(shares(), 4)
        experiment.write_experiment("capstone", arguments.results, content)
    if "ladder" in only:
        about = experiment.about()
        about |= about.pop("versions")
        rungs = about | dict(operation="capstone", shape=[B, GPT_124M.context], dtype="bfloat16", rungs=ladder())
        store.write(experiment.written("capstone", arguments.results).parents[1] / "ladder" / "capstone.json", rungs)
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 1 if content["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
