"""# In which piece is the token?

`logprobs(x, weight, tokens, columns)` never holds all logits: it makes `columns` of them at a time, from as many rows
of the weights, and hands a state from piece to piece: each row's maximum, its sum, and the logit of its token. With a
single piece it is right, with several the log-probabilities are those of other tokens. Find the bug.

[[figure: rows/pieces]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def add_piece_kernel(
    x_ptr, weight_ptr, tokens_ptr,  # (rows, D), (vocab, D), (rows,)
    largest_ptr, sums_ptr, out_ptr,  # (rows,), (rows, 2), (rows,)
    start, end, D, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    d = tl.arange(0, BLOCK_D)
    x = tl.load(x_ptr + row * D + d, mask=d < D, other=0.0)
    column = tl.arange(0, BLOCK_N)
    here = start + column < end
    weight_ptrs = weight_ptr + (start + column)[:, None] * D + d[None, :]
    weight = tl.load(weight_ptrs, mask=here[:, None] & (d < D)[None, :], other=0.0)
    z = tl.where(here, tl.sum(weight * x[None, :], axis=1), -float("inf"))

    before, total = tl.load(largest_ptr + row), tl.load(sums_ptr + 2 * row)
    largest = tl.maximum(before, tl.max(z, axis=0))
    total = total * tl.exp(before - largest) + tl.sum(tl.exp(z - largest), axis=0)
    of_token = tl.load(sums_ptr + 2 * row + 1)
    token = tl.load(tokens_ptr + row)
    # <<<
    of_token += tl.sum(tl.where(here & (start + column == token), z, 0.0), axis=0)
    # ===
    # of_token += tl.sum(tl.where(here & (column == token), z, 0.0), axis=0)
    # >>>
    tl.store(largest_ptr + row, largest)
    tl.store(sums_ptr + 2 * row, total)
    tl.store(sums_ptr + 2 * row + 1, of_token)
    tl.store(out_ptr + row, of_token - largest - tl.log(total))


def logprobs(x, weight, tokens, columns):
    (rows, D), vocab = x.shape, len(weight)
    largest, sums = torch.full((rows,), -float("inf"), device=x.device), torch.zeros(rows, 2, device=x.device)
    out = torch.empty(rows, device=x.device)
    for start in range(0, vocab, columns):
        end = min(start + columns, vocab)
        sizes = dict(BLOCK_N=triton.next_power_of_2(columns), BLOCK_D=triton.next_power_of_2(D))
        add_piece_kernel[(rows,)](x, weight, tokens, largest, sums, out, start, end, D, **sizes)
    return out


# %% checks
PAGE = "kernels/classics/linear_token_logprobs.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "Take a vocabulary of 8 in two pieces. Which token has column 1 of the second piece?",
    "A token counts the whole vocabulary, a column counts its piece.",
    "Pieces without the token add nothing. And a block may have more lanes than a piece has columns.",
)
WHY = """Column 1 of every piece passed for token 1, so the logits of several tokens were added up; and a token behind
the first piece was in none of them. The sum over the vocabulary doesn't show it, nor does the loss of a model with a
vocabulary of one piece, as in most tests: they need a vocabulary that isn't a multiple of the piece, and tokens in each
of the pieces."""


def check(t):
    def want(x, weight, tokens, columns):
        z = (x[:, None, :] * weight[None, :, :]).sum(2)
        picked = torch.arange(len(weight), device=x.device)[None] == tokens[:, None]
        z = z - z.amax(1, keepdim=True)
        return torch.where(picked, z, 0.0).sum(1) - z.exp().sum(1).log()

    def of(found):
        """With the sum of the logits that `found(token, number, columns, vocab)` takes for the token's."""

        def wrong(x, weight, tokens, columns):
            z, vocab = (x[:, None, :] * weight[None, :, :]).sum(2), len(weight)
            taken = [[found(token, i, columns, vocab) for i in range(vocab)] for token in tokens.tolist()]
            of_token = torch.where(torch.tensor(taken, device=x.device), z, 0.0).sum(1)
            most = z.amax(1)
            return of_token - most - (z - most[:, None]).exp().sum(1).log()

        return wrong

    mistakes = {
        of(lambda token, i, columns, vocab: i % columns == token): (
            "The token is looked for in each piece, as if it were the first one."
        ),
        of(lambda token, i, columns, vocab: i % columns == token % columns): (
            "A column of each piece passes for the token, which is in one of them only."
        ),
        of(lambda token, i, columns, vocab: i == token >= (vocab - 1) // columns * columns): (
            "What an earlier piece has found is lost."
        ),
    }

    def compared(case, rows, vocab, D, columns, tokens):
        given = t.values(rows, D), t.values(vocab, D), t.surrounded(torch.tensor(tokens))
        t.compare(case, "logprobs", want, *given, columns, mistakes=mistakes, spare=("*",))

    compared("one piece", 2, 4, 3, 4, [1, 3])
    compared("a token of the second piece", 1, 8, 2, 4, [5])
    compared("a token of the first piece", 1, 8, 2, 4, [1])
    compared("pieces of 3 in blocks of 4", 2, 7, 2, 3, [3, 6])
    for _ in range(4):
        columns, rows = t.random.choice((2, 3, 4, 8)), t.random.randint(1, 4)
        vocab = columns * t.random.randint(2, 4) + t.random.randint(0, 1)
        tokens = [t.random.randrange(vocab) for _ in range(rows)]
        compared(f"{vocab} tokens in pieces of {columns}", rows, vocab, t.random.randint(1, 5), columns, tokens)


WRONG = (
    ("as if it were the first one",),
    ("A column of each piece passes for the token", "start + column == token", "column == token % (end - start)"),
    ("pieces of 3 in blocks of 4: out[0] is -inf", "here & (start + column == token)", "start + column == token"),
    (
        "one piece: out[0] is",
        "of_token += tl.sum(tl.where(here & (column == token - start + 1), z, 0.0), axis=0)",
    ),
    ("one piece: out[0] is", "tl.where(here & (start + column == token), z, 0.0)", "tl.where(here, z, 0.0)"),
    (
        "What an earlier piece has found is lost",
        "of_token = tl.sum(tl.where(here & (start + column == token), z, 0.0), axis=0)",
    ),
)
RIGHT = (
    ("of_token += tl.sum(tl.where(here & (column == token - start), z, 0.0), axis=0)",),
    (
        "inside = (token >= start) & (token < end)\n"
        "mine = tl.load(weight_ptr + token * D + d, mask=inside & (d < D), other=0.0)\n"
        "of_token += tl.sum(mine * x, axis=0)",
    ),
)
