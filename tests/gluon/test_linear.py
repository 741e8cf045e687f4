"""Layouts in Python are those of Triton's compiler, which is asked."""

# ruff: noqa: I001  academy.runtime.device must come before triton

import random
from dataclasses import replace

from academy.runtime import device  # noqa: F401

import pytest
import triton
from triton._C.libtriton import ir
from triton._C.libtriton.gluon_ir import GluonOpBuilder
from triton.experimental.gluon import language as gl

from academy.gluon import layouts
from academy.gluon.linear import Linear, NoLinearForm

#: Since Triton 3.9 a thread has no second register for an element of a blocked layout that is larger than the tile.
NONE_TWICE = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)


@pytest.fixture(scope="module")
def builder():
    context = ir.context()
    ir.load_dialects(context)
    yield GluonOpBuilder(context)  # which needs the context to live as long


def random_layout(draw: random.Random):
    """A layout and the shape of a tile."""
    power = lambda most: 1 << draw.randrange(most + 1)  # noqa: E731

    def blocked():
        lanes, warps = draw.randrange(6), draw.randrange(3)
        size, threads = [power(3), power(3)], [1 << lanes, 32 >> lanes]
        return gl.BlockedLayout(size, threads, [1 << warps, 4 >> warps], draw.choice([[0, 1], [1, 0]]))

    def mma(version):
        if version == 3:
            return gl.NVMMADistributedLayout([3, 0], [4, power(1)], [16, draw.choice([8, 16, 64, 128, 256]), 16])
        warps = draw.randrange(3)
        return gl.NVMMADistributedLayout([2, 0], [1 << warps, 4 >> warps], [16, 8])

    makers = [
        blocked, lambda: mma(3), lambda: mma(2), lambda: gl.DotOperandLayout(0, mma(3), power(2)),
        lambda: gl.DotOperandLayout(draw.randrange(2), mma(2), power(2)),
        lambda: gl.DotOperandLayout(draw.randrange(2), blocked(), 0),
    ]  # fmt: skip
    kind = draw.randrange(len(makers))
    layout, shape = makers[kind](), [power(8), power(8)]
    if kind < 3 and draw.random() < 0.3:
        return gl.SliceLayout(draw.randrange(2), layout), shape[:1]
    return layout, shape


def test_linear_forms_are_the_compilers(builder):
    draw = random.Random(0)
    for _ in range(400):
        layout, shape = random_layout(draw)
        theirs = builder.to_linear_layout(layout._to_ir(builder), shape)
        ours = layouts.linear(layout, tuple(shape))
        if NONE_TWICE and isinstance(layout, gl.BlockedLayout):
            ours = replace(ours, registers=tuple(basis for basis in ours.registers if any(basis)))
        assert ours == layouts.linear(theirs, tuple(shape)), (layout, shape)


def test_every_element_is_somewhere_and_the_warps_are_counted():
    draw = random.Random(1)
    for _ in range(20):
        layout, shape = random_layout(draw)
        if max(shape) > 32:
            continue
        form = layouts.linear(layout, tuple(shape))
        assert layouts.warps_of(layout) == 1 << len(form.warps)
        assert form.holders((0,) * len(shape))[0] == (0, 0)
        assert all(form.holders(tuple(size - 1 for size in shape)))


def test_reshape_permute_split_and_join():
    form = layouts.linear(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]), (64, 64))
    halves = form.reshaped((64, 2, 32)).permuted((0, 2, 1)).split()
    assert halves == layouts.linear(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]), (64, 32))
    assert halves.joined().split() == halves
    assert form.reshaped((4096,)).reshaped((64, 64)) == form
    with pytest.raises(NoLinearForm, match="one thread"):
        layouts.linear(gl.BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0]), (64, 2)).split()


def test_same_threads_whatever_the_order_of_registers():
    one = Linear((2, 2), ((0, 1), (1, 0)), (), ())
    other = Linear((2, 2), ((1, 0), (0, 1)), (), ())
    assert one != other and one.same_threads(other) and not one.difference(other)
