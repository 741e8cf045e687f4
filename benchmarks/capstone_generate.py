"""The capstone's model writes: tokens a second of the prefill and of decoding, for several numbers of texts.

`python benchmarks/capstone_generate.py` lets the model of 124 M parameters continue prompts on this machine's GPU, in
bfloat16, with each kind of cache of that page, and writes
`benchmarks/results/<device>/experiments/capstone_generate.json`. What a token is doesn't change how long it takes, but
it decides what few bits change: so the model with heads of keys and values first learns this site's text, and its
prompts are places in it. Everything is launched from Python, as in the script of that page.
"""

from __future__ import annotations

import dataclasses
import sys
import time

import torch

from academy.runtime import device  # before anything imports triton
from academy.bench import experiment
from annotated_examples.capstone import generate, gpt, options

NAME = "capstone_generate"
TEXTS = (1, 8, 64)
PROMPT, WANTED = 512, generate.Options(tokens=128, page_size=64)
#: The text's training: sequences in a batch, and steps.
B, STEPS = 16, 400


def trained(config: options.Config, mixer: str, steps: int, dtype: torch.dtype = torch.bfloat16) -> gpt.GPT:
    torch.manual_seed(0)
    model = gpt.GPT(dataclasses.replace(config, mixer=mixer, p=0.0), options.OURS, dtype).to(device.DEVICE)
    list(gpt.training(model, gpt.batches(model.config, B), steps, lr=6e-4))
    return model


def measure(
    model: gpt.GPT, texts: int, bits: int | None, prompt: int = PROMPT, wanted: generate.Options = WANTED
) -> dict[str, tuple[float, str]]:
    """What a run of so many texts gives, once the kernels are compiled."""
    wanted = dataclasses.replace(wanted, bits=bits)
    prompts = [text[:prompt] for text in next(gpt.batches(model.config, texts, seed=1))[0]]
    generate.texts(model, prompts, wanted)  # of another length, caches have other sizes, and kernels are compiled again
    _, prefill, decode = generate.texts(model, prompts, wanted)
    cache = generate.Cache(model, [prompt + wanted.tokens] * texts, wanted.page_size, bits)
    found = {
        "prefill": (texts * prompt / prefill, "tokens/s"),
        "decode": (texts * (wanted.tokens - 1) / decode, "tokens/s"),
        "bytes": (cache.bytes() / (len(cache.free) * cache.page_size), "bytes"),  # all pages are free
    }
    return found | ({"same": (generate.agreement(model, prompts, wanted), "")} if bits else {})


def main() -> int:
    arguments = experiment.parser(__doc__.split("\n")[0]).parse_args()
    if device.INTERPRET:
        print("times need a GPU, and there is none here", file=sys.stderr)
        return 2
    begin, content = time.monotonic(), experiment.kept(NAME, arguments.results, "values")
    for mixer in generate.MIXERS:
        coded = any(bits for kind, bits in generate.KEPT if kind == mixer)
        model = trained(options.GPT_124M, mixer, STEPS if coded else 0)
        for bits in (bits for kind, bits in generate.KEPT if kind == mixer):
            name = f"{mixer}, {bits} bits" if bits else mixer
            for texts in TEXTS:
                found = measure(model, texts, bits)
                content["values"] |= experiment.rounded({f"{name}/{texts}/{what}": v for what, v in found.items()}, 4)
                print(f"{time.monotonic() - begin:4.0f} s  {name}, {texts} texts: {found}", flush=True)
                experiment.write_experiment(NAME, arguments.results, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
