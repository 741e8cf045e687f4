"""# Which key head?

With grouped heads, `H` query heads share `Hk` key heads: the first `H // Hk` share the first one,
and so on. `keys_of_heads(k, H)` gives each query head the keys of its key head. It is right for `Hk = 1` and
for `Hk = H`. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def keys_of_heads_kernel(k_ptr, out_ptr, H, Hk, N, BLOCK: tl.constexpr):
    h = tl.program_id(0)
    # <<<
    hk = h // (H // Hk)
    # ===
    # hk = h % Hk
    # >>>
    offsets = tl.arange(0, BLOCK)
    k = tl.load(k_ptr + hk * N + offsets, mask=offsets < N, other=0.0)
    tl.store(out_ptr + h * N + offsets, k, mask=offsets < N)


def keys_of_heads(k, H):
    Hk, N = k.shape
    out = torch.empty(H, N, dtype=k.dtype, device=k.device)
    keys_of_heads_kernel[(H,)](k, out, H, Hk, N, BLOCK=triton.next_power_of_2(N))
    return out


# %% checks
PAGE = "kernels/attention/flash_attention.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "Six query heads and two key heads: query heads 0, 1 and 2 share key head 0. What is `h % 2` for them?",
    "How many heads are in a group? The number of the group is the number of the key head.",
)
WHY = """A group is a run of neighbouring heads, so the quotient says which group it is. The backward pass adds up the
gradients of each group, and the same mistake is possible there: a test with `Hk = 1` or `Hk = H` finds neither."""


def check(t):
    def want(k, H):
        return k[:, None, :].expand(k.shape[0], H // k.shape[0], k.shape[1]).reshape(H, k.shape[1])

    heads, group = t.random.randint(2, 5), t.random.randint(2, 5)
    for H, Hk in ((3, 1), (2, 2), (6, 2), (8, 2), (6, 3), (12, 3), (heads * group, heads), (64, 8), (40, 40), (48, 1)):
        N = t.random.choice((1, 4, 5, 33, 130, t.random.randint(2, 12)))
        t.compare(f"{H} query heads, {Hk} for keys", "keys_of_heads", want, t.values(Hk, N), H, exact=True)


WRONG = (
    (
        "8 query heads, 2 for keys",
        "hk = tl.where(Hk == H, h, h // 3)",
    ),
    (
        "PyTorch computes",
        "    return out",
        "    return k.repeat_interleave(H // Hk, 0)",
    ),
    ("6 query heads, 2 for keys: out[1, 0] is",),
    (
        "3 query heads, 1 for keys: program 1 of keys_of_heads_kernel does a load outside a tensor",
        "hk = h // Hk",
    ),
    (
        "2 query heads, 2 for keys: out[1, 0] is",
        "hk = h * Hk // (H + 1)",
    ),
    (
        "2 query heads, 2 for keys: out[1, 0] is",
        "hk = h // H",
    ),
)
RIGHT = (
    ("group = H // Hk\nhk = h // group",),
    ("hk = h * Hk // H",),
)
