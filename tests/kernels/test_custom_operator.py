"""Launchers that are operators inside `torch.compile`: schema, shapes of the results, and the very same results."""

import torch

from annotated_examples.common import custom_operator
from annotated_examples.common.symmetric import symmetric_memory
from annotated_examples.distributed import all_reduce
from tests.kernels.harness import DEVICE, randn

CHECKS = ("test_schema", "test_faketensor")


def operator(module: object, name: str):
    return getattr(getattr(torch.ops, module.__name__.replace(".", "_")), name).default


def test_memory_that_ranks_share():
    x, memory = randn(300), symmetric_memory(300)
    arguments = x, list(memory.buffers), list(memory.pads), 0, memory.programs
    torch.library.opcheck(operator(all_reduce, "launch"), arguments, test_utils=CHECKS)
    assert torch.equal(operator(all_reduce, "launch")(*arguments), x)


def test_a_compiled_call_goes_through_the_operator(monkeypatch):
    """With what its schema names; sizes of tiles, which it doesn't name, are left out."""
    seen = []

    def launch(x, *, scale, BLOCK=None):
        seen.append((scale, BLOCK))
        return x * scale

    launch.__module__ = "tests_kernels_test_opaque"
    double = custom_operator.opaque("(Tensor x, *, float scale) -> Tensor", lambda x, scale: torch.empty_like(x))(
        launch
    )
    x = torch.ones(3, device=DEVICE)
    assert torch.equal(double(x, scale=2.0, BLOCK=16), 2 * x) and seen == [(2.0, 16)]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(double(x, scale=3.0, BLOCK=16), 3 * x) and seen[1:] == [(3.0, None)]
