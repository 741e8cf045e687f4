"""# Is the label mine?

A rank has the columns `first` to `first + N` of a vocabulary, `N` of them, in the matrix `x`. Labels are numbers of
entries of the *whole* vocabulary; -100 means that the row is ignored. Write the kernel of
`label_logits(x, labels, first)`: for each row the logit of its label if that is one of this rank's columns, and 0 if
not.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def label_logits_kernel(x_ptr, labels_ptr, out_ptr, first, N, stride):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels_ptr + row)
    # <<<
    column = label - first
    here = (column >= 0) & (column < N)
    tl.store(out_ptr + row, tl.load(x_ptr + row * stride + column, mask=here, other=0.0))
    # >>>


def label_logits(x, labels, first):
    out = torch.empty(x.shape[0], device=x.device)
    label_logits_kernel[(x.shape[0],)](x, labels, out, first, x.shape[1], x.stride(0))
    return out


# %% checks
PAGE = "kernels/distributed/vocab_parallel_cross_entropy.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Which column of this rank is entry `label` of the vocabulary? The first column is entry `first`.",
    "Another rank's label gives a column that is negative, or too large. A mask keeps it from becoming an address.",
    "`other=` is what a load returns where the mask is off.",
)
WHY = """The sum over the ranks is the label's logit, because exactly one of them has it. To clamp the column into the
shard instead would make every rank report one."""


def check(t):
    def want(x, labels, first):
        column = labels - first
        here = (column >= 0) & (column < x.shape[1])
        found = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        for row in range(x.shape[0]):
            if here[row].item():
                found[row] = x[row, int(column[row].item())]
        return found

    def compared(case, columns, first, numbers, note):
        labels = t.surrounded(torch.tensor(numbers))
        t.compare(case, "label_logits", want, t.cut(len(numbers), columns), labels, first, note=note)

    own = "The label is an entry of the vocabulary, and the columns here begin at `first`."
    others = "A label of another rank must not become an address, and its logit is none of this rank's."
    compared("all labels are here", 5, 10, [10, 12, 14], own)
    compared("labels of other ranks", 5, 10, [9, 15, 11, 3, 40], others)
    compared("an ignored row", 4, 0, [-100, 2, 0], others)
    compared("far labels", 3, 2**31 + 7, [2**31 + 7, 2**31 + 9, 7, -100, 2**31 + 10], others)
    compared("one column", 1, 0, [0, 1, -1, -100], others)
    compared("60 columns", 60, 1000, [1000, 1059, 1060, 999, *range(1000, 1060, 7)], own)
    first, columns = t.random.randint(3, 30), t.random.randint(2, 9)
    numbers = [t.random.randint(0, first + 2 * columns) for _ in range(6)] + [first - 1, first + columns]
    compared("drawn", columns, first, numbers, others)


WRONG = (
    ("all labels are here: label_logits_kernel stores nothing yet",),
    ("all labels are here", "column = label - first", "column = label"),
    ("labels of other ranks", "here = (column >= 0) & (column < N)", "here = column < N"),
    ("labels of other ranks", "here = (column >= 0) & (column < N)", "here = column >= 0"),
    (
        "labels of other ranks",
        "here = (column >= 0) & (column < N)",
        "column = tl.minimum(tl.maximum(column, 0), N - 1)\n    here = column >= 0",
    ),
)
RIGHT = (
    (
        "inside = (label >= first) & (label < first + N)\n"
        "x = tl.load(x_ptr + row * stride + label - first, mask=inside, other=0.0)\n"
        "tl.store(out_ptr + row, x)",
    ),
    (
        "value = 0.0\n"
        "for column in range(N):\n"
        "    x = tl.load(x_ptr + row * stride + column)\n"
        "    value = tl.where(label == first + column, x, value)\n"
        "tl.store(out_ptr + row, value)",
    ),
)
