"""What the guide to Hugging Face models quotes: a training step of a Llama of about 1 B parameters.

`python benchmarks/huggingface.py` trains the same random model for some steps as it is, patched by liger-kernel (if it
is installed) and patched by us, each in a process of its own, and writes
`benchmarks/results/<device>/experiments/huggingface.json`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import torch

#: The sizes of Llama 3.2 1B.
CONFIG = dict(
    vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
    num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, max_position_embeddings=8192,
)  # fmt: skip
BATCH, TOKENS = 4, 2048
WARM_UP, STEPS = 5, 10


def patched_by_liger(model):
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    apply_liger_kernel_to_llama(model=model)


def patched_by_us(model):
    from annotated_examples.integrations import huggingface

    huggingface.patch(model)


CONTESTANTS = {"unpatched": lambda model: None, "liger": patched_by_liger, "ours": patched_by_us}


def measure(contestant: str) -> dict:
    """Time of a step, peak memory, and the losses, which tell whether all compute the same."""
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**CONFIG)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    CONTESTANTS[contestant](model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, CONFIG["vocab_size"], (BATCH, TOKENS), device="cuda")
    losses, times = [], []
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:  # compiling, tuning and the optimizer's state are over
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        losses.append(loss.detach())
        times.append((begin, end))
    torch.cuda.synchronize()
    return {
        "step": {
            "value": float(f"{statistics.median(a.elapsed_time(b) for a, b in times[WARM_UP:]):.4g}"),
            "unit": "ms",
        },
        "memory": {"value": round(torch.cuda.max_memory_allocated() / 2**30, 2), "unit": "GiB"},
        "losses": [round(loss.item(), 4) for loss in losses],
    }


def main() -> int:
    from academy.bench import experiment

    parser = experiment.parser("Training steps of a Llama, unpatched and patched.")
    parser.add_argument("--only", choices=CONTESTANTS, help="one contestant, in this process; prints JSON")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("training steps are measured on a CUDA device", file=sys.stderr)
        return 2
    if arguments.only:
        print(json.dumps(measure(arguments.only)))
        return 0
    values, losses, problems = {}, {}, []
    for contestant in CONTESTANTS:
        command = [sys.executable, __file__, "--only", contestant]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            problems.append(f"{contestant}: {done.stderr.strip()[-600:]}")
        else:
            found = json.loads(done.stdout.splitlines()[-1])
            losses[contestant] = found.pop("losses")
            values |= {f"{contestant}/{name}": value for name, value in found.items()}
    content = {
        "config": CONFIG | {"batch": BATCH, "tokens": TOKENS},
        "problems": problems,
        "values": values,
        "losses": losses,
    }
    experiment.write_experiment("huggingface", arguments.results, content, "transformers")
    print(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
