"""The chapter "Train with a reward" at real size: the capstone's model of 124 M parameters, its text and its kernels.

`python benchmarks/reward.py` runs the chapter on this machine's GPU and then calls its functions at that size. The
model learns this site's text for a while. Then it writes on from places in it, and gets a reward for spaces: short
words. The price of leaving keeps it a writer of such text. Results go to
`benchmarks/results/<device>/experiments/reward.json`: rewards, the divergence from the reference, how long a rollout
and its updates take, and the drift, how far the log-probabilities that the sampler has noted lie from those that the
trainer computes for the same weights.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib.util
import io
import statistics
import time
from types import SimpleNamespace

import torch

from academy.runtime import device  # before anything imports triton
from academy.bench import experiment
from academy.book.layout import ROOT
from annotated_examples.capstone.gpt import GPT, GPT_124M, OURS, Config, Operations, batches, train
from annotated_examples.classics.token_logprobs import token_logprobs
from annotated_examples.common.products import Product
from annotated_examples.fast.matmul import DESCRIPTOR_CONFIGURATIONS, matmul_forward, options_of
from annotated_examples.optimizers.adamw import AdamW

NAME = "reward"
#: The text's training: sequences in a batch, and steps.
B, TEXT_STEPS = 16, 400
#: Of a step with rewards: prompts, answers to each, tokens of a prompt and of an answer, updates, and the price.
PROMPTS, GROUP, PROMPT, LENGTH, UPDATES, BETA = 32, 8, 32, 64, 2, 0.05
STEPS, LR = 40, 2e-5
#: The capstone's product in the tiles that suit most shapes. While an answer is written, its prompt and it have 64
#: lengths. To search for tiles at each of them, in each of four products, would take several minutes.
multiply = functools.partial(matmul_forward, **options_of(DESCRIPTOR_CONFIGURATIONS[0]))


def gradients(dy, x, transposed, saved, activation, *, needs):
    dx = multiply(dy, transposed.T) if needs[0] else None
    return dx, multiply(dy.T, x).T if needs[1] else None


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return Product.apply(x, weight.to(x.dtype).T, None, multiply, gradients)


CHOSEN = dataclasses.replace(OURS, linear=linear)


def chapter() -> SimpleNamespace:
    """What the chapter's cells define."""
    spec = importlib.util.spec_from_file_location("chapter", ROOT / "docs/learn/reward.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    return SimpleNamespace(**vars(module))


def share_of_spaces(answers: torch.Tensor, token_bytes: int) -> torch.Tensor:
    """(B, length) tokens -> of each answer, the share of its tokens that have a space in them."""
    found = torch.zeros_like(answers, dtype=torch.bool)
    for place in range(token_bytes):
        found |= answers // 256**place % 256 == ord(" ")
    return found.float().mean(1)


def values(
    learned: SimpleNamespace, config: Config = GPT_124M, operations: Operations = CHOSEN, dtype=torch.bfloat16,
    text_steps: int = TEXT_STEPS, steps: int = STEPS, prompts: int = PROMPTS, group: int = GROUP, prompt: int = PROMPT,
    length: int = LENGTH,
) -> dict[str, tuple[float | None, str]]:  # fmt: skip
    """Name -> (value, unit). `learned`: the chapter's names."""
    config = dataclasses.replace(config, p=0.0)
    torch.manual_seed(0)
    model = GPT(config, operations, dtype).to(device.DEVICE)
    losses = train(model, batches(config, B), text_steps, lr=6e-4)
    how = dict(operations=dataclasses.replace(operations, loss=learned.EXACT.loss), dtype=dtype)
    reference, optimizer = copy.deepcopy(model), AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0)
    kept: dict[str, list[float]] = {name: [] for name in ("reward", "left", "drift", "largest", "rollout", "updates")}
    for step, (text, _) in zip(range(steps), batches(config, prompts, seed=1)):
        began = time.perf_counter()
        given = text[:, :prompt].repeat_interleave(group, 0)
        tokens, seen = learned.rollout(model, given, length, seed=step, **how)
        rewards = share_of_spaces(tokens[:, prompt:], config.token_bytes)
        kept["reward"].append(rewards.mean().item())
        written = time.perf_counter()
        with torch.no_grad():
            now, before = (
                token_logprobs(learned.logits_of(each, tokens, **how)[:, prompt - 1 : -1], tokens[:, prompt:])[0]
                for each in (model, reference)
            )
        d = (now - seen).double()
        kept["drift"].append((d.expm1() - d).mean().item())
        kept["largest"].append(d.abs().max().item())
        d = (before - now).double()
        kept["left"].append((d.expm1() - d).mean().item())
        compared = time.perf_counter()
        for _ in range(UPDATES):
            advantages = learned.advantages_of(rewards, group)
            learned.update(model, optimizer, tokens, seen, advantages, reference=reference, beta=BETA, **how)
        kept["rollout"].append(written - began)
        kept["updates"].append(time.perf_counter() - compared)
    end = max(steps // 8, 1)
    mean = {name: (statistics.mean(found[:end]), statistics.mean(found[-end:])) for name, found in kept.items()}
    return {
        "text_loss": (statistics.mean(losses[-20:]), ""),
        "first": (mean["reward"][0], ""),
        "last": (mean["reward"][1], ""),
        "left": (mean["left"][1], "nats"),
        "drift": (statistics.mean(kept["drift"]), "nats"),
        "largest": (max(kept["largest"]), "nats"),
        "rollout": (statistics.median(kept["rollout"]), "s"),
        "updates": (statistics.median(kept["updates"]), "s"),
    }


def main() -> None:
    options = experiment.parser(__doc__.split("\n\n")[0]).parse_args()
    if device.INTERPRET:
        raise SystemExit("this size needs a GPU, and there is none here: python docs/learn/reward.py is the small one")
    found = values(chapter())
    experiment.write_experiment(NAME, options.results, {"values": experiment.rounded(found)})
    for name, (value, unit) in found.items():
        print(f"{name:10} {value:10.4g} {unit}")


if __name__ == "__main__":
    main()
