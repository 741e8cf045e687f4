"""# An index, or a slot?

An indexer names keys by their place in the sequence. A kernel reads them from a pool of pages, where a sequence's pages
lie anywhere: `table[p]` is the pool's page that holds page `p` of the sequence. Row `r` of the pool's page `q` has the
slot `q * page_size + r`.

Let `to_slots(indices, table, page_size)` return the slots, in int64. An index of −1 stands for none, and so does a slot
of −1. An index that the table doesn't have, or whose page is negative, is a mistake. It becomes −2, which attention
turns into NaN.

[[figure: selected/slots]]
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def slots_kernel(indices_ptr, table_ptr, slots_ptr, K, pages, page_size, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < K
    j = tl.load(indices_ptr + offs, mask=mask, other=-1)
    # <<<
    known = (j >= 0) & (j < pages * page_size)
    page = tl.load(table_ptr + j // page_size, mask=known, other=-1).to(tl.int64)
    slot = tl.where(page >= 0, page * page_size + j % page_size, -2)
    slot = tl.where(j == -1, -1, slot)
    # ===
    # slot = j
    # >>>
    tl.store(slots_ptr + offs, slot, mask=mask)


def to_slots(indices, table, page_size):
    slots = torch.empty(len(indices), dtype=torch.int64, device=indices.device)
    slots_kernel[(triton.cdiv(len(indices), 8),)](indices, table, slots, len(indices), len(table), page_size, BLOCK=8)
    return slots


# %% checks
PAGE = "kernels/attention/sparse_decode.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "The index j lies in page j // page_size of the sequence, in row j % page_size. Where in the pool is that page?",
    "The table may only be read where the index is one of the sequence's. The mask of that load says so.",
    "A page of −1 times the page size, plus the last row of a page, is −1: a mistake would pass for none.",
    "A large pool has more rows than 32 bits can count. Widen the page before you multiply.",
)
WHY = """Both are whole numbers, and the rows that are read exist, so no shape tells an index from a slot. Pages that
lie in order hide the mistake, too: tests need a table that is out of order. And whatever is wrong has to stay apart
from −1: a missing key is left out in silence, a mistake must not be."""


def check(t):
    def slots(known, of_none=-1, of_mistake=-2):
        """With `known(j, table, size)` for the slot of an index that the table has; None for a mistake."""

        def want(indices, table, size):
            table, found = table.tolist(), []
            for j in indices.tolist():
                row = known(j, table, size) if 0 <= j < len(table) * size else None
                found.append(of_none if j == -1 else of_mistake if row is None else row)
            return torch.tensor(found, dtype=torch.int64, device=device.DEVICE)

        return want

    def slot(j, table, size):
        return table[j // size] * size + j % size if table[j // size] >= 0 else None

    mistakes = {
        slots(lambda j, table, size: j): "Those are the indices. In which page of the pool does each of them lie?",
        slots(lambda j, table, size: table[j // size]): "Those are the pages. A page has several rows.",
        slots(
            lambda j, table, size: table[j // size] + j % size * size if table[j // size] >= 0 else None
        ): "From page to page it is `page_size` slots, from row to row one.",
        slots(lambda j, table, size: table[j // size] * size + j % size): "A page of −1 isn't the pool's page.",
        slots(slot, of_mistake=-1): "A page or an index that isn't there is a mistake, and must not pass for none.",
        slots(slot, of_none=-2): "None is no mistake: −1 stays −1.",
    }

    def compared(case, indices, table, size, note=""):
        given = (t.surrounded(torch.tensor(each, dtype=torch.int32)) for each in (indices, table))
        t.compare(case, "to_slots", slots(slot), *given, size, name="slots", exact=True, mistakes=mistakes, note=note)

    compared("2 pages of 3", [1, 0, 4, 5, 2], [2, 0], 3)
    compared("a list with none", [3, -1, -1, 1], [1, 4, 0], 2)
    compared("a page that isn't there", [0, 1, 2, 3], [3, -1], 2)
    compared("indices of another sequence", [5, 6, 4, 100], [1, 0, 2], 2)
    compared("an index of -3", [-3, 0, -1], [1, 0], 2)
    note = "A page times the page size needs 64 bits here."
    compared("a large pool", [7, 130], [3, 40_000_000, 35_000_000], 64, note=note)
    compared("17 indices", [*range(16), 3], [5, 2, 4, 1], 4)
    for size in (1, 3, t.random.randint(4, 7)):
        table = [t.random.randint(-1, 20) for _ in range(t.random.randint(3, 6))]
        indices = [t.random.randint(-1, len(table) * size) for _ in range(t.random.randint(5, 30))]
        compared(f"pages of {size}", indices, table, size)


WRONG = (
    ("2 pages of 3: slots[0] is 1, should be 7",),
    ("Those are the pages", "page * page_size + j % page_size", "page"),
    ("from row to row one", "page * page_size + j % page_size", "page + j % page_size * page_size"),
    ("A page of −1 isn't the pool's page", "page >= 0", "known"),
    ("must not pass for none", "j % page_size, -2)", "j % page_size, -1)"),
    ("None is no mistake", "    slot = tl.where(j == -1, -1, slot)\n", ""),
    ("needs 64 bits here", ".to(tl.int64)", ""),
    ("does a load outside a tensor", "mask=known, other=-1", "mask=j >= 0, other=-1"),
)
RIGHT = (
    (
        "page = j // page_size\n"
        "inside = (j >= 0) & (page < pages)\n"
        "q = tl.load(table_ptr + page, mask=inside, other=-1)\n"
        "slot = tl.where(q < 0, -2, q.to(tl.int64) * page_size + (j - page * page_size))\n"
        "slot = tl.where(j == -1, -1, slot)",
    ),
    (
        "known = (j >= 0) & (j < pages * page_size)\n"
        "first = tl.load(table_ptr + j // page_size, mask=known, other=-1).to(tl.int64) * page_size\n"
        "slot = tl.where(first >= 0, first + j % page_size, tl.where(j == -1, -1, -2))",
    ),
)
