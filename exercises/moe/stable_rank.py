"""# A place for everyone

To sort the slots of tokens by expert, each slot has to know its *rank*: how many slots before it have the same expert.
For the experts 2, 0, 2, 2, 0 the ranks are 0, 0, 1, 2, 1. `ranks(experts)` computes them for up to 16 slots and experts
0 to 7. The comparison is done: `mine[i, e]` is 1 where slot `i` has expert `e`. What is missing is the rank.

`tl.cumsum(block, axis)` is the running sum along an axis: each place has the sum of all before it and of itself.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def ranks_kernel(experts_ptr, ranks_ptr, n, BLOCK: tl.constexpr, EXPERTS: tl.constexpr):
    slot = tl.arange(0, BLOCK)
    mask = slot < n
    expert = tl.load(experts_ptr + slot, mask=mask, other=EXPERTS)
    mine = (expert[:, None] == tl.arange(0, EXPERTS)[None, :]).to(tl.int32)
    # <<<
    rank = tl.sum(mine * (tl.cumsum(mine, 0) - mine), 1)
    # >>>
    tl.store(ranks_ptr + slot, rank, mask=mask)


def ranks(experts):
    out = torch.empty(len(experts), dtype=torch.int32, device=experts.device)
    ranks_kernel[(1,)](experts, out, len(experts), BLOCK=16, EXPERTS=8)
    return out


# %% checks
PAGE = "kernels/moe/router.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Look at one column of `mine`, that of expert 2: 1, 0, 1, 1, 0. What is its running sum?",
    "The running sum 1, 1, 2, 3, 3 counts the slot itself. `- mine` takes that away.",
    "A slot needs one number of its row: that of its own expert. `mine * …` sets all others to zero, and "
    "`tl.sum(…, 1)` adds up a row.",
)
WHY = """The running sum down a column counts the slots of one expert so far. Less the slot itself it is the rank, and
the product with `mine` picks the column of the slot's own expert. No slot needs to wait for another, and equal experts
keep their order."""


def check(t):
    def want(experts):
        seen, found = {}, []
        for expert in experts.tolist():
            found.append(seen.get(expert, 0))
            seen[expert] = found[-1] + 1
        return torch.tensor(found, dtype=torch.int32, device=device.DEVICE)

    def slots(numbers):
        return t.surrounded(torch.tensor(numbers, dtype=torch.int32))

    t.compare("2, 0, 2, 2, 0", "ranks", want, slots([2, 0, 2, 2, 0]))
    t.compare("all at one expert", "ranks", want, slots([5] * 7))
    t.compare("one each", "ranks", want, slots([7, 6, 5, 4, 3, 2, 1, 0]))
    t.compare("one slot", "ranks", want, slots([3]))
    t.compare("16 at the first and the last expert", "ranks", want, slots([0, 7] * 8))
    t.compare("16 at one expert", "ranks", want, slots([0] * 16))
    n = t.random.randint(12, 16)
    t.compare(f"{n} slots", "ranks", want, slots([t.random.randint(0, 7) for _ in range(n)]))


WRONG = (
    ("NameError: name 'rank' is not defined",),
    ("2, 0, 2, 2, 0: out[", "- mine", ""),
    ("2, 0, 2, 2, 0: out[", "tl.cumsum(mine, 0)", "tl.cumsum(mine, 1)"),
    ("2, 0, 2, 2, 0: out[", "tl.sum(mine * (tl.cumsum(mine, 0) - mine), 1)", "tl.sum(tl.cumsum(mine, 0) - mine, 1)"),
)
RIGHT = (
    ("rank = tl.sum(mine * tl.cumsum(mine, 0), 1) - 1",),
    ("rank = tl.sum(tl.where(mine == 1, tl.cumsum(mine, 0), 0), 1) - 1",),
)
