r"""
# Rows of experts

What the lessons on experts share: which expert gets which row, as a plan that stays on the device, and the three
kernels that make it; and how a program finds the expert of its tile.

A token with `k` experts takes part in `k` products, so there are `T · k` *slots*, counted token by token: slot
`t · k + j` is the j-th expert of token t. Sorted by expert, the rows of one expert are neighbours, and one product can
take them all.
"""

from academy.runtime import checks  # before anything imports triton
from academy.runtime.replay import replayed

from typing import NamedTuple

import torch
import triton
import triton.language as tl


#: A program holds a row of scores, and counts for each expert.
MOST_EXPERTS = 4096


# ## The plan
#
# All int32, all on the device: Python never learns how many rows an expert has.
class Plan(NamedTuple):
    """Slots in the order of their experts.

    Attributes:
        offsets: (E,), where the rows of each expert end. Those of expert e begin where those of e − 1 end.
        order: (T · k,), the slot of each row.
        position: (T, k), the row of each slot: the inverse of `order`.
    """

    offsets: torch.Tensor
    order: torch.Tensor
    position: torch.Tensor


# ## Sorting, in three launches
#
# There are few different keys, so nothing has to be compared: counting is enough. The first kernel counts the slots of
# each expert, for each block of slots. The second adds up: before the first slot of expert e in block b lie all slots
# of earlier experts, and those of e in earlier blocks. The third puts each slot where it belongs.
#
# Each number is written by one program, and what one kernel writes the next one reads. A counter in memory that all
# programs raise, with `tl.atomic_add`, would need one launch fewer. But then the order of an expert's rows would depend
# on who came first, and with it the last bits of every sum over them.
#
# Dropped slots have the expert −1. They are counted as those of one more expert, E, and come after all others. So does
# a number that is no expert, which the CPU refuses, and a GPU can't without waiting.
@triton.jit
def one_hot(
    experts_ptr,  # (slots,)
    first, slots, E, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    slot = first + tl.arange(0, BLOCK)
    expert = tl.load(experts_ptr + slot, mask=slot < slots, other=0)
    expert = tl.where((expert < 0) | (expert >= E), E, expert).to(tl.int32)
    mine = (expert[:, None] == tl.arange(0, BLOCK_E)[None, :]) & (slot < slots)[:, None]
    return slot, mine.to(tl.int32)


@triton.jit
def count_kernel(
    experts_ptr, counts_ptr,  # (slots,), (blocks, E + 1)
    slots, E, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    _, mine = one_hot(experts_ptr, block * BLOCK, slots, E, BLOCK, BLOCK_E)
    columns = tl.arange(0, BLOCK_E)
    counts_ptr += block.to(tl.int64) * (E + 1)
    tl.store(counts_ptr + columns, tl.sum(mine, 0), mask=columns <= E)


# One program walks over all blocks twice. First it adds up each expert's slots. Their running sum, `tl.cumsum`, is
# where each expert ends; less its own, where it begins. Then it replaces each count by the first row of that block's
# slots. `tl.cumsum` includes an element itself, hence the subtraction.
@triton.jit
def starts_kernel(
    counts_ptr, offsets_ptr,  # (blocks, E + 1), (E,)
    blocks, E, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK_E)
    total = tl.zeros((BLOCK_E,), tl.int32)
    for first in range(0, blocks, BLOCK_B):
        rows = (first + tl.arange(0, BLOCK_B)).to(tl.int64)
        mask = (rows < blocks)[:, None] & (columns <= E)[None, :]
        counts_ptrs = counts_ptr + rows[:, None] * (E + 1) + columns[None, :]
        total += tl.sum(tl.load(counts_ptrs, mask=mask, other=0), 0)
    ends = tl.cumsum(total, 0)
    tl.store(offsets_ptr + columns, ends, mask=columns < E)

    start = ends - total
    for first in range(0, blocks, BLOCK_B):
        rows = (first + tl.arange(0, BLOCK_B)).to(tl.int64)
        mask = (rows < blocks)[:, None] & (columns <= E)[None, :]
        counts_ptrs = counts_ptr + rows[:, None] * (E + 1) + columns[None, :]
        counts = tl.load(counts_ptrs, mask=mask, other=0)
        tl.store(counts_ptrs, start[None, :] + tl.cumsum(counts, 0) - counts, mask=mask)
        start += tl.sum(counts, 0)


# A slot's row is its expert's start in this block, and one more for each earlier slot of the same expert: the running
# sum of a column of ones and zeros. So equal experts keep their order, which is what *stable* means.
@triton.jit
def place_kernel(
    experts_ptr, starts_ptr, order_ptr, position_ptr,  # (slots,), (blocks, E + 1), (slots,), (slots,)
    slots, E, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    slot, mine = one_hot(experts_ptr, block * BLOCK, slots, E, BLOCK, BLOCK_E)
    columns = tl.arange(0, BLOCK_E)
    starts = tl.load(starts_ptr + block.to(tl.int64) * (E + 1) + columns, mask=columns <= E, other=0)
    row = tl.sum(mine * (starts[None, :] + tl.cumsum(mine, 0) - mine), 1)
    mask = slot < slots
    tl.store(position_ptr + slot, row, mask=mask)
    tl.store(order_ptr + row, slot, mask=mask)


# ## Launchers
#
# A block of slots is a matrix of slots by experts in a program's registers. The more experts, the fewer slots.
def block_of_slots(num_experts, BLOCK):
    BLOCK_E = triton.next_power_of_2(num_experts + 1)
    return BLOCK or max(16, 8192 // BLOCK_E), BLOCK_E


def count_by_block(experts, num_experts, *, BLOCK=None):
    """How many slots of each block each expert has, (blocks, E + 1) int32; the last column counts what was dropped."""
    checks.power_of_two(BLOCK=BLOCK)
    BLOCK, BLOCK_E = block_of_slots(num_experts, BLOCK)
    experts = experts.reshape(-1).contiguous()
    slots = len(experts)
    counts = torch.empty((triton.cdiv(slots, BLOCK), num_experts + 1), dtype=torch.int32, device=experts.device)
    if slots:
        count_kernel[(len(counts),)](experts, counts, slots, num_experts, BLOCK=BLOCK, BLOCK_E=BLOCK_E)
    return counts


@replayed
def sorted_by_expert(experts, num_experts, *, BLOCK=None, BLOCK_B=16):
    """The `Plan` of `experts`, (T, k)."""
    checks.power_of_two(BLOCK_B=BLOCK_B)
    counts = count_by_block(experts, num_experts, BLOCK=BLOCK)
    BLOCK, BLOCK_E = block_of_slots(num_experts, BLOCK)
    of_slot = experts.reshape(-1).contiguous()
    slots = len(of_slot)
    offsets = torch.empty(num_experts, dtype=torch.int32, device=experts.device)
    order, position = [torch.empty(slots, dtype=torch.int32, device=experts.device) for _ in range(2)]
    starts_kernel[(1,)](counts, offsets, len(counts), num_experts, BLOCK_B=BLOCK_B, BLOCK_E=BLOCK_E)
    if slots:
        place_kernel[(len(counts),)](of_slot, counts, order, position, slots, num_experts, BLOCK=BLOCK, BLOCK_E=BLOCK_E)
    return Plan(offsets, order, position.view(experts.shape))


# ## Which rows are mine?
#
# Every expert's rows are cut into tiles, and the last tile of each is ragged. How many tiles there are depends on the
# offsets, which Python doesn't know. It knows a bound: the tiles of all rows together, and one more for each expert
# that ends in the middle of one. That many programs are launched. Each walks along the offsets until it comes to its
# tile; a program that finds none has no rows, and ends at once.
#
# After the last expert's rows there may be more, which nobody's product fills. They are treated as the rows of one
# more expert, number `E`, whose product is zero.
#
# It returns the expert, the first row of the tile, and where the expert's rows end: a tile must not reach into those
# of the next expert. Offsets that run backwards or past the last row, which a GPU can't refuse without waiting, are
# clamped: then a result is wrong, but nothing outside is touched.
@triton.jit
def tile_of_expert(offsets_ptr, program, R, E, BLOCK_M: tl.constexpr):
    expert = tl.cast(0, tl.int32)
    start = tl.cast(0, tl.int64)
    tile = program.to(tl.int64)
    end = end_of_expert(offsets_ptr, expert, start, R, E)
    while (expert < E) & (tile >= tl.cdiv(end - start, BLOCK_M)):
        tile -= tl.cdiv(end - start, BLOCK_M)
        expert += 1
        start = end
        end = end_of_expert(offsets_ptr, expert, start, R, E)
    return expert, start + tile * BLOCK_M, end


@triton.jit
def end_of_expert(offsets_ptr, expert, start, R, E):
    end = tl.load(offsets_ptr + expert, mask=expert < E, other=R).to(tl.int64)
    return tl.minimum(tl.maximum(end, start), R)


# ## Checks
#
# Whether a number is an expert is a question about values: looking at them means waiting for the GPU. So that check
# runs on the CPU, and on a GPU on request.
def experts_contract(experts, num_experts):
    checks.dtypes((torch.int32, torch.int64), experts=experts)
    checks.dimensions("experts", experts, 2, "tokens, slots of each")
    if experts.numel() >= 2**31 - 2**14:
        raise ValueError(f"experts must have fewer than 2**31 - 2**14 elements, got shape {tuple(experts.shape)}")
    if checks.looks_at_values():
        wrong = (experts < -1) | (experts >= num_experts)
        if wrong.any():
            number = int(experts[wrong][0])
            raise ValueError(f"experts must be in [0, {num_experts}), or -1 for a dropped slot, got {number}")


def offsets_contract(offsets, num_experts, rows):
    checks.dtypes((torch.int32, torch.int64), offsets=offsets)
    checks.dimensions("offsets", offsets, 1, "one for each expert")
    if num_experts is not None:
        checks.shape("offsets", offsets, (num_experts,), "one for each matrix of b")
    if not 1 <= len(offsets) <= MOST_EXPERTS:
        raise ValueError(f"offsets must have 1 to {MOST_EXPERTS} elements, got shape {tuple(offsets.shape)}")
    if checks.looks_at_values():
        ends = [0, *offsets.tolist(), rows]
        if sorted(ends) != ends:
            raise ValueError(f"offsets must not decrease, from 0 up to the number of rows, {rows}, got {ends[1:-1]}")
