"""The capstone's models with our optimizers and with PyTorch's: what they learn from the same seeds, and how fast.

`python benchmarks/capstone_optimizers.py` trains each form of the model with each optimizer, and writes
`benchmarks/results/<device>/experiments/capstone_optimizers.json`. On a GPU that is the model of 124 M parameters with
our operations, in bfloat16, with the time of a step. Without one it is the small model with PyTorch's operations, our
optimizers run in Triton's interpreter, and only the losses count. With `--only` a part of it is measured, and the rest
of the file stays; the file is written after each run, so nothing is lost where one is stopped.
"""

from __future__ import annotations

import dataclasses
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

from academy.runtime import device  # noqa: E402  before anything imports triton
from academy.bench import experiment  # noqa: E402
from annotated_examples.capstone import gpt, optimizers, options  # noqa: E402
from benchmarks import capstone  # noqa: E402

NAME = "capstone_optimizers"
#: The models, and who trains them: the optimizer's name, and whose it is. A name with THEIRS behind it is its pair's. A
#: run that is NUDGED begins with the next float above each weight, which shows what training makes of a rounding error.
FORMS: dict[str, dict] = {"attention": {}, "kda": dict(mixer="kda"), "streams": dict(streams=4)}
THEIRS, NUDGED = " of PyTorch", ", nudged"
TRAINED = {
    "adamw": ("adamw", optimizers.OURS),
    "adamw" + THEIRS: ("adamw", optimizers.PYTORCH),
    "adamw" + THEIRS + NUDGED: ("adamw", optimizers.PYTORCH),
    "muon": ("muon", optimizers.OURS),
    "muon" + THEIRS: ("muon", optimizers.PYTORCH),
    "muon_parts": ("muon_parts", optimizers.OURS),
}
#: Steps at the end whose mean is "the loss".
LAST = 20


@dataclasses.dataclass(frozen=True)
class Size:
    config: options.Config
    dtype: torch.dtype
    batch: int
    lr: float
    operations: options.Operations


#: Without dropout: in 32 numbers it would be most of what is seen.
TOY = Size(dataclasses.replace(options.SMALL, p=0.0), torch.float32, 4, 3e-3, options.PLAIN)
REAL = Size(options.GPT_124M, torch.bfloat16, capstone.B, capstone.LR, options.OURS)


def fresh(size: Size, form: str, seed: int) -> gpt.GPT:
    torch.manual_seed(seed)
    return gpt.GPT(dataclasses.replace(size.config, **FORMS[form]), size.operations, size.dtype).to(device.DEVICE)


def curve(size: Size, form: str, who: str, steps: int, seed: int) -> list[float]:
    """The loss of each step of a run from the seed's weights over the seed's batches."""
    name, whose = TRAINED[who]
    model = fresh(size, form, seed)
    with torch.no_grad():
        for weight in model.parameters() if who.endswith(NUDGED) else ():
            weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
    optimizer = functools.partial(optimizers.optimizer_of, name=name, whose=whose)
    losses = gpt.train(model, gpt.batches(model.config, size.batch, seed), steps, size.lr, optimizer)
    return [round(loss, 7) for loss in losses]


def times(size: Size, form: str, who: str) -> dict[str, tuple[float, str]]:
    """Milliseconds of a whole step and of the optimizer alone, launched from Python; on a card."""
    name, whose = TRAINED[who]
    model = fresh(size, form, 0).train()
    optimizer, (tokens, labels) = (
        optimizers.optimizer_of(model, size.lr, name, whose),
        next(gpt.batches(model.config, size.batch)),
    )

    def step() -> None:
        optimizer.zero_grad()
        model(tokens, labels).backward()
        optimizer.step()

    return {
        "loop": (capstone.milliseconds(step), "ms"),
        "optimizer": (capstone.milliseconds(optimizer.step), "ms"),
        "memory": (capstone.peak_gib(step), "GiB"),
    }


def last(curves: list[list[float]]) -> list[float]:
    return [statistics.mean(each[-LAST:]) for each in curves]


def said(losses: dict[str, list[list[float]]]) -> dict[str, tuple[float, str]]:
    """Of all curves, in the mean of the last steps: the loss, its spread over the seeds, how far the pair's is."""
    values = {}
    for name, curves in losses.items():
        values[f"{name}/loss"] = (statistics.mean(last(curves)), "")
        values[f"{name}/loss_spread"] = (max(last(curves)) - min(last(curves)), "")
        pair = name.removesuffix(NUDGED) if name.endswith(NUDGED) else name + THEIRS
        if theirs := losses.get(pair):
            each = [abs(a - b) for run, other in zip(curves, theirs) for a, b in zip(run[-LAST:], other[-LAST:])]
            values[f"{name}/apart"] = (statistics.mean(each), "")
    return values


def main() -> int:
    parser = experiment.parser(__doc__.split("\n")[0])
    runs = {f"{form}: {who}": (form, who) for form in FORMS for who in TRAINED}
    some = "a form or one run, such as 'kda: muon'; may be repeated"
    parser.add_argument("--only", action="append", choices=[*FORMS, *runs], metavar="WHICH", help=some)
    parser.add_argument("--steps", type=int, default=100, help="of each run")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs")
    arguments = parser.parse_args()
    for name in ("steps", "seeds"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(arguments, name)}")
    begin, size = time.monotonic(), TOY if device.INTERPRET else REAL
    content = experiment.kept(NAME, arguments.results, "values", "losses")
    content["batch"] = size.batch
    measured: Callable = times if not device.INTERPRET else lambda *_: {}
    for name, (form, who) in runs.items():
        if arguments.only and not {form, name} & {*arguments.only}:
            continue
        curves = [curve(size, form, who, arguments.steps, seed) for seed in range(arguments.seeds)]
        content["losses"][name] = curves
        found = {f"{name}/{what}": value for what, value in measured(size, form, who).items()}
        content["values"] |= experiment.rounded(found | said(content["losses"]), 4)
        print(f"{time.monotonic() - begin:4.0f} s  {name}: {last(curves)}", flush=True)
        experiment.write_experiment(NAME, arguments.results, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
