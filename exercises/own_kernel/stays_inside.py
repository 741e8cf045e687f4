"""# A test for the end

`launch(x, y)` writes its result for `x` into `y`. Write `stays_inside(launch)`, which says whether it leaves alone what
lies past the end of `y`. Which sizes must you try?

[[figure: judge/hostile]]
"""

# %% solution
from academy.runtime import device

import torch


def stays_inside(launch):
    # <<<
    for N in (5, 8, 33):
        memory = torch.full((3 * N + 64,), 7.0, device=device.DEVICE)
        launch(torch.ones(3, N, device=device.DEVICE), memory[: 3 * N].view(3, N))
        if not memory[3 * N :].eq(7.0).all():
            return False
    return True
    # >>>


# %% checks
import triton
import triton.language as tl

PAGE = "learn/your_own_kernel.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Let `y` be the beginning of a longer piece of memory, filled with a number that no result can be.",
    "After the launch, check whether what lies past the end has changed.",
    "A width that is a power of two may fill its block exactly, and then a missing mask does no harm.",
)
WHY = """A width that is a power of two may fill its chunk exactly, and then a missing mask does no harm. So try some
that don't."""


@triton.jit
def copy_kernel(x_ptr, y_ptr, N, end, other, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + offsets, mask=offsets < N, other=other)
    tl.store(y_ptr + tl.program_id(0) * N + offsets, x, mask=offsets < end)


@triton.jit
def far_kernel(y_ptr, place):
    tl.store(y_ptr + place, 5.0)


def check(t):
    room = "this launch writes past all memory: `y` should be the beginning of a longer tensor, with room after it"

    def stored(y, end):
        """Whether element `end` - 1, counted from the first one of `y`, is in its memory."""
        t.require(y.storage_offset() + end <= y.untyped_storage().nbytes() // y.element_size(), room, "stays_inside")

    def copied(x, y, end):
        rows, N = x.shape
        stored(y, (rows - 1) * N + end)
        copy_kernel[(rows,)](x, y, N, end, 0, BLOCK=2 * triton.next_power_of_2(N))

    def masked(x, y):
        copied(x, y, x.shape[1])

    def unmasked(x, y):
        copied(x, y, triton.next_power_of_2(x.shape[1]))

    def one_too_many(x, y):
        copied(x, y, x.shape[1] + 1)

    def far_away(x, y):
        copied(x, y, x.shape[1])
        place = x.numel() + x.shape[1] // 2
        stored(y, place + 1)
        far_kernel[(1,)](y, place)

    def one_row(x, y):
        copied(x[:1], y[:1], x.shape[1])

    t.value("stays_inside", (masked,), True)
    t.value("stays_inside", (unmasked,), False, note="It fills whole blocks, whatever the width.")
    t.value("stays_inside", (one_too_many,), False, note="It writes one element too many.")
    t.value("stays_inside", (far_away,), False, note="It writes one element, half a row past the end.")
    t.value("stays_inside", (one_row,), True, note="It writes the first row only, which is inside.")

    def a_row_further(x, y):
        copied(x, y, x.shape[1])
        place = x.numel() + x.shape[1] - 1
        stored(y, place + 1)
        far_kernel[(1,)](y, place)

    def last_row_wider(x, y):
        copied(x[:-1], y[:-1], x.shape[1])
        copied(x[-1:], y[-1:], x.shape[1] + 2)

    def nothing(x, y):
        pass

    t.value("stays_inside", (a_row_further,), False, note="It writes one element, a row past the last one.")
    t.value("stays_inside", (last_row_wider,), False, note="It writes two elements too many.")
    t.value("stays_inside", (nothing,), True, note="It writes nothing.")


WRONG = (
    (
        "`y` should be the beginning of a longer tensor, with room after it",
        "memory = torch.full((3 * N + 64,)",
        "memory = torch.full((3 * N,)",
    ),
    (
        "It writes one element, half a row past the end",
        "memory[3 * N :].eq",
        "memory[3 * N : 3 * N + 2].eq",
    ),
    (
        "It writes the first row only, which is inside",
        "        if not memory[3 * N :].eq(7.0).all():",
        "        if not memory[3 * N :].eq(7.0).all() or memory[2 * N] == 7.0:",
    ),
    ("stays_inside(masked) is None, should be True",),
    (
        "It fills whole blocks, whatever the width",
        "(5, 8, 33)",
        "(8, 16)",
    ),
    (
        "It writes one element too many",
        "memory[3 * N :]",
        "memory[3 * N + 1 :]",
    ),
    (
        "stays_inside(masked) is False, should be True",
        "memory[3 * N :]",
        "memory[3 * N - 1 :]",
    ),
)
RIGHT = (
    (
        "(5, 8, 33)",
        "(7,)",
        "7.0, device",
        "-1.0, device",
        "eq(7.0)",
        "eq(-1.0)",
    ),
    (
        "for N in (5, 33):\n"
        "    memory = torch.full((6 * N,), 3.0, device=device.DEVICE)\n"
        "    launch(torch.ones(3, N, device=device.DEVICE), memory[: 3 * N].view(3, N))\n"
        "    if (memory[3 * N :] - 3.0).abs().max() > 0:\n"
        "        return False\n"
        "return True",
    ),
)
