r"""
# AdamW, fast: whole vectors, and nothing looked over twice

[The lesson](../optimizers/adamw.py) moves each byte once, but few at a time. And with many small tensors it isn't the
card that one waits for, but the host. This file is about both.

**What it costs.** 28 bytes for a float32 parameter, as in the lesson. Memory is fast if a thread moves 16 bytes at a
time. The lesson's threads move 4, because two things aren't known when its kernel is compiled: whether an address from
the table is divisible by 16, and where the mask ends. On an H200 a step of 124 million parameters in 148 tensors takes
[[bench: adamw/148x837000/forward/ms]], [[bench: adamw/148x837000/forward/share]] of the speed of a copy; the lesson
takes [[bench: adamw/148x837000/forward/lesson.ms]] and PyTorch's fused step
[[bench: adamw/148x837000/forward/eager.ms]]. With 512 tensors of 2048 numbers it is
[[bench: adamw/512x2048/forward/ms]], [[bench: adamw/512x2048/forward/lesson.ms]] and
[[bench: adamw/512x2048/forward/eager.ms]].

[[figure: optimizers/vectors]]

**Contract.** That of the lesson, with the same bits whatever the alignment.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.launch import launch

import operator
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from annotated_examples.optimizers import adamw as lesson
from annotated_examples.optimizers.adamw import (
    adamw_reference,
    chunks_of,
    contract,
    contract_of_numbers,
    on_device,
    one_minus_power,
    one_step_,
    opaque_step,
    part_of_the_way,
    stream_of,
)


# ## One block
#
# As in the lesson. What belongs to the tensor as a whole was computed before: `rate` is $\eta / c_1$, and `root` is
# $\sqrt{c_2}$. A whole block has no mask, which is `None` then: a condition on it is decided when the kernel is
# compiled.
@triton.jit
def load(ptr, offs, mask):
    if mask is None:
        x = tl.load(ptr + offs)
    else:
        x = tl.load(ptr + offs, mask=mask, other=0.0)
    return x.to(tl.float32)


@triton.jit
def update_block(p_ptr, g_ptr, m_ptr, v_ptr, offs, mask, kept, rate, root, new1, beta2, new2, eps):
    p, g = load(p_ptr, offs, mask), load(g_ptr, offs, mask)
    m, v = load(m_ptr, offs, mask), load(v_ptr, offs, mask)
    # [[tag: AW-m]], [[tag: AW-v]], [[tag: AW-p]].
    m = part_of_the_way(m, g, new1)
    v = beta2 * v + new2 * (g * g)
    updated = kept * p - rate * m / (tl.sqrt(v) / root + eps)
    tl.store(p_ptr + offs, updated, mask=mask)
    tl.store(m_ptr + offs, m, mask=mask)
    tl.store(v_ptr + offs, v, mask=mask)


# ## The kernel
#
# `tl.multiple_of` is a promise to the compiler, and nobody checks it. With `ALIGNED` the host has looked at all
# addresses. It is made of a pointer, in bytes: of the integer in the table the compiler would forget it. That a chunk
# begins at a multiple of its length is so by construction.
@triton.jit
def adamw_kernel(
    table_ptr,  # (5, tensors) int64: addresses of p, m, v and the step; lengths
    grads_ptr,  # (tensors,) int64: addresses of the gradients
    chunks_ptr,  # (programs, 2) int64: which tensor, and its first element
    tensors,
    lr,  # a number, or a pointer to one
    new1,  # 1 − β₁
    beta2,
    new2,  # 1 − β₂
    eps,
    decay,
    DTYPE: tl.constexpr,  # of the parameters and their gradients
    LR_IN_MEMORY: tl.constexpr,
    ALIGNED: tl.constexpr,  # whether all addresses are divisible by 16
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    which = tl.load(chunks_ptr + 2 * pid)
    first = tl.multiple_of(tl.load(chunks_ptr + 2 * pid + 1), CHUNK)
    p_ptr, g_ptr = tl.load(table_ptr + which), tl.load(grads_ptr + which)
    m_ptr, v_ptr = tl.load(table_ptr + tensors + which), tl.load(table_ptr + 2 * tensors + which)
    p_ptr, g_ptr = p_ptr.to(tl.pointer_type(DTYPE)), g_ptr.to(tl.pointer_type(DTYPE))
    m_ptr, v_ptr = m_ptr.to(tl.pointer_type(tl.float32)), v_ptr.to(tl.pointer_type(tl.float32))
    if ALIGNED:
        p_ptr, g_ptr = tl.multiple_of(p_ptr, 16), tl.multiple_of(g_ptr, 16)
        m_ptr, v_ptr = tl.multiple_of(m_ptr, 16), tl.multiple_of(v_ptr, 16)
    step_ptr = tl.load(table_ptr + 3 * tensors + which).to(tl.pointer_type(tl.float32))
    end = tl.minimum(first + CHUNK, tl.load(table_ptr + 4 * tensors + which))
    if LR_IN_MEMORY:
        lr = tl.load(lr)
    step = tl.load(step_ptr).to(tl.int64)
    # In the example's first step $c_1$ is 0.1, and so is the learning rate: `pid=0: rate = 1`.
    rate = lr / one_minus_power(new1, step)
    root = tl.sqrt(one_minus_power(new2, step))
    kept = 1.0 - lr * decay

    # In the example the second chunk of the first tensor has one whole block and a rest: `pid=1: whole = 6`, and
    # `pid=1: end = 7`.
    whole = first + (end - first) // BLOCK * BLOCK
    for start in tl.range(first, whole, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        update_block(p_ptr, g_ptr, m_ptr, v_ptr, offs, None, kept, rate, root, new1, beta2, new2, eps)
    if whole < end:
        offs = whole + tl.arange(0, BLOCK)
        update_block(p_ptr, g_ptr, m_ptr, v_ptr, offs, offs < end, kept, rate, root, new1, beta2, new2, eps)


# ## The launchers
#
# In float32 a thread has four numbers, which are 16 bytes, in bfloat16 eight.
def tiles(dtype):
    """(CHUNK, BLOCK, num_warps)"""
    return (8192, 1024, 8) if dtype is torch.float32 else (8192, 2048, 8)


def launch_step(table, grads, chunks, aligned, dtype, lr, options, CHUNK, BLOCK, num_warps):
    """lr: a number or a tensor. options: both betas, eps and weight_decay."""
    beta1, beta2, eps, decay = options
    # A learning rate changes with every step. Among the tensors it is no part of what a launch is remembered by.
    numbers = len(grads), lr, 1 - beta1, beta2, 1 - beta2, eps, decay
    launch(
        adamw_kernel, (len(chunks),), (table, grads, chunks, *numbers),
        DTYPE=tl.float32 if dtype is torch.float32 else tl.bfloat16, LR_IN_MEMORY=isinstance(lr, torch.Tensor),
        ALIGNED=aligned, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=num_warps,
    )  # fmt: skip


def table_of(params, exp_avgs, exp_avg_sqs, steps):
    """The numbers of `table`, in a list."""
    named = params, exp_avgs, exp_avg_sqs, steps
    return [*(x.data_ptr() for some in named for x in some), *(x.numel() for x in params)]


def aligned(places):
    """Whether the kernel may promise it."""
    return not any([place % 16 for place in places])


@opaque_step
def adamw_launch_(
    params, grads, exp_avgs, exp_avg_sqs, steps, lr_tensor, lr, beta1, beta2, eps, weight_decay,
    *, CHUNK=None, BLOCK=None,
):  # fmt: skip
    """As the lesson's."""
    checks.power_of_two(CHUNK=CHUNK, BLOCK=BLOCK)
    best = tiles(params[0].dtype)
    CHUNK, BLOCK = CHUNK or best[0], BLOCK or best[1]
    chunks = chunks_of(tuple([p.numel() for p in params]), CHUNK, params[0].device, stream_of(params[0]))
    if len(chunks):
        numbers, places = table_of(params, exp_avgs, exp_avg_sqs, steps), [g.data_ptr() for g in grads]
        launch_step(
            on_device(numbers, params[0].device), on_device(places, params[0].device), chunks,
            aligned(numbers[: 3 * len(params)] + places), params[0].dtype, lr if lr_tensor is None else lr_tensor,
            (beta1, beta2, eps, weight_decay), CHUNK, BLOCK, best[2],
        )  # fmt: skip


def adamw_(params, grads, exp_avgs, exp_avg_sqs, steps, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    """The same as `annotated_examples.optimizers.adamw.adamw_`, but faster.

    Args: as `adamw_` of the lesson.

    Returns:
        None.

    Raises:
        TypeError, ValueError: as the lesson.

    Source: as the lesson.
    """
    contract(params, grads, exp_avgs, exp_avg_sqs, steps, lr, betas, eps, weight_decay)
    if len(params):
        one_step_(params, grads, exp_avgs, exp_avg_sqs, steps, lr, *betas, eps, weight_decay, launcher=adamw_launch_)


# ## The optimizer
#
# In a step of training, weights, averages and counts are the same tensors as in the step before, at the same places. So
# what was found out about them is remembered, with a table that is on the card already. Looked at are: whether they
# *are* the same, lie where they lay, and aren't turned there, as by `p.data = p.data.T`; and the gradients, which are
# new tensors each time. PyTorch has compared shape and dtype of a gradient with those of its weight, when it was
# assigned.
#
# Anything else goes the long way: the first step, a checkpoint that was loaded, a gradient that is missing this time or
# isn't contiguous, a weight that isn't, groups of several dtypes.
def readable(grads, dtype):
    """Whether the kernel can read each where it lies."""
    return all(
        [g.layout is torch.strided and g.is_contiguous() and g.dtype is dtype and not g.requires_grad for g in grads]
    )


class Known(NamedTuple):
    """What is remembered of a group of parameters."""

    tensors: list  # parameters, averages and steps
    places: list  # their addresses
    lengths: list  # of the parameters
    table: torch.Tensor
    chunks: torch.Tensor
    aligned: bool  # without the gradients
    stream: object


class AdamW(lesson.AdamW):
    """The same as `annotated_examples.optimizers.adamw.AdamW`, but faster."""

    @property
    def remembered(self):
        """What is known of each group. (A copied optimizer has nothing but PyTorch's own attributes.)"""
        return vars(self).setdefault("_known", {})

    def update(self, group):
        pairs = [(p, g) for p in group["params"] if (g := p.grad) is not None]
        states = [self.state[p] for p, _ in pairs]
        known = self.remembered.get(id(group))
        if known is None or not pairs or not all(states):
            return self.the_long_way(group)
        tensors = [p for p, _ in pairs]
        for name in ("exp_avg", "exp_avg_sq", "step"):
            tensors += [state[name] for state in states]
        grads, first = [g for _, g in pairs], tensors[0]
        same = len(tensors) == len(known.tensors) and all(map(operator.is_, tensors, known.tensors))
        same = same and [x.data_ptr() for x in tensors] == known.places and stream_of(first) == known.stream
        same = same and [g.numel() for g in grads] == known.lengths and all([p.is_contiguous() for p, _ in pairs])
        if not (same and readable(grads, first.dtype)) or torch.compiler.is_compiling():
            return self.the_long_way(group)
        lr, options = group["lr"], (*group["betas"], group["eps"], group["weight_decay"])
        contract_of_numbers(lr, *options)
        steps, places = tensors[3 * len(pairs) :], [g.data_ptr() for g in grads]
        torch._foreach_add_(steps, 1)
        launch_step(
            known.table, on_device(places, first.device), known.chunks, known.aligned and aligned(places),
            first.dtype, lr if isinstance(lr, torch.Tensor) else float(lr), options, *tiles(first.dtype),
        )  # fmt: skip
        torch.autograd.graph.increment_version(tensors[: 3 * len(pairs)])

    def the_long_way(self, group):
        """A step with all that `adamw_` looks at. Remembers what it has found."""
        self.remembered.pop(id(group), None)
        super().update(group, step=adamw_)
        params = [p for p in group["params"] if p.grad is not None]
        columns = [[self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq", "step")]
        if (
            torch.compiler.is_compiling()
            or len({(p.dtype, p.device) for p in params}) != 1
            or not readable([p.grad for p in params], params[0].dtype)
            or not all(x.is_contiguous() for x in (*params, *columns[0], *columns[1]))
        ):
            return
        where, CHUNK, numbers = params[0].device, tiles(params[0].dtype)[0], table_of(params, *columns)
        chunks = chunks_of(tuple([p.numel() for p in params]), CHUNK, where, stream_of(params[0]))
        if len(chunks):
            tensors, places = [x for some in (params, *columns) for x in some], numbers[: 4 * len(params)]
            self.remembered[id(group)] = Known(
                tensors, places, numbers[4 * len(params) :], on_device(numbers, where), chunks,
                aligned(places[: 3 * len(params)]), stream_of(params[0]),
            )  # fmt: skip


# ## A run small enough to watch
#
# That of the lesson, with seven elements in the first tensor, and blocks of two.
def EXAMPLE():
    params = [torch.ones(7, device=device.DEVICE), torch.ones(2, device=device.DEVICE)]
    grads = [torch.full_like(params[0], 2.0), torch.full_like(params[1], -0.001)]
    averages = [[torch.zeros_like(p) for p in params] for _ in range(2)]
    step = torch.ones((), device=device.DEVICE)
    adamw_launch_(params, grads, *averages, [step] * 2, None, 0.1, 0.9, 0.999, 1e-8, 0.0, CHUNK=4, BLOCK=2)


if __name__ == "__main__":
    script.main(adamw_, adamw_reference)
