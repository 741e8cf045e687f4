r"""
# An all-reduce in one kernel

Every rank has a tensor, and every rank needs the sum of all of them.

[[eq: AR]]

For large tensors a ring is best: each part travels from neighbour to neighbour and is added up on the way. But it takes
$2 (R - 1)$ steps, and each step waits for the one before. For small tensors the waiting is all there is. So here every
rank reads *everything from everyone* at once, and adds it up itself. That is one step, called *one-shot*.

What is new in this kernel isn't the sum. It is that programs on different cards wait for each other.

**What it costs.** Each rank reads `R - 1` tensors over the links, where a ring would read about two. So the time is one
signal, there and back, plus `(R - 1) · bytes / bandwidth`. [The guide](../../docs/guides/many-cards.md) calculates
where the two cross.

**Measured between two H100**, recorded as CUDA graphs, beside NCCL: 4 KB take
[[bench: many_cards/all_reduce/4/ours]] here and [[bench: many_cards/all_reduce/4/nccl]] there, 1 MB
[[bench: many_cards/all_reduce/1024/ours]] and [[bench: many_cards/all_reduce/1024/nccl]], 4 MB
[[bench: many_cards/all_reduce/4096/ours]] and [[bench: many_cards/all_reduce/4096/nccl]], 64 MB
[[bench: many_cards/all_reduce/65536/ours]] and [[bench: many_cards/all_reduce/65536/nccl]]. So NCCL is ahead nearly
everywhere. For small messages it has a protocol that needs no meeting, LL: each number travels together with a flag,
and whoever finds the flag has the number, where this kernel meets twice. And between two ranks a ring has no more to
send. Write such a kernel to *fuse* a sum with what comes after it, not to replace the library's.

**Contract.** `x` has any shape, is float32, float16 or bfloat16, and is contiguous or copied first; all ranks pass the
same shape and dtype. The sum is made in float32, in the order of the ranks, and rounded once: every rank has the same
bits. `memory` comes from `symmetric_memory`, has the dtype of `x`, and may be used again at once. It has no gradient.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.symmetric import Symmetric, symmetric_list, symmetric_memory


# ## Reference
#
# On one rank the sum is the tensor itself.
def all_reduce_reference(x):
    return x.clone()


# ## Meeting
#
# [[figure: ranks/meeting]]
#
# A program of this rank must not read before the same program of every other rank has written. So they meet: each sets
# a signal on the pad of all others, and waits for theirs on its own. A slot goes from 0 to 1 by its sender, and back to
# 0 by its receiver. Then it is ready for the next time, without anyone counting rounds.
#
# `tl.atomic_cas(pointer, old, new)` writes `new` if it finds `old`, and returns what it found; nobody can come between.
# So the loop around it is all the waiting there is. `scope` says who sees it: with "sys" other cards do, and not only
# other programs of this one. `sem` says what else is in order: with "release", whoever sees the signal sees everything
# that was written before it; with "acquire", what is read after it isn't older than the signal.
@triton.jit
def meet(pads, place, RANK: tl.constexpr, WORLD: tl.constexpr):
    # One thread signals for all the threads of the program, so all have to have finished what they wrote.
    tl.debug_barrier()
    for r in tl.static_range(WORLD):
        while tl.atomic_cas(pads[r] + place * WORLD + RANK, 0, 1, sem="release", scope="sys") != 0:
            pass
    for r in tl.static_range(WORLD):
        while tl.atomic_cas(pads[RANK] + place * WORLD + r, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    # And no thread may go on to read before that one has seen the last signal.
    tl.debug_barrier()


# ## The sum
#
# `buffers` and `pads` are tuples with a pointer for each rank. A program takes every `num_programs`-th block. All ranks
# launch the same grid, so the same program has the same blocks everywhere, and only equal programs have to meet.
#
# The grid must not be larger than what the card runs at once. A program that waits keeps its place. If those that it
# waits for haven't got one yet, on another card, and theirs are waiting for others of this one, nothing ever moves
# again. The interpreter, which runs one program after the other, would never show it.
@triton.jit
def one_shot_all_reduce_kernel(
    x_ptr,  # (N,)
    out_ptr,  # (N,)
    buffers,
    pads,
    N,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    # First into the buffer that the others see.
    for start in range(pid * BLOCK, N, programs * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < N
        tl.store(buffers[RANK] + offs, tl.load(x_ptr + offs, mask=mask, other=0.0), mask=mask)
    # Everybody's numbers are there.
    meet(pads, pid, RANK, WORLD)
    for start in range(pid * BLOCK, N, programs * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < N
        acc = tl.zeros((BLOCK,), tl.float32)
        # Rank 0's numbers first, on every rank: another order would give other bits. In the example rank 0 has 1, 2, 3,
        # …, and rank 1 ten times as much: `launch=0, pid=0, start=0, r=1: acc = [11, 22, 33, 44]`. A sum rounded to
        # bfloat16 after each rank would be wrong by up to half a unit in the last place more with each.
        for r in tl.static_range(WORLD):
            acc += tl.load(buffers[r] + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + offs, acc, mask=mask)
    # Everybody has read. Only now may the buffers be filled again: the next call begins with that. Without this second
    # meeting a fast rank would overwrite what a slow one is still reading.
    meet(pads, programs + pid, RANK, WORLD)


# ## The launcher
#
# `torch.compile` can't look into a launch whose arguments are tuples; `opaque` tells it what comes out, and what is
# written on the way.
@opaque(
    "(Tensor x, Tensor(a!)[] buffers, Tensor(b!)[] pads, int rank, int programs) -> Tensor",
    lambda x, *rest: torch.empty_like(x),
)
def launch(x, buffers, pads, rank, programs, *, BLOCK=1024):
    """The sum over the ranks of a vector, by at most so many programs."""
    checks.power_of_two(BLOCK=BLOCK)
    out, programs = torch.empty_like(x), min(programs, triton.cdiv(len(x), BLOCK))
    if programs:
        one_shot_all_reduce_kernel[(programs,)](
            x, out, tuple(buffers), tuple(pads), len(x), RANK=rank, WORLD=len(buffers), BLOCK=BLOCK
        )
    return out


def all_reduce_forward(x, memory, *, BLOCK=1024):
    """The sum over the ranks in a new tensor of the shape of x."""
    flat = x.reshape(-1).contiguous()
    buffers, pads = list(memory.buffers), list(memory.pads)
    return launch(flat, buffers, pads, memory.rank, memory.programs, BLOCK=BLOCK).view(x.shape)


# ## Arguments
#
# What only one rank checks, the others don't know: they wait for ever. So an error here is one that all ranks make.
def contract(x, memory):
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.no_gradient("all_reduce", x=x)
    if memory is None:
        return
    if not isinstance(memory, Symmetric):
        raise TypeError(f"memory must come from symmetric_memory, got {type(memory).__name__}")
    buffer = memory.buffers[memory.rank]
    if buffer.dtype != x.dtype:
        raise TypeError(f"memory must have the dtype of x, {x.dtype}, got {buffer.dtype}")
    if buffer.numel() < x.numel():
        raise ValueError(f"memory must hold {x.numel()} elements for x, got {buffer.numel()}")


def all_reduce(x, memory=None):
    """The sum of all ranks' `x`, through memory that all of them see; the same bits on every rank.

    Args:
        x: float32, float16 or bfloat16, any shape, the same shape and dtype on every rank.
        memory: `symmetric_memory(numel, x.dtype)` with room for x. A second stream needs memory of its own. Default:
            made for this call, among all ranks of the default group, which takes milliseconds.

    Returns:
        A new tensor of the shape and dtype of x.

    Raises:
        TypeError: x isn't a tensor of such a dtype, or memory isn't symmetric memory, or has another dtype.
        ValueError: memory is too small, or x requires a gradient: use `summed_over_ranks` for that.

    Source: the one-shot all-reduce of TensorRT-LLM and of PyTorch's `torch.ops.symm_mem.one_shot_all_reduce`.
    """
    contract(x, memory)
    return all_reduce_forward(x, symmetric_memory(max(1, x.numel()), x.dtype) if memory is None else memory)


# ## A run small enough to watch
#
# Two ranks in one process. When rank 0 runs, rank 1's buffer is filled and its signals are set, as if it had been here
# already. Rank 1 then finds the signals of rank 0.
def EXAMPLE():
    at = torch.arange(1.0, 7.0, device=device.DEVICE)
    values = [at, 10 * at]
    memories = symmetric_list(values)
    for rank in range(2):
        all_reduce_forward(values[rank], memories[rank], BLOCK=4)


if __name__ == "__main__":
    script.main(all_reduce, all_reduce_reference)
