"""The capstone's model writes: tokens a second of the prefill and of decoding, for several numbers of texts.

`python benchmarks/capstone_generate.py` lets the model of 124 M parameters continue prompts on this machine's GPU, in
bfloat16, with heads of keys and values and with latents, and writes
`benchmarks/results/<device>/experiments/capstone_generate.json`. The weights are those of a start: what a token is
doesn't change how long it takes. Everything is launched from Python, as in the script of that page.
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


def measure(
    config: options.Config, mixer: str, texts: int, prompt: int = PROMPT, wanted: generate.Options = WANTED,
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, tuple[float, str]]:  # fmt: skip
    """What a run of so many texts gives, once the kernels are compiled."""
    torch.manual_seed(0)
    model = gpt.GPT(dataclasses.replace(config, mixer=mixer), options.OURS, dtype).to(device.DEVICE)
    prompts = list(torch.randint(config.vocabulary, (texts, prompt)).to(device.DEVICE))
    generate.texts(model, prompts[:1] * texts, dataclasses.replace(wanted, tokens=2))
    _, prefill, decode = generate.texts(model, prompts, wanted)
    cache = generate.Cache(model, [prompt + wanted.tokens] * texts, wanted.page_size)
    return {
        "prefill": (texts * prompt / prefill, "tokens/s"),
        "decode": (texts * (wanted.tokens - 1) / decode, "tokens/s"),
        "bytes": (cache.bytes() / (len(cache.free) * cache.page_size), "bytes"),  # all pages are free
    }


def main() -> int:
    arguments = experiment.parser(__doc__.split("\n")[0]).parse_args()
    if device.INTERPRET:
        print("times need a GPU, and there is none here", file=sys.stderr)
        return 2
    begin, content = time.monotonic(), experiment.kept(NAME, arguments.results, "values")
    for mixer in generate.KEPT:
        for texts in TEXTS:
            found = measure(options.GPT_124M, mixer, texts)
            content["values"] |= experiment.rounded({f"{mixer}/{texts}/{what}": v for what, v in found.items()}, 4)
            print(f"{time.monotonic() - begin:4.0f} s  {mixer}, {texts} texts: {found}", flush=True)
            experiment.write_experiment(NAME, arguments.results, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
