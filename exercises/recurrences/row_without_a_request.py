"""# A row without a request

A server's batch has as many rows as its largest one ever had, and rows without a request have the slot −1.
`write(states, k, u, slots)` returns the states of all requests after each row `b` has added `k[b]` times `u[b]` to the
state of its slot: number `i` of the state gets `u[b] * k[b, i]`. Rows without a request must change nothing. To keep
every address inside of the tensor, the kernel takes slot 0 for −1. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(old_ptr, new_ptr, D, BLOCK: tl.constexpr):
    d = tl.program_id(0).to(tl.int64) * D + tl.arange(0, BLOCK)
    mask = tl.arange(0, BLOCK) < D
    tl.store(new_ptr + d, tl.load(old_ptr + d, mask=mask, other=0.0), mask=mask)


@triton.jit
def write_kernel(states_ptr, k_ptr, u_ptr, slots_ptr, D, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + b)
    # <<<
    mask = (d < D) & (slot >= 0)
    # ===
    # slot = tl.maximum(slot, 0)
    # mask = d < D
    # >>>
    k = tl.load(k_ptr + b * D + d, mask=mask, other=0.0)
    u = tl.load(u_ptr + b)
    state_ptrs = states_ptr + slot.to(tl.int64) * D + d
    state = tl.load(state_ptrs, mask=mask, other=0.0)
    tl.store(state_ptrs, state + u * k, mask=mask)


def write(states, k, u, slots):
    (count, D), new = states.shape, torch.empty_like(states)
    copy_kernel[(count,)](states, new, D, BLOCK=triton.next_power_of_2(D))
    write_kernel[(len(slots),)](new, k, u, slots, D, BLOCK=triton.next_power_of_2(D))
    return new


# %% checks
PAGE = "kernels/recurrences/kda_step.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "To which request does slot 0 belong?",
    "A row without a request loads no number of a state and stores none. What switches lanes off?",
    "A product with 0 isn't enough. What does such a row hold, and which other program stores to slot 0?",
)
WHY = """Nobody sees the fault while slot 0 is free, or while the rows without a request hold zeros. And with zeros it
is still one: two programs store to the same state, and the one that comes last puts back what it has read. A mask of no
lanes needs no address at all, so nothing has to be made up for −1."""


def check(t):
    def want(states, k, u, slots):
        new = [states[slot] for slot in range(len(states))]
        for b, slot in enumerate(slots.tolist()):
            if slot >= 0:
                new[slot] = new[slot] + u[b] * k[b]
        return torch.stack(new)

    def into_the_first(states, k, u, slots):
        return want(states, k, u, slots.clamp(min=0))

    def stored_unread(states, k, u, slots):
        new = want(states, k, u, slots)
        for b in range(len(slots)):
            if slots[b] < 0:
                new[0] = u[b] * k[b]
        return new

    mistakes = {
        into_the_first: "A row without a request has written to the state of slot 0.",
        stored_unread: "A row without a request reads nothing now, and still stores to slot 0.",
        lambda states, k, u, slots: want(states, k, u, torch.where(slots == 0, -1, slots)): (
            "Slot 0 belongs to a request, too, and got nothing."
        ),
        lambda states, k, u, slots: want(states, k, u, torch.where(slots < 0, len(states) - 1, slots)): (
            "A row without a request has written to the state of the last slot."
        ),
    }

    def compared(case, count, slots, D):
        rows = len(slots)
        slots = t.surrounded(torch.tensor(slots, dtype=torch.int32))
        given = t.values(count, D), t.values(rows, D), t.values(rows), slots
        t.compare(case, "write", want, *given, name="states", mistakes=mistakes, spare=("*",))

    compared("2 requests", 2, [1, 0], 3)
    compared("a row without a request", 3, [2, -1], 3)
    compared("no request at all", 2, [-1, -1], 4)
    compared("a request in slot 0", 2, [0, -1], 3)
    for _ in range(3):
        count = t.random.randint(2, 6)
        slots = t.random.sample(range(count), t.random.randint(1, count)) + [-1] * t.random.randint(1, 3)
        t.random.shuffle(slots)
        compared(f"{len(slots)} rows for {count} states", count, slots, t.random.randint(1, 9))


WRONG = (
    ("has written to the state of slot 0",),
    ("does a load outside a tensor", "mask = d < D"),
    (
        "no request at all: ",
        "    mask = (d < D) & (slot >= 0)",
        "    used = slot >= 0\n    slot = tl.maximum(slot, 0)\n    mask = d < D",
        "    u = tl.load(u_ptr + b)",
        "    u = tl.where(used, tl.load(u_ptr + b), 0.0)",
    ),
    ("Slot 0 belongs to a request, too", "mask = (d < D) & (slot > 0)"),
    (
        "still stores to slot 0",
        "    mask = (d < D) & (slot >= 0)",
        "    used = slot >= 0\n    slot = tl.maximum(slot, 0)\n    mask = d < D",
        "state = tl.load(state_ptrs, mask=mask,",
        "state = tl.load(state_ptrs, mask=mask & used,",
    ),
    ("2 requests: states[0, 0] is", "state + u * k", "u * k"),
)
RIGHT = (
    ("mask = (d < tl.where(slot >= 0, D, 0))",),
    ("used = slot != -1\nslot = tl.maximum(slot, 0)\nmask = (d < D) & used",),
)
