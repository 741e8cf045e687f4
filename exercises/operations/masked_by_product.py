"""# Zero times infinity

`terms(logprobs, old, advantages, mask)` computes −ρA of each token, and 0 where the mask is 0. It returns NaN for
some tokens that don't count. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def terms_kernel(logprobs_ptr, old_ptr, advantages_ptr, mask_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    counts = tl.load(mask_ptr + offs, mask=inside, other=0)
    logprobs = tl.load(logprobs_ptr + offs, mask=inside, other=0.0)
    old = tl.load(old_ptr + offs, mask=inside, other=0.0)
    advantages = tl.load(advantages_ptr + offs, mask=inside, other=0.0)
    ratio = tl.exp(logprobs - old)
    # <<<
    term = tl.where(counts != 0, -ratio * advantages, 0.0)
    # ===
    # term = -ratio * advantages * counts
    # >>>
    tl.store(out_ptr + offs, term, mask=inside)


def terms(logprobs, old, advantages, mask, BLOCK=8):
    out = torch.empty_like(logprobs)
    n = logprobs.numel()
    terms_kernel[(triton.cdiv(n, BLOCK),)](logprobs, old, advantages, mask, out, n, BLOCK=BLOCK)
    return out


# %% checks
PAGE = "kernels/classics/policy_loss.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Behind the end of an answer there is padding, and nobody cares what log-probabilities it has. How large can the "
    "ratio become?",
    "Infinity times zero is NaN, and so is NaN times zero.",
    "`tl.where(condition, a, b)` chooses in each lane.",
)
WHY = """A product with 0 is 0 for finite numbers only. What doesn't count must be left out, not multiplied away. In a
backward pass the same holds for the slope: it must be chosen, too."""


def check(t):
    def want(logprobs, old, advantages, mask):
        return torch.where(mask != 0, -(logprobs - old).exp() * advantages, 0.0)

    def padded(n, padding, which=0):
        """The last third doesn't count, and holds `padding` in argument number `which`."""
        counts = [int(place < n - n // 3) for place in range(n)]
        given = [t.values(n) for _ in range(3)]
        for place, each in enumerate(counts):
            if not each:
                given[which][place] = padding
        return *given, t.surrounded(torch.tensor(counts, dtype=torch.int32))

    special = ("*",)
    for n in (5, 9, *t.sizes(8)):
        t.compare(f"{n} tokens", "terms", want, *padded(n, 0.5), spare=special)
    for padding in (200.0, float("inf"), float("nan")):
        case = f"12 tokens, the last four don't count and hold {padding:g}"
        t.compare(case, "terms", want, *padded(12, padding), spare=special)
    note = "Where the mask is 0 the term is 0, whatever stands there."
    case = "12 tokens, the last four don't count and have no advantage"
    t.compare(case, "terms", want, *padded(12, float("nan"), which=2), spare=special, note=note)
    lost = padded(12, 0.5)
    lost[0][3] = float("nan")
    note = "Token 3 counts, and its log-probability is NaN: nobody may hide that."
    t.compare("a NaN that counts", "terms", want, *lost, spare=special, note=note)


WRONG = (
    ("hold 200: out[8] is nan",),
    ("hold nan: out[8] is nan", 'term = tl.where(ratio == float("inf"), 0.0, -ratio * advantages * counts)'),
    ("whatever stands there", "term = -tl.where(counts != 0, ratio, 0.0) * advantages"),
    ("nobody may hide that", "term = -ratio * advantages * counts\nterm = tl.where(term == term, term, 0.0)"),
    ("5 tokens: out[", "term = -ratio * advantages"),
    ("5 tokens: out[", "term = tl.where(counts != 0, ratio * advantages, 0.0)"),
    ("5 tokens: out[", "term = tl.where(counts != 0, 0.0, -ratio * advantages)"),
)
RIGHT = (
    ("keep = counts != 0\nterm = tl.where(keep, -ratio, 0.0) * tl.where(keep, advantages, 0.0)",),
    ("term = tl.where(counts == 0, 0.0, -tl.exp(logprobs - old) * advantages)",),
)
