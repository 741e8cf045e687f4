"""# How many keys does a row see?

A tile of queries has a row for each pair of a new token and a head: first all heads of the oldest new token, then
those of the next. The last new token is the last key of the sequence and sees all `length` keys, the one before it a
key fewer. Complete `keys_seen(length, T, H)`: for each of the `T * H` rows, how many keys it sees. In a sequence
shorter than `T` the first tokens see none.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def keys_seen_kernel(out_ptr, length, T, H, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    # <<<
    count = tl.maximum(length - T + rows // H + 1, 0)
    # ===
    # count = length + 0 * rows
    # >>>
    tl.store(out_ptr + rows, count, mask=rows < T * H)


def keys_seen(length, T, H):
    out = torch.empty(T * H, dtype=torch.int32, device=device.DEVICE)
    keys_seen_kernel[(1,)](out, length, T, H, BLOCK=triton.next_power_of_2(T * H))
    return out


# %% checks
PAGE = "kernels/attention/mla_decode.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Row `rows` belongs to token `rows // H`, counted from 0. For the last that is T − 1, and it sees `length` keys.",
    "Each token sees one key more than the one before it. A number of keys is never negative.",
)
WHY = """All rows read the same tile of keys, and only the mask knows that they are different tokens. With the length
for every row the first new token would look at the later ones, which a model that guesses several tokens ahead then
accepts too often."""


def check(t):
    def want(length, T, H):
        token = torch.arange(T * H) // H
        return (length - T + token + 1).clamp(min=0).to(torch.int32)

    def seen(token, length, T):
        return (length - T + token + 1).clamp(min=0).to(torch.int32)

    mistakes = {
        lambda length, T, H: seen(torch.arange(T * H) % T, length, T): "All heads of a token lie together.",
        lambda length, T, H: seen(torch.arange(T * H) % H, length, T): "A row belongs to token `rows // H`.",
        lambda length, T, H: seen(T - 1 - torch.arange(T * H) // H, length, T): "The oldest token comes first.",
        lambda length, T, H: seen(torch.arange(T * H) // H - 1, length, T): "The last token sees all `length` keys.",
        lambda length, T, H: (length - T + torch.arange(T * H) // H + 1).to(torch.int32): "A row sees at least 0 keys.",
    }
    drawn = (t.random.randint(9, 99), t.random.randint(2, 8), t.random.randint(2, 9))
    for length, T, H in ((9, 1, 3), (9, 2, 3), (7, 3, 1), (2, 4, 2), (0, 2, 2), (1, 1, 1), (40, 8, 5), drawn):
        case = f"length {length}, {t.counted(T, 'token')}, {t.counted(H, 'head')}"
        t.compare(case, "keys_seen", want, length, T, H, exact=True, mistakes=mistakes)


WRONG = (
    ("length 9, 2 tokens, 3 heads: out[0] is 9, should be 8",),
    ("A row belongs to token `rows // H`", "rows // H", "rows % H"),
    (
        "A row sees at least 0 keys",
        "tl.maximum(length - T + rows // H + 1, 0)",
        "length - T + rows // H + 1",
    ),
    ("The last token sees all `length` keys", " + 1, 0)", ", 0)"),
)
RIGHT = (
    ("token = rows // H\ncount = tl.maximum(length - (T - 1 - token), 0)",),
    ("count = tl.where(length - T + rows // H < 0, 0, length - T + rows // H + 1)",),
)
