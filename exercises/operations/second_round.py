"""# The second round

Forward has gone through all pieces of the vocabulary once, and kept the log-sum-exp `lse` of each row. Backward makes
the pieces again, one by one. `gradient_of_piece(z, tokens, lse, g, start)` gets one of them: `z` has its logits, the
first of which belongs to token `start`. It returns the gradient of the loss with respect to these logits, where `g` is
the upstream gradient of each row's log-probability. A row whose token is −100 doesn't count: its gradient is 0,
whatever its logits are.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(z_ptr, tokens_ptr, lse_ptr, g_ptr, dz_ptr, start, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    z = tl.load(z_ptr + row * N + column, mask=column < N, other=0.0)
    token, lse, g = tl.load(tokens_ptr + row), tl.load(lse_ptr + row), tl.load(g_ptr + row)
    # <<<
    p = tl.exp(z - lse)
    dz = g * (tl.where(start + column == token, 1.0, 0.0) - p)
    dz = tl.where(token == -100, 0.0, dz)
    # ===
    # dz = z
    # >>>
    tl.store(dz_ptr + row * N + column, dz, mask=column < N)


def gradient_of_piece(z, tokens, lse, g, start):
    dz = torch.empty_like(z)
    rows, N = z.shape
    gradient_kernel[(rows,)](z, tokens, lse, g, dz, start, N, BLOCK=triton.next_power_of_2(N))
    return dz


# %% checks
PAGE = "kernels/classics/linear_token_logprobs.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "The log-probability of the token is its logit less the log-sum-exp. The derivative of the second is p, that of "
    "the first is 1 at the token and 0 elsewhere.",
    "p is a share of the whole row, and most of the row isn't here. Which number of the first round has all of it?",
    "0 times NaN is NaN. What doesn't count has to be chosen away, by `tl.where`.",
)
WHY = """Two rounds, because no piece knows the sum of its row before the last one was seen. The log-sum-exp is all that
the second round needs of the first: with it a piece has its gradient at once, which overwrites its logits and is
multiplied into the gradients of the hidden states and the weights. A softmax over the piece would add up to 1 in each
of the pieces."""


def check(t):
    def slope(share, ignored=True, at=lambda tokens, start: tokens - start):
        def want(z, tokens, lse, g, start):
            column = torch.arange(z.shape[1], device=z.device)
            hit = torch.where(column[None] == at(tokens, start)[:, None], torch.ones_like(z), torch.zeros_like(z))
            dz = g[:, None] * (hit - share(z, lse))
            return torch.where((tokens == -100)[:, None], torch.zeros_like(z), dz) if ignored else dz

        return want

    def p(z, lse):
        return (z - lse[:, None]).exp()

    def of_piece(z, lse):
        e = (z - z.amax(1, keepdim=True)).exp()
        return e / e.sum(1, keepdim=True)

    want = slope(p)
    mistakes = {
        slope(of_piece): "That is a softmax over the piece. The row has more tokens than those.",
        slope(p, at=lambda tokens, start: tokens): "Column 0 of this piece is token `start`.",
        lambda z, tokens, *rest: slope(p, ignored=False)(z, tokens, *rest) * (tokens != -100)[:, None]: (
            "0 times NaN is NaN: what doesn't count has to be chosen away."
        ),
        slope(p, ignored=False): "A row whose token is −100 doesn't count.",
        lambda *given: -want(*given): "The sign: a larger logit of the token makes it more likely.",
        lambda z, tokens, lse, g, start: want(
            z, tokens, lse, torch.ones_like(g), start
        ): "What is upstream is missing.",
        lambda z, tokens, lse, g, start: (
            want(z, tokens, lse, g, start) * ((tokens >= start) & (tokens < start + z.shape[1]))[:, None]
        ): "A row whose token is in another piece has probabilities in this one, too.",
    }

    def compared(case, rows, N, start, tokens, nan=False):
        z, tokens = t.values(rows, N), t.surrounded(torch.tensor(tokens))
        rest = t.positive(rows, 3)  # of the other pieces
        lse = t.surrounded((z.exp().sum(1) + rest.exp().sum(1)).log())
        if nan:
            z = torch.where((tokens == -100)[:, None], torch.full_like(z, float("nan")), z)
        given = z, tokens, lse, t.values(rows), start
        t.compare(case, "gradient_of_piece", want, *given, name="dz", mistakes=mistakes, spare=("*",))

    compared("the first piece", 2, 4, 0, [2, 0])
    compared("the third piece", 2, 4, 8, [10, 1])
    compared("a token that is elsewhere", 1, 5, 4, [20])
    compared("a row that doesn't count", 3, 3, 0, [1, -100, 2])
    compared("a row of NaN that doesn't count", 2, 3, 0, [1, -100], nan=True)
    for _ in range(3):
        rows, N, start = t.random.randint(1, 4), t.random.randint(2, 9), t.random.randint(0, 30)
        tokens = [t.random.choice((-100, start, start + t.random.randrange(N), 0)) for _ in range(rows)]
        compared(f"{rows} x {N} from token {start}", rows, N, start, tokens)


WRONG = (
    ("the first piece: dz[0, 0] is",),
    (
        "That is a softmax over the piece",
        "p = tl.exp(z - lse)",
        "e = tl.where(column < N, tl.exp(z), 0.0)\n    p = e / tl.sum(e, axis=0)",
    ),
    ("is token `start`", "start + column == token", "column == token"),
    ("A row whose token is −100 doesn't count", "    dz = tl.where(token == -100, 0.0, dz)\n", ""),
    ("is in another piece", "token == -100", "(token < start) | (token >= start + N)"),
    ("0 times NaN is NaN", "tl.where(token == -100, 0.0, dz)", "dz * (token != -100)"),
    ("The sign", "dz = g * (", "dz = -g * ("),
    ("What is upstream is missing", "dz = g * (", "dz = 1.0 * ("),
)
RIGHT = (
    (
        "hit = (column == token - start).to(tl.float32)\n"
        "dz = tl.where(token != -100, g * hit - g * tl.exp(z - lse), 0.0)",
    ),
    (
        "dz = -g * tl.exp(z - lse)\n"
        "dz = tl.where(start + column == token, dz + g, dz)\n"
        "dz = tl.where(token == -100, 0.0, dz)",
    ),
)
