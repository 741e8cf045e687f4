"""# A causal test for a valid key

`summed(values, lists)` adds up, for each query, the values of the keys that its list names; −1 means none. Query `i`
sees the keys up to `i`, and a later one in its list doesn't count, so the kernel loads where `j <= i`. The length of a
list is a power of two. Some sums are wrong. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def summed_kernel(values_ptr, lists_ptr, out_ptr, K: tl.constexpr):
    i, offsets = tl.program_id(0), tl.arange(0, K)
    j = tl.load(lists_ptr + i * K + offsets)
    # <<<
    values = tl.load(values_ptr + j, mask=(j >= 0) & (j <= i), other=0.0)
    # ===
    # values = tl.load(values_ptr + j, mask=j <= i, other=0.0)
    # >>>
    tl.store(out_ptr + i, tl.sum(values, axis=0))


def summed(values, lists):
    T, K = lists.shape
    out = torch.empty(T, dtype=torch.float32, device=device.DEVICE)
    summed_kernel[(T,)](values, lists, out, K=K)
    return out


# %% checks
PAGE = "kernels/attention/sparse_mla.md"
KIND = "find the bug"
ORDER = 3
HINTS = (
    "Is −1 at most `i`?",
    "A key is at least 0. What is −1 must not be loaded: it would be the number in front of the tensor.",
)
WHY = """One test does the work of two until the list has a gap. What lies before the tensor belongs to somebody else:
often it is a number that looks right, so the sum is off by a little, and nothing is reported."""


def check(t):
    def want(values, lists):
        found = [sum(values[j].item() for j in row if 0 <= j <= i) for i, row in enumerate(lists.tolist())]
        return torch.tensor(found, dtype=torch.float32, device=device.DEVICE)

    def numbers(rows):
        return t.surrounded(torch.tensor(rows, dtype=torch.int32))

    note = "Key 0 is a key, and a query sees the one at its own position."
    t.compare("full lists", "summed", want, t.values(3), numbers([[0, 0], [1, 0], [2, 0]]), note=note)
    t.compare("a gap", "summed", want, t.values(3), numbers([[0, -1], [-1, 1], [2, 1]]))
    drawn = [[t.random.randint(-1, 5) for _ in range(8)] for i in range(6)]
    note = "A key behind the query doesn't count."
    t.compare("later keys", "summed", want, t.values(3), numbers([[1, 0], [2, 1], [0, 2]]), note=note)
    t.compare("lists of 8", "summed", want, t.values(6), numbers(drawn))
    t.compare("no key at all", "summed", want, t.values(2), numbers([[-1, -1], [-1, -1]]))


WRONG = (
    ("a gap: ",),
    ("Key 0 is a key", "(j >= 0) & (j <= i)", "(j > 0) & (j <= i)"),
    ("the one at its own position", "(j >= 0) & (j <= i)", "(j >= 0) & (j < i)"),
    ("A key behind the query doesn't count", "(j >= 0) & (j <= i)", "j >= 0"),
)
RIGHT = (
    ("(j >= 0) & (j <= i)", "(j != -1) & (j <= i)"),
    ("(j >= 0) & (j <= i)", "(j > -1) & (j < i + 1)"),
)
