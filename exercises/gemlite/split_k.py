"""# A sum in parts

`dot(a, b, split_k)` adds up `a * b` with `split_k` programs, each with its own part of the sum. For some
lengths the end of the vectors is missing from the result. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, K, part, BLOCK_K: tl.constexpr):
    first = tl.program_id(0) * part
    acc = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for start in range(first, first + part, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = (k < first + part) & (k < K)
        acc += tl.load(a_ptr + k, mask=mask, other=0.0) * tl.load(b_ptr + k, mask=mask, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(acc, axis=0))


def dot(a, b, split_k):
    K = len(a)
    out = torch.zeros(1, device=a.device)
    # <<<
    part = triton.cdiv(K, split_k)
    # ===
    # part = K // split_k
    # >>>
    dot_kernel[(split_k,)](a, b, out, K, part, BLOCK_K=4)
    return out


# %% checks
PAGE = "kernels/gemlite/gemm_splitK.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "Ten products in three parts of three: which one is left out?",
    "Round up. The last part is then shorter, and the mask takes care of that.",
)
WHY = """`SPLIT_K` need not divide the sum. The parts are rounded up, and the last one is masked: its lanes past `K`
read zero."""


def check(t):
    def want(a, b, split_k):
        return (a * b).sum().view(1)

    def loaded(run):
        counts = {}
        for access in (access for access in run.accesses if access.tensor == "a_ptr"):
            counts[access.program[0]] = counts.get(access.program[0], 0) + int((access.elements >= 0).sum())
        return counts

    for K, split_k in (
        (8, 2),
        (10, 3),
        (3, 4),
        (1, 1),
        (17, 4),
        (t.random.randint(18, 40), t.random.randint(2, 6)),
        (7, 7),
        (200, 9),
        (33, 16),
        (300, 3),
    ):
        case, part, note = f"K = {K}, {split_k} parts", triton.cdiv(K, 4 * split_k) * 4, "Which products are left out?"
        run = t.compare(case, "dot", want, t.values(K), t.values(K), split_k, note=note)
        t.grid(case, run, (split_k,))
        for program, taken in loaded(run).items():
            t.require(
                taken <= part, f"program {program} takes {taken} products, and a part needs no more than {part}", case
            )


WRONG = (
    (
        "PyTorch computes the result",
        "    return out",
        "    return (a * b).sum().view(1)",
    ),
    (
        "PyTorch computes out_ptr",
        "out = torch.zeros(1, device=a.device)",
        "out = (a * b).sum().view(1)",
        "tl.atomic_add(out_ptr, tl.sum(acc, axis=0))",
        "tl.atomic_add(out_ptr, 0 * tl.sum(acc, axis=0))",
    ),
    ("K = 10, 3 parts: out[0] is",),
    (
        "K = 8, 2 parts: out[0] is",
        "part = split_k",
    ),
    (
        "K = 8, 2 parts: race in dot_kernel: program 0 stores out_ptr[0]",
        "tl.atomic_add(out_ptr, tl.sum(acc, axis=0))",
        "tl.store(out_ptr, tl.load(out_ptr) + tl.sum(acc, axis=0))",
    ),
    (
        "K = 8, 2 parts: out[0] is",
        "(k < first + part) & (k < K)",
        "k < K",
        "part = triton.cdiv(K, split_k)",
        "part = triton.cdiv(K, split_k) - 2",
    ),
    (
        "K = 8, 2 parts: program 0 takes 8 products, and a part needs no more than 4",
        "part = K",
    ),
)
RIGHT = (
    ("part = (K + split_k - 1) // split_k",),
    ("part = triton.cdiv(triton.cdiv(K, split_k), 4) * 4",),
)
