"""What the same bits in any batch cost: for the guide to numerics, "The same row in another batch".

`python benchmarks/batch_invariance.py` runs on this machine's GPU and writes
`benchmarks/results/<device>/experiments/batch_invariance.json`. For a product and for decoding, under several numbers
of rows: the time as it is and in a form in which a row has the same bits in any batch, that over the first, and how
many of the row's elements have other bits than among the most rows.

The product is tuned for each number of rows, and most of that is compiling. So `--processes` compile first, each a part
of what the search tries; the measurement finds their kernels in Triton's cache. All of it takes about a minute.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch

from academy.runtime import device  # before anything imports triton
from academy.bench import experiment
from academy.runtime.timing import Gpu

NAME = "batch_invariance"
#: Rows of a product, and sequences of a decoding step; the row that is compared is the first.
ROWS, SEQUENCES = (1, 16, 64, 512, 4096), (1, 4, 16, 64)
WIDTH, KEYS, PARTS = 8192, 16384, 32
#: Tiles that suit many rows, and no split of the sum.
TILES = dict(BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_warps=8, num_stages=3)

Call = Callable[[int], torch.Tensor]


def products(rows: int = ROWS[-1], width: int = WIDTH) -> dict[str, Call]:
    from annotated_examples.fast.matmul import matmul, matmul_forward

    torch.manual_seed(0)
    a = torch.randn(rows, width, dtype=torch.bfloat16, device=device.DEVICE)
    b = torch.randn(width, width, dtype=torch.bfloat16, device=device.DEVICE)
    return {
        "usual": lambda count: matmul(a[:count], b),
        "invariant": lambda count: matmul_forward(a[:count], b, **TILES),
    }


def decoding(sequences: int = SEQUENCES[-1], keys: int = KEYS) -> dict[str, Call]:
    from annotated_examples.fast.decode import decode_attention

    torch.manual_seed(0)
    q = torch.randn(sequences, 32, 128, dtype=torch.bfloat16, device=device.DEVICE)
    k, v = (torch.randn(sequences, keys, 8, 128, dtype=torch.bfloat16, device=device.DEVICE) for _ in "kv")
    lengths = torch.full((sequences,), keys, dtype=torch.int32, device=device.DEVICE)
    step = lambda count, **options: decode_attention(q[:count], k[:count], v[:count], lengths[:count], **options)  # noqa: E731
    return {"usual": step, "invariant": functools.partial(step, num_splits=PARTS)}


def compile_part(part: int, parts: int, rows: tuple[int, ...] = ROWS, width: int = WIDTH) -> int:
    """Compile every `parts`th configuration of the product's search, from `part` on, for all numbers of rows. How many
    calls came to their end."""
    from annotated_examples.fast import matmul

    done, tuned = 0, matmul.tuned_descriptor_kernel
    tuned.configs = tuned.configs[part::parts]
    for each in products(rows[-1], width).values() if tuned.configs else ():
        for count in rows:
            with contextlib.suppress(Exception):  # none of these configurations is for so few rows
                each(count)
                done += 1
    return done


def changed(call: Call, counts: tuple[int, ...]) -> dict[int, int]:
    """How many elements of the first row have other bits than among the most rows."""
    most = call(counts[-1])[0]
    return {count: int((call(count)[0] != most).sum()) for count in counts}


def values(times: Callable[[Callable], float]) -> dict[str, tuple[float | None, str]]:
    """`<what>/<rows>/<which>`. times: of a call, in ms."""
    found: dict[str, tuple[float | None, str]] = {}
    for what, calls, counts in (("product", products(), ROWS), ("decoding", decoding(), SEQUENCES)):
        for which, call in calls.items():
            for count, other in changed(call, counts).items():
                found[f"{what}/{count}/{which}_changed"] = other, "elements"
                found[f"{what}/{count}/{which}_ms"] = times(lambda call=call, count=count: call(count)), "ms"
        for count in counts:
            usual, invariant = (found[f"{what}/{count}/{which}_ms"][0] for which in calls)
            found[f"{what}/{count}/ratio"] = invariant / usual if usual and invariant else None, "x"
    return found


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--processes", type=int, default=8, help="that compile at once (default: 8; 0: none)")
    options = parser.parse_args()
    if device.INTERPRET:
        raise SystemExit("times need a GPU, and there is none here")
    if options.processes:
        with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(compile_part, range(options.processes), [options.processes] * options.processes))
    gpu = Gpu()
    found = values(lambda call: gpu.milliseconds(lambda _: call()).median)
    experiment.write_experiment(NAME, options.results, {"values": experiment.rounded(found)})
    for name, (value, unit) in found.items():
        print(f"{name:32} {value:10.4g} {unit}")


if __name__ == "__main__":
    main()
