"""# The gradient of a shared key

All heads share the rotated part of a key. `shared_gradient(ds, q)` computes its gradient: for each key the sum over
heads and queries of the score's gradient times the query's rotated part. `ds` is (H, T, S), `q` is (H, T, E). It is
right for one head. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def shared_gradient_kernel(ds_ptr, q_ptr, out_ptr, H, T, E, BLOCK_E: tl.constexpr):
    j, S = tl.program_id(0), tl.num_programs(0)
    offsets = tl.arange(0, BLOCK_E)
    # <<<
    acc = tl.zeros((BLOCK_E,), tl.float32)
    for h in tl.range(0, H):
        for row in tl.range(h * T, h * T + T):
            q = tl.load(q_ptr + row * E + offsets, mask=offsets < E, other=0.0)
            acc += tl.load(ds_ptr + row * S + j) * q
    # ===
    # for h in tl.range(0, H):
    #     acc = tl.zeros((BLOCK_E,), tl.float32)
    #     for row in tl.range(h * T, h * T + T):
    #         q = tl.load(q_ptr + row * E + offsets, mask=offsets < E, other=0.0)
    #         acc += tl.load(ds_ptr + row * S + j) * q
    # >>>
    tl.store(out_ptr + j * E + offsets, acc, mask=offsets < E)


def shared_gradient(ds, q):
    (H, T, S), E = ds.shape, q.shape[2]
    out = torch.empty(S, E, dtype=torch.float32, device=device.DEVICE)
    shared_gradient_kernel[(S,)](ds, q, out, H, T, E, BLOCK_E=triton.next_power_of_2(E))
    return out


# %% checks
PAGE = "kernels/attention/mla.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Two heads: which of them is in what is stored?",
    "The sum begins once for each key. What begins anew with each head would be the gradient of that head's own key.",
)
WHY = """A key of a head's own gets a gradient from its head alone, so its sum starts again with each head. The shared
part gets one from all of them. As one program goes through the heads, the sum has one order, and the same bits each
time."""


def check(t):
    def want(ds, q):
        return torch.einsum("hts,hte->se", ds, q)

    drawn = tuple(t.random.randint(2, 5) for _ in range(4))
    for H, T, S, E in ((1, 3, 2, 4), (2, 1, 2, 2), (3, 2, 4, 5), (4, 3, 1, 1), drawn):
        t.compare(f"H = {H}, T = {T}, S = {S}", "shared_gradient", want, t.values(H, T, S), t.values(H, T, E))


WRONG = (
    ("H = 2, T = 1, S = 2: out[0, 0] is",),
    ("H = 2, T = 1, S = 2: out[0, 0] is", "for h in tl.range(0, H):", "for h in tl.range(0, 1):"),
    ("H = 1, T = 3, S = 2: out[0, 0] is", "acc += tl.load(ds_ptr + row * S + j) * q", "acc += q"),
)
RIGHT = (
    ("tl.range(0, H)", "range(H)"),
    ("acc += tl.load(ds_ptr + row * S + j) * q", "acc = acc + q * tl.load(ds_ptr + row * S + j)"),
)
