"""The chapter "Fewer bytes per token" on a card: one new token's attention in a layer, over each kind of cache.

`python benchmarks/bytes_per_token.py` writes `benchmarks/results/<device>/experiments/bytes_per_token.json`: for one
text and for 64, of 32,768 and of 131,072 tokens, the time of a call, the bytes of the cache that it reads, and the time
of a copy that moves as many over it. A layer has 64 heads of queries, as those of Llama 3.1 with 70 billion parameters,
GLM-5 and Kimi K2 have. `academy bench` measures the same functions, each at sizes of its own.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from academy.runtime import device  # before anything imports triton
from academy.bench import experiment
from academy.runtime.timing import LARGE_COPY_BYTES, Gpu
from annotated_examples.attention.indexer import indexer_logits_paged
from annotated_examples.attention.mla_decode import mla_decode
from annotated_examples.attention.sparse_decode import sparse_decode, to_slots
from annotated_examples.fast.decode import decode_attention
from annotated_examples.fast.quantized_decode import decode_quantized
from annotated_examples.fast.select_keys import select_keys

NAME = "bytes_per_token"
SHAPES = [(texts, tokens) for texts in (1, 64) for tokens in (32768, 131072)]
#: Of queries; of heads of a cache, which groups share, and their width; of latents; of the indexer; selected keys.
SIZES = dict(heads=64, shared=8, width=128, rank=512, rotated=64, scorers=64, scorer=128, selected=2048)

Way = tuple[str, Callable[[], object], int]


def of_heads(texts: int, tokens: int, *, heads, shared, width, **_) -> Iterator[Way]:
    shape, there = (texts, tokens, shared, width), device.DEVICE
    q = torch.randn(texts, heads, width, dtype=torch.bfloat16, device=there)
    lengths = torch.full((texts,), tokens, dtype=torch.int32, device=there)
    k, v = (torch.randn(shape, dtype=torch.bfloat16, device=there) for _ in "kv")
    yield "heads", functools.partial(decode_attention, q, k, v, lengths), k.nbytes + v.nbytes
    del k, v
    for bits, kind, low, high in ((8, torch.int8, -127, 128), (4, torch.uint8, 0, 256)):
        codes = [torch.randint(low, high, (*shape[:3], width * bits // 8), dtype=kind, device=there) for _ in "kv"]
        steps = [torch.rand(*shape[:3], 8 // bits, device=there) / 50 for _ in "kv"]
        moved = sum(x.nbytes for x in codes + steps)
        yield f"heads, {bits} bits", functools.partial(decode_quantized, q, *codes, *steps, lengths), moved
        del codes, steps


def of_latents(texts: int, tokens: int, *, heads, rank, rotated, scorers, scorer, selected, **_) -> Iterator[Way]:
    there, how = device.DEVICE, dict(rank=rank, scale=192**-0.5)
    q = torch.randn(texts, heads, rank + rotated, dtype=torch.bfloat16, device=there)
    lengths = torch.full((texts,), tokens, dtype=torch.int32, device=there)
    cache = torch.randn(texts, tokens, rank + rotated, dtype=torch.bfloat16, device=there)
    yield "latents", functools.partial(mla_decode, q, cache, lengths, **how), cache.nbytes
    # Each text is a page of the pool.
    table = torch.arange(texts, dtype=torch.int32, device=there)[:, None]
    queries, keys = (
        torch.randn(*shape, device=there).to(torch.float8_e4m3fn)
        for shape in ((texts, 1, scorers, scorer), (texts, tokens, scorer))
    )
    weights, steps = torch.randn(texts, 1, scorers, device=there), torch.rand(texts, tokens, device=there)
    score = functools.partial(indexer_logits_paged, queries, keys, weights, lengths, table, steps)
    logits = score()[:, 0]
    select = functools.partial(select_keys, logits, selected)
    slots = to_slots(select(), table, tokens)
    attend = functools.partial(sparse_decode, q, cache, slots, **how)

    def all_three():
        chosen = select_keys(score()[:, 0], selected)
        return sparse_decode(q, cache, to_slots(chosen, table, tokens), **how)

    scored = keys.nbytes + steps.nbytes + logits.nbytes
    rows = texts * min(selected, tokens) * (rank + rotated) * cache.element_size()
    yield "selected", all_three, scored + 2 * logits.nbytes + rows
    yield "selected: scores", score, scored
    yield "selected: choice", select, 2 * logits.nbytes
    yield "selected: attention", attend, rows


def values(
    texts: int, tokens: int, times: Callable[[Callable], float], copies: Callable[[int], float], **sizes
) -> dict[str, tuple[float | None, str]]:
    """`<way>/<texts>/<tokens>/<what>`. times: of a call, copies: of so many bytes moved, both in ms."""
    found: dict[str, tuple[float | None, str]] = {}
    for ways in (of_heads, of_latents):
        try:
            for way, call, moved in ways(texts, tokens, **SIZES | sizes):
                ms, name = times(call), f"{way}/{texts}/{tokens}"
                found |= {f"{name}/ms": (ms, "ms"), f"{name}/bytes": (moved, "bytes")}
                found[f"{name}/share"] = copies(moved) / ms, ""
        except torch.cuda.OutOfMemoryError:
            print(f"{ways.__name__}: no room for {texts} texts of {tokens} tokens", flush=True)
    return found


def run(gpu: Gpu, results: Path, seconds: float) -> None:
    """Measures shape by shape; none is begun once these seconds have passed."""
    begin, content = time.monotonic(), experiment.kept(NAME, results, "values")

    def copies(moved: int) -> float:
        """A copy needs room of its own, so the largest ones are reckoned from a large one."""
        return gpu.copy_milliseconds(moved) if moved < LARGE_COPY_BYTES else moved / gpu.copy_rate() / 1e9

    for texts, tokens in SHAPES:
        if time.monotonic() - begin > seconds:
            print(f"{texts} texts of {tokens} tokens: left out, after {seconds:.0f} s", flush=True)
            continue
        found = values(texts, tokens, lambda call: gpu.graph_milliseconds(call).median, copies)
        content["values"] |= experiment.rounded(found)
        experiment.write_experiment(NAME, results, content)
        for name, (value, unit) in found.items():
            print(f"{time.monotonic() - begin:4.0f} s  {name:40} {value:12.4g} {unit}", flush=True)


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=240, help="no shape is begun after that (default: 240)")
    options = parser.parse_args()
    if device.INTERPRET:
        raise SystemExit("this size needs a GPU, and there is none here: python docs/learn/fewer_bytes.py counts")
    run(Gpu(), options.results, options.seconds)


if __name__ == "__main__":
    main()
