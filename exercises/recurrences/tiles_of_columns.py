"""# Which way may a state be cut?

`one_token(state, k, v, g, beta)` does one step of Kimi's delta rule: each row of the state fades by its own gate, the
key asks, and the difference is written. A state is too large for one program, so each takes a tile of 4 rows. With up
to 4 rows the result is right, with more it is wrong everywhere. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def one_token_kernel(
    state_ptr, k_ptr, v_ptr, g_ptr, beta, new_ptr, D, E, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr
):  # fmt: skip
    # <<<
    d = tl.arange(0, BLOCK_D)
    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)
    # ===
    # d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    # e = tl.arange(0, BLOCK_E)
    # >>>
    mask = (d < D)[:, None] & (e < E)[None, :]
    state = tl.load(state_ptr + d[:, None] * E + e[None, :], mask=mask, other=0.0)
    k = tl.load(k_ptr + d, mask=d < D, other=0.0)
    g = tl.load(g_ptr + d, mask=d < D, other=0.0)
    v = tl.load(v_ptr + e, mask=e < E, other=0.0)
    state *= tl.exp(g)[:, None]
    u = beta * (v - tl.sum(k[:, None] * state, axis=0))
    tl.store(new_ptr + d[:, None] * E + e[None, :], state + k[:, None] * u[None, :], mask=mask)


def one_token(state, k, v, g, beta):
    D, E = state.shape
    new = torch.empty_like(state)
    # <<<
    sizes = dict(BLOCK_D=triton.next_power_of_2(D), BLOCK_E=4)
    one_token_kernel[(triton.cdiv(E, 4),)](state, k, v, g, beta, new, D, E, **sizes)
    # ===
    # sizes = dict(BLOCK_D=4, BLOCK_E=triton.next_power_of_2(E))
    # one_token_kernel[(triton.cdiv(D, 4),)](state, k, v, g, beta, new, D, E, **sizes)
    # >>>
    return new


# %% checks
PAGE = "kernels/recurrences/kda_step.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Which numbers of the state does the answer to the key need? Look at the axis of the sum.",
    "A column is asked from its first row to its last. What does one column need of another?",
    "Tiles of columns: the program's number goes into `e`, all rows are in `d`, and the grid counts columns.",
)
WHY = """The answer to a key is a sum over rows, so a program with some rows has a part of it, and writes a difference
of its own. Columns need nothing of each other: each is a small memory for one number of the value. So a step of a layer
with few heads and one sequence still has programs enough, and no two of them have to talk."""


def check(t):
    def want(state, k, v, g, beta):
        faded = state * torch.exp(g)[:, None]
        return faded + k[:, None] * (beta * (v - (k[:, None] * faded).sum(0)))[None, :]

    def in_tiles(state, k, v, g, beta):
        rows = [slice(at, at + 4) for at in range(0, len(k), 4)]
        return torch.cat([want(state[rows_], k[rows_], v, g[rows_], beta) for rows_ in rows])

    mistakes = {in_tiles: "Each program asked its own rows only, and the answer is a sum over all of them."}
    few = ("both signs", "one large number", "a NaN", "an infinity", "minus infinity")
    gates = tuple(f"{kind} in g" for kind in few)  # a gate is at most 0
    sizes = ((3, 3), (4, 6), (6, 4), (9, 5), (5, 40), (t.random.randint(5, 12), t.random.randint(5, 12)))
    for D, E in sizes:
        given = t.values(D, E), t.values(D, scale=0.3), t.values(E), -t.positive(D), t.random.uniform(0.2, 1.0)
        case = f"{D} rows and {E} columns"
        run = t.compare(case, "one_token", want, *given, name="state", mistakes=mistakes, spare=gates)
        storing = {
            access.program for access in run.accesses if access.operation == "store" and access.elements.max() >= 0
        }
        t.require(E < 40 or len(storing) != 1, "One program has all of the state. How may it be cut?", case)


WRONG = (
    ("the answer is a sum over all of them",),
    (
        "4 rows and 6 columns: ",
        "one_token_kernel[(triton.cdiv(E, 4),)]",
        "one_token_kernel[(triton.cdiv(D, 4),)]",
    ),
    (
        "no program of one_token_kernel writes new_ptr[0, 4]",
        "    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)",
        "    e = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_E)",
        "triton.cdiv(E, 4)",
        "triton.cdiv(E, 2)",
    ),
    (
        "How may it be cut?",
        "BLOCK_E=4",
        "BLOCK_E=triton.next_power_of_2(E)",
        "triton.cdiv(E, 4)",
        "1",
    ),
    (
        "6 rows and 4 columns: ",
        "BLOCK_D=triton.next_power_of_2(D)",
        "BLOCK_D=4",
    ),
)
RIGHT = (
    ("BLOCK_E=4", "BLOCK_E=16", "triton.cdiv(E, 4)", "triton.cdiv(E, 16)"),
    (
        "    e = tl.program_id(0) * BLOCK_E + tl.arange(0, BLOCK_E)",
        "    e = tl.program_id(0) + tl.arange(0, BLOCK_E)",
        "BLOCK_E=4",
        "BLOCK_E=1",
        "triton.cdiv(E, 4)",
        "E",
    ),
)
