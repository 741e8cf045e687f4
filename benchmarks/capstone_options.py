"""The forms of the capstone's model, beside the first one: what they learn, how fast, and in how much memory.

`python benchmarks/capstone_options.py` trains the model of 124 M parameters on this machine's GPU with our kernels, in
each of `FORMS`, and writes `benchmarks/results/<device>/experiments/capstone_options.json`. With `--only` a part of it
is measured, the form to compare with in any case, and the rest of the file stays.
"""

from __future__ import annotations

import dataclasses
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
from annotated_examples.capstone import options  # noqa: E402
from benchmarks.capstone import B, Training, losses, milliseconds, peak_gib  # noqa: E402

#: The form that the others are compared with, and the options of each.
BASE = "dense"
FORMS: dict[str, dict] = {
    BASE: {},
    "experts": dict(feed_forward="experts"),
    "tensor": dict(linear="tensor"),
    "row": dict(linear="row"),
    "block": dict(linear="block"),
    "latent": dict(mixer="latent"),
    "hybrid": dict(mixer="hybrid"),
    "kda": dict(mixer="kda"),
    "streams": dict(streams=4),
}


class FormTraining(Training):
    """A form that trains. Its curve is the cross entropy; `balance` sums the routers' losses."""

    def __init__(self, config: options.Config, batch: int = B):
        super().__init__(options.OURS, False, config, batch)
        self.balance = torch.zeros((), device=device.DEVICE)

    def losses(self) -> tuple[torch.Tensor, torch.Tensor]:
        first, *terms = self.model.losses(self.tokens, self.labels, self.number)
        if terms:  # of each layer: the balance, then the size of the logits
            self.balance.copy_(sum(terms[::2]).detach())
        return sum(terms, first), first

    def mean_balance(self) -> float:
        """Of the last step, the mean of the layers: 1 if every expert gets the same."""
        return self.balance.item() / (self.config.balance * self.config.layers)


def measure(config: options.Config, steps: int, seeds: int, batch: int = B) -> tuple[dict, list[list[float]]]:
    """Values of a form, name -> (number, unit); and its loss curves."""
    training = FormTraining(config, batch)
    parameters = sum(weight.numel() for weight in training.model.parameters())
    values: dict = {"parameters": (parameters / 1e6, "")}
    step: Callable[[], None] = training
    if not device.INTERPRET:
        values |= {"memory": (peak_gib(training), "GiB"), "loop": (milliseconds(training), "ms")}
        step = training.captured()
        values["step"] = (milliseconds(step), "ms")
        values["tokens"] = (training.tokens.numel() / values["step"][0], "thousand tokens/s")
    curves = [losses(training, step, steps, seed) for seed in range(seeds)]
    last = [statistics.mean(curve[-20:]) for curve in curves]
    values["loss"] = (statistics.mean(last), "")
    values["loss_spread"] = (max(last) - min(last), "")
    if config.feed_forward == "experts":
        values["balance"] = (training.mean_balance(), "")
    return values, curves


def main() -> int:
    parser = experiment.parser(__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", choices=[*FORMS], help="may be repeated")
    parser.add_argument("--steps", type=int, default=150, help="of each run for the loss curves")
    parser.add_argument("--seeds", type=int, default=3, help="how many of these runs")
    arguments = parser.parse_args()
    if device.INTERPRET:
        print("this needs a CUDA device", file=sys.stderr)
        return 2
    begin, only = time.monotonic(), {BASE, *(arguments.only or FORMS)}
    content = experiment.kept("capstone_options", arguments.results, "values", "failed", "losses")
    content["batch"] = B
    for name in [name for name in FORMS if name in only]:
        torch.cuda.empty_cache()
        content["failed"].pop(name, None)
        try:
            config = dataclasses.replace(options.GPT_124M, **FORMS[name])
            found, content["losses"][name] = measure(config, arguments.steps, arguments.seeds)
        except Exception as error:  # a form that fails is said to have failed, and the others are measured
            content["failed"][name] = f"{type(error).__name__}: {error}"[:500]
            found = {what: (None, "") for what in ("memory", "loop", "step", "tokens")}
        content["values"] |= experiment.rounded({f"{name}/{what}": value for what, value in found.items()}, 4)
        print(f"{time.monotonic() - begin:4.0f} s", name, found, content["failed"].get(name, ""), flush=True)
        experiment.write_experiment("capstone_options", arguments.results, content)
    return 1 if content["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
