"""How many digits tensor cores keep of a long sum of eight-bit products: for the guide to low precision.

`python benchmarks/accumulation.py` runs it on this machine's GPU and writes
`benchmarks/results/<device>/experiments/accumulation.json`: the relative RMS error of products with a float32 result,
for sums of several lengths, of numbers that cancel and of positive ones. It takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from academy.runtime import device
from academy.bench import experiment
from academy.judge import accuracy

LENGTHS = (128, 1024, 8192, 65536)
DATA = {"normal": lambda x: x, "positive": torch.abs}
SIDE = 256


def with_ours(recipe: str, use_fast_accum: bool) -> Callable:
    from annotated_examples.fp8.scaled_matmul import scaled_matmul

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        blocks = a.shape[1] // 128
        shapes = ((), ()) if recipe == "tensor" else ((SIDE, blocks), (blocks, SIDE // 128))
        scales = [torch.ones(shape, device=a.device) for shape in shapes]
        options = dict(recipe=recipe, out_dtype=torch.float32, use_fast_accum=use_fast_accum)
        return scaled_matmul(a, b, *scales, **options)

    return product


def with_torch(use_fast_accum: bool) -> Callable:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        one = torch.ones((), device=a.device)
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.float32, use_fast_accum=use_fast_accum)

    return product


PRODUCTS = {
    "fast": with_ours("tensor", True),
    "promoted": with_ours("tensor", False),
    "block": with_ours("block", False),
    "torch_fast": with_torch(True),
    "torch_exact": with_torch(False),
}


def errors() -> dict[str, tuple[float | None, str]]:
    """`<product>/<length>/<data>` -> the relative RMS error in per cent. None where PyTorch refuses."""
    found: dict[str, tuple[float | None, str]] = {}
    for K in LENGTHS:
        for kind, change in DATA.items():
            torch.manual_seed(0)
            a = change(torch.randn(SIDE, K, device=device.DEVICE)).to(torch.float8_e4m3fn)
            b = change(torch.randn(SIDE, K, device=device.DEVICE)).to(torch.float8_e4m3fn)
            exact = a.double() @ b.double().t()
            for name, product in PRODUCTS.items():
                try:
                    error = 100 * accuracy.errors(product(a, b.t()), exact).rms
                except RuntimeError:
                    if not name.startswith("torch"):
                        raise
                    error = None
                found[f"{name}/{K}/{kind}"] = (error, "%")
    return found


if __name__ == "__main__":
    arguments = experiment.parser(__doc__.splitlines()[0]).parse_args()
    values = experiment.rounded(errors(), 2)
    for name, value in values.items():
        print(f"{name:28} {value['value']} {value['unit']}")
    experiment.write_experiment("accumulation", arguments.results, dict(values=values))
