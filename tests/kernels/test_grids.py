"""The grid of every launch with 70,000 of everything. Along a grid's second and third axis CUDA has 65,535 programs.

Nothing is computed: the grids are recorded. A function fits, or names the argument that doesn't before it launches.
"""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
import torch
from triton.runtime import interpreter

from academy.runtime import checks
from academy.runtime.device import INTERPRET
from academy.judge.public import Public, functions

MANY = 70_000
pytestmark = pytest.mark.skipif(not INTERPRET, reason="replaces the interpreter's launch")


@pytest.fixture
def grids(monkeypatch):
    """(kernel, grid) of each launch."""
    seen = []
    for owner, old, new in ((torch, "empty", "zeros"), (torch, "empty_like", "zeros_like")):
        monkeypatch.setattr(owner, old, getattr(owner, new))
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)

    def record(self, *arguments, **named):
        given = named | dict(zip(self.arg_names, arguments))
        seen.append((self.fn.__name__, self.grid(given) if callable(self.grid) else self.grid))

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", record)
    return seen


def too_large(grids: list) -> list:
    return [(name, grid) for name, grid in grids if max((*grid, 1, 1)[1:]) > checks.MOST_PROGRAMS or grid[0] >= 2**31]


def run(function, inputs: dict) -> None:
    """Forward and backward, or an error that names an argument."""
    leaves = [x.requires_grad_() for x in inputs.values() if isinstance(x, torch.Tensor) and x.is_floating_point()]
    try:
        try:
            out = function(**inputs)
        except ValueError as error:
            if "has no backward pass" not in str(error):
                raise
            leaves = [x.requires_grad_(False) for x in leaves]
            out = function(**inputs)
        out = out if isinstance(out, torch.Tensor) else out[0]
        if out.requires_grad:
            out.float().sum().backward()
    except ValueError as error:
        names = {*inputs, *inspect.signature(function).parameters}
        assert re.match("|".join(names), str(error)) and re.search(r"\d", str(error)), error


CALLS = [(public, dim) for public in functions() for dim in public.subject().dims]


@pytest.mark.nightly
@pytest.mark.parametrize(("public", "dim"), CALLS, ids=str)
def test_many_of_a_dim(grids, public: Public, dim: str):
    subject = public.subject()
    sizes = {name: min(subject.sizes.get(name, (3,))) for name in subject.dims}
    sizes[dim] = max(subject.sizes.get(dim, (0,))) if dim in ("width", "streams") else -(-MANY // 128) * 128
    for options in subject.combinations():
        run(subject.function, subject.make(sizes, getattr(torch, subject.dtypes[0]), 0, scale=0.0) | options)
    assert not too_large(grids)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


ENDS = torch.tensor([2, 4], dtype=torch.int32)
WIDE = 64 * MANY
#: What those have as a number: heads, experts; and so many columns that a program takes 64 of them.
OTHERS = {
    "attention.causal_attention.causal_attention": lambda: dict(zip("qkv", [zeros(1, MANY, 1, 16)] * 3)),
    "attention.flash_attention.flash_attention": lambda: dict(zip("qkv", [zeros(1, MANY, 1, 16)] * 3)),
    "fast.flash_attention.flash_attention": lambda: dict(zip("qkv", [zeros(1, MANY, 1, 16)] * 3)),
    "attention.decode.decode_attention": lambda: dict(
        q=zeros(1, MANY, 16), k_cache=zeros(1, 1, MANY, 16), v_cache=zeros(1, 1, MANY, 16), lengths=ENDS[:1] * 0 + 1
    ),
    "recurrences.linear_attention.linear_attention": lambda: dict(zip("qkv", [zeros(1, 1, MANY, 16)] * 3)),
    "recurrences.gated_delta_rule.gated_delta_rule": lambda: dict(
        **dict(zip("qkv", [zeros(1, 1, MANY, 16)] * 3)), g=None, beta=zeros(1, 1, MANY)
    ),
    "recurrences.kda.kda": lambda: dict(
        **dict(zip("qkv", [zeros(1, 1, MANY, 16)] * 3)), g=None, beta=zeros(1, 1, MANY)
    ),
    "classics.rope.rope": lambda: dict(
        q=zeros(1, MANY, 1, 4), k=zeros(1, MANY, 1, 4), cos=zeros(1, 2), sin=zeros(1, 2)
    ),
    "tutorials.matmul_blocked.matmul": lambda: dict(x=zeros(1, 1), y=zeros(1, WIDE)),
    "classics.matmul.matmul": lambda: dict(a=zeros(1, 1), b=zeros(1, 4 * WIDE), activation="relu"),
    "ladders.matmul.rung_1_one_element.matmul_forward": lambda: dict(a=zeros(1, 1), b=zeros(1, MANY)),
    "moe.grouped_matmul.grouped_matmul": lambda: dict(a=zeros(4, 1), b=zeros(2, 1, WIDE), offsets=ENDS),
    "fast.grouped_matmul.grouped_matmul": lambda: dict(a=zeros(4, 1), b=zeros(2, 1, WIDE), offsets=ENDS),
    "moe.moe_mlp.moe_mlp": lambda: dict(
        x=zeros(1, 1), experts=ENDS[:1, None] * 0, weights=zeros(1, 1), gate_up=zeros(1, 2 * WIDE, 1),
        down=zeros(1, 1, WIDE),
    ),
    "fast.mx_matmul.decoded": lambda: dict(
        codes=torch.zeros(4 * MANY, 16, dtype=torch.uint8), scale=torch.zeros(4 * MANY, 1, dtype=torch.uint8),
        dtype=torch.float32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_many_heads_and_columns(grids, name):
    module, _, function = name.rpartition(".")
    run(getattr(importlib.import_module(f"annotated_examples.{module}"), function), OTHERS[name]())
    assert not too_large(grids)


def test_the_error_names_the_argument_and_the_limit():
    with pytest.raises(ValueError, match=r"b must have at most 4,194,240 columns, got 4,194,241: a launch has 65,535"):
        checks.programs("b", "columns", 4_194_241, 64)
    checks.programs("b", "columns", 4_194_240, 64)
