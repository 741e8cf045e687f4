"""# Who comes too late is dropped

Some layers give each expert a *capacity*, the most slots that it takes. Slots are served in order, and those that find
their expert full are dropped: their expert becomes −1. `keep(experts, capacity)` does that for up to 32 slots, one
program for each. A program has its slot's `expert`, and `every` expert there is. What is missing is the `rank`: how
many slots before this one have the same expert.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def keep_kernel(experts_ptr, kept_ptr, n, capacity, BLOCK: tl.constexpr):
    slot = tl.program_id(0)
    expert = tl.load(experts_ptr + slot)
    others = tl.arange(0, BLOCK)
    every = tl.load(experts_ptr + others, mask=others < n, other=-1)
    # <<<
    rank = tl.sum(((others < slot) & (every == expert)).to(tl.int32), 0)
    # >>>
    tl.store(kept_ptr + slot, tl.where(rank < capacity, expert, -1))


def keep(experts, capacity):
    kept = torch.empty(len(experts), dtype=torch.int32, device=experts.device)
    keep_kernel[(len(experts),)](experts, kept, len(experts), capacity, BLOCK=32)
    return kept


# %% checks
PAGE = "kernels/moe/router.md"
KIND = "fill in"
ORDER = 4
HINTS = (
    "Which lanes count? Those of slots before this one, `others < slot`, whose expert is this slot's.",
    "`a & b` joins two blocks of truth values. As int32, with `.to(tl.int32)`, they can be added up: `tl.sum(…, 0)`.",
)
WHY = """A slot needs nothing but the slots before it, so all can be served at once. It also decides who is dropped: the
last of a batch. In another order of the batch a token may get another result, which is one reason to do without a
capacity where the kernels allow it."""


def check(t):
    def want(experts, capacity):
        taken, kept = {}, []
        for expert in experts.tolist():
            taken[expert] = taken.get(expert, 0) + 1
            kept.append(expert if taken[expert] <= capacity else -1)
        return torch.tensor(kept, dtype=torch.int32, device=device.DEVICE)

    def case(numbers, capacity):
        shown = f"experts {', '.join(map(str, numbers[:5]))}{', …' if len(numbers) > 5 else ''}, capacity {capacity}"
        run = t.compare(shown, "keep", want, t.surrounded(torch.tensor(numbers, dtype=torch.int32)), capacity)
        t.grid(shown, run, (len(numbers),))

    case([0, 0, 1, 0, 1], 2)
    case([3] * 9, 4)
    case([2, 1, 0, 1, 2], 1)
    case([0, 1, 0], 0)
    case([5], 1)
    case([7] * 32, 31)
    case([100, 3, 100, 255, 100], 2)
    case([t.random.randint(0, 1) for _ in range(32)], t.random.randint(9, 32))
    case([t.random.randint(0, 3) for _ in range(t.random.randint(20, 32))], t.random.randint(2, 4))


WRONG = (
    ("NameError: name 'rank' is not defined",),
    ("experts 0, 0, 1, 0, 1, capacity 2: out[1] is", "others < slot", "others <= slot"),
    ("experts 0, 0, 1, 0, 1, capacity 2: out[", "rank = slot"),
    ("experts 0, 0, 1, 0, 1, capacity 2: out[", "(others < slot) & (every == expert)", "every == expert"),
)
RIGHT = (
    ("rank = tl.sum(tl.where(others < slot, (every == expert).to(tl.int32), 0), 0)",),
    (
        "rank = 0\nfor earlier in range(slot):\n    rank += (tl.load(experts_ptr + earlier) == expert).to(tl.int32)",
    ),
)  # fmt: skip
