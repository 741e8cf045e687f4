r"""
# Gather while multiplying: nobody waits for the whole

Each rank has some rows of $X$, all the others need them, and then they are multiplied, [[tag: MM-Z]]:

[[eq: MM-Z]]

The usual way is two calls: gather all rows, then multiply. While the links work the card waits, and the other way
round. But a product needs no more than the rows of one tile. So here the copies run on the side, and each sets a flag
when the rows of a rank have arrived. The product starts with the rows that are here already, the rank's own, and waits
for a flag only when it comes to the first tile that needs it.

This is a reading: the kernel is the plain [tiled product](../tutorials/matmul_blocked.py) with one more line. What is
worth looking at is the order of its tiles, and that line.

**What it costs.** The product's operations, and the bytes of a gather, `(R - 1) / R` of $X$. If they overlap
completely, the longer of the two is all that shows. The copies must take no SMs away, or the product slows
down by what they take: cards have copy engines for that.

**Measured between two H100**, with 4096 rows a rank, K and N of 4096, in bfloat16: the gather alone takes
[[bench: many_cards/gather/gather]], cuBLAS's product alone [[bench: many_cards/gather/cublas]], one after the other
[[bench: many_cards/gather/apart]]. This function takes [[bench: many_cards/gather/ours]]. What it hides is less than
what its plain product is slower than cuBLAS's, and it meets the other ranks through the host.

**Contract.** `x` (rows, K) of this rank, float32, float16 or bfloat16, the same shape on every rank; `w` (K, N), this
rank's own, of the same dtype, any strides. Sums are float32, products of float32 exact. Forward only.
"""

from academy.runtime import checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import threading

import torch
import triton
import triton.language as tl

from annotated_examples.common.products import multiply_add
from annotated_examples.common.ranks import place_in
from annotated_examples.common.symmetric import Symmetric, resident, symmetric_memory


# ## Reference
def all_gather_matmul_reference(x, w):
    return x @ w


# ## The product
#
# [[figure: ranks/overlap]]
#
# `gathered` has the rows of all ranks, one rank's below the other's, and `arrived` a flag for each. The kernel is
# persistent: at most one program for each SM, each of which takes every `num_programs`-th tile. Here that is no
# question of speed. A program that waits for a flag keeps its place, and a small kernel sets the flag: if programs that
# wait filled every SM, it would never run. In 16 bits one of these programs takes three fifths of a Hopper SM's
# registers if `w` is contiguous and K and N are multiples of 16, else more, up to all of them.
@triton.jit
def gathered_matmul_kernel(
    gathered_ptr,  # (WORLD, rows, K), contiguous
    w_ptr,  # (K, N)
    out_ptr,  # (WORLD · rows, N), contiguous
    arrived_ptr,  # (WORLD,)
    N,
    K,
    rows,
    stride_wk,
    stride_wn,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_of_a_rank = tl.cdiv(rows, BLOCK_M) * tiles_n
    for tile in range(tl.program_id(0), WORLD * tiles_of_a_rank, tl.num_programs(0)):
        # My own rows first, then those of the next rank: by the time that a program gets there, they have had the
        # longest time to come. (If all began with rank 0, its links would be busy and the others idle.) With three
        # ranks, rank 1 begins with 1 and ends with 0: `pid=0, tile=0: source = 1`, `pid=0, tile=4: source = 0`.
        source = (RANK + tile // tiles_of_a_rank) % WORLD
        tile_m = tile % tiles_of_a_rank // tiles_n
        tile_n = tile % tiles_n

        # The one line: wait until this rank's rows have arrived. It replaces a 1 by a 1, so it changes nothing, and
        # what is read after it is no older than the flag.
        while tl.atomic_cas(arrived_ptr + source, 1, 1, sem="acquire", scope="sys") != 1:
            pass
        tl.debug_barrier()

        # From here on it is a tile as any other; a tile never reaches into the rows of another rank.
        offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        x_rows = gathered_ptr + (source * rows + offs_m).to(tl.int64)[:, None] * K
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            offs_k = start + tl.arange(0, BLOCK_K)
            x = tl.load(x_rows + offs_k[None, :], mask=(offs_m < rows)[:, None] & (offs_k < K)[None, :], other=0.0)
            w_offs = offs_k.to(tl.int64)[:, None] * stride_wk + offs_n[None, :] * stride_wn
            w = tl.load(w_ptr + w_offs, mask=(offs_k < K)[:, None] & (offs_n < N)[None, :], other=0.0)
            acc = multiply_add(x, w, acc, "ieee")
        out_rows = out_ptr + (source * rows + offs_m).to(tl.int64)[:, None] * N
        tl.store(out_rows + offs_n[None, :], acc, mask=(offs_m < rows)[:, None] & (offs_n < N)[None, :])


# ## The copies
#
# One after the other, in the order in which the product will ask: first my own rows, which are only moved within the
# card, then the next rank's. A flag is set after the copy before it, on the same stream, so never too early.
#
# On a card a stream of its own does that. Copies between cards need no SM, but a flag does: `fill_` is a kernel, of one
# program. If the product had a program on every SM, and these took all registers, as they do in float32, the flag's
# would find no room, and all would wait forever. So one SM stays free. On a CPU the copies are a thread.
def start_copies(memory, gathered, arrived, rows):
    """Fills `gathered` (world, rows, K) and sets the flags; returns a function that waits until all is done."""

    def copy():
        for step in range(memory.world):
            source = (memory.rank + step) % memory.world
            gathered[source].view(-1).copy_(memory.buffers[source][: gathered[source].numel()], non_blocking=True)
            arrived[source].fill_(1)

    if memory.world == 1:  # nothing travels
        copy()
        return lambda: None
    if device.INTERPRET:
        thread = threading.Thread(target=copy)
        thread.start()
        return thread.join
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        copy()
    for tensor in (gathered, arrived):
        tensor.record_stream(side)
    return lambda: here.wait_stream(side)


# ## The launcher
#
# All ranks must have filled their buffers before anyone copies from them, and nobody may fill them again before all
# have copied: two meetings, here as plain barriers of the process group, since they are no part of the idea.
def all_gather_matmul_forward(x, w, memory, group=None, *, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_warps=8):
    """(world · rows, N) in the dtype of x: the rows of all ranks, times w."""
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    (rows, K), N, world = x.shape, w.shape[1], memory.world
    memory.buffers[memory.rank][: x.numel()].copy_(x.reshape(-1))
    meet_all(group, world)
    gathered = torch.empty((world, rows, K), dtype=x.dtype, device=x.device)
    arrived = torch.zeros(world, dtype=torch.int32, device=x.device)
    out = torch.empty((world * rows, N), dtype=x.dtype, device=x.device)
    finish = start_copies(memory, gathered, arrived, rows)
    tiles = world * triton.cdiv(rows, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    if tiles:
        gathered_matmul_kernel[(resident(tiles, spare=1),)](
            gathered, w, out, arrived, N, K, rows, *w.stride(),
            RANK=memory.rank, WORLD=world, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, num_warps=num_warps,
        )  # fmt: skip
    finish()
    meet_all(group, world)
    return out


def meet_all(group, world):
    if world > 1:
        if not device.INTERPRET:
            torch.cuda.current_stream().synchronize()
        torch.distributed.barrier(group)


def contract(x, w, memory, group):
    checks.tensors(x=x, w=w)
    checks.dtypes(x=x)
    checks.same_dtype(x=x, w=w)
    checks.dimensions("x", x, 2, "(rows, K)")
    checks.shape("w", w, (x.shape[1], *w.shape[1:2]), "(K, N), with the K of x")
    checks.no_gradient("all_gather_matmul", x=x, w=w)
    place = place_in(group)
    if memory is None:
        return
    if not isinstance(memory, Symmetric) or memory.buffers[0].dtype != x.dtype:
        raise TypeError(f"memory must come from symmetric_memory, with the dtype of x, {x.dtype}")
    if memory.buffers[0].numel() < x.numel():
        raise ValueError(f"memory must hold {x.numel()} elements for x, got {memory.buffers[0].numel()}")
    if place != (memory.rank, memory.world):
        raise ValueError("group must be the one that memory was made for")


def all_gather_matmul(x, w, memory=None, group=None):
    """The rows of all ranks, one below the other, times this rank's `w`.

    Args:
        x: (rows, K), this rank's, float32, float16 or bfloat16; the same shape and dtype on every rank.
        w: (K, N), this rank's own, of the dtype of x, any strides.
        memory: `symmetric_memory(numel, x.dtype)` with room for x. Default: made for this call, which takes
            milliseconds.
        group: the process group that `memory` was made for. Default: the default group.

    Returns:
        (world * rows, N) in the dtype of x.

    Raises:
        TypeError, ValueError: shapes, dtypes, memory or group don't fit, or a gradient is wanted.

    Source: PyTorch's `torch.ops.symm_mem.fused_all_gather_matmul` and its kernels in pytorch-labs/kraken.
    """
    contract(x, w, memory, group)
    memory = symmetric_memory(max(1, x.numel()), x.dtype, group) if memory is None else memory
    return all_gather_matmul_forward(x, w, memory, group)


# ## A run small enough to watch
#
# Rank 1 of three, with two rows of each rank. The others' buffers are filled, and the flags are set before the kernel
# starts: in the recording nobody copies meanwhile.
def EXAMPLE():
    gathered = torch.arange(1.0, 25.0, device=device.DEVICE).view(3, 2, 4) % 7
    w = torch.arange(1.0, 17.0, device=device.DEVICE).view(4, 4) % 5
    out = torch.empty((6, 4), device=device.DEVICE)
    arrived = torch.ones(3, dtype=torch.int32, device=device.DEVICE)
    gathered_matmul_kernel[(1,)](
        gathered, w, out, arrived, 4, 4, 2, *w.stride(), RANK=1, WORLD=3, BLOCK_M=2, BLOCK_N=2, BLOCK_K=4
    )


if __name__ == "__main__":
    script.main(all_gather_matmul, all_gather_matmul_reference)
