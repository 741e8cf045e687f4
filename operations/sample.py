"""Drawing a token: what is compared with formulas, and what is measured.

A set is compared as a mask of ones and zeros, a token as the random number that it got. The random numbers of the
formulas are computed in PyTorch's whole numbers. Logits are whole numbers, so that many are equal.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "sampling.sample"
FAST = "fast.sample"
FUNCTION = "sample"
AXES = ("rows", "tokens")
DERIVATION = "sample"

# ---------------------------------------------------------------- public functions
DRAWN = {"top_k": (None, 3), "top_p": (None, 0.83)}
PUBLIC = [
    Public(
        "filter_logits", {"logits": "rows classes"} | DRAWN, at=(5, 300), differentiable=False,
        calls=[dict(top_k=20), dict(top_k=200, top_p=0.9)],
    ),
    Public(
        "sample", {"logits": "rows classes", "seed": 7, "temperature": (0.7, 0.0)} | DRAWN, at=(5, 300),
        calls=[dict(seed=7, top_k=20, top_p=0.9)], more=[dict(seed=7, temperature=0.5)], differentiable=False,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
ALL = ("float32", "float16", "bfloat16")
SIZES = {"V": 37}
LARGE_SEED = 2**35 + 11


def three(V):
    return {"k": 3, "P": 0.9}


def more_than_there_are(V):
    return {"k": V + 3, "P": 0.7, "tau": 2.5}


def random(V):
    """The numbers of a row of V tokens, the first of a batch."""
    from annotated_examples.common.seeds import random_words_reference

    words = random_words_reference(torch.tensor(LARGE_SEED), torch.arange(-(-V // 4))).flatten()[:V]
    return (words.double() + 0.5) / 2**32


def drawn(V):
    return {"k": 20, "P": 0.7, "tau": 0.8, "v": random(V)}


def drawn_of_all(V):
    return {"k": V, "P": 1.0, "tau": 1.0, "v": random(V)}


def set_of_reference(x, **filters):
    """A mask: the lesson's reference serves both modules."""
    from annotated_examples.sampling.sample import filter_logits_reference

    return filter_logits_reference(x, **filters).isfinite().float()


@case(modules=BOTH, returns="SA-k", values=three, sizes=SIZES, dtypes=ALL, forward_only=True)
def top_k(module, x, k):
    return module.filter_logits(x, top_k=int(k)).isfinite().float()


@case(modules=BOTH, returns="SA-tie", values=three, sizes=SIZES, forward_only=True)
def top_k_in_small_chunks(module, x, k):
    places = torch.full((1,), int(k), device=x.device)
    return module.filter_forward(x[None], places, 1, None, BLOCK_V=8, BITS=1)[0].isfinite().float()


@top_k.pytorch
@top_k_in_small_chunks.pytorch
def _(x, k):
    return set_of_reference(x, top_k=int(k))


@case(modules=BOTH, returns="SA-p", values=more_than_there_are, sizes=SIZES, dtypes=ALL, forward_only=True)
def top_p(module, x, P, tau):
    return module.filter_logits(x / tau, top_p=float(P)).isfinite().float()


@top_p.pytorch
def _(x, P, tau):
    return set_of_reference(x / tau, top_p=float(P))


@case(modules=BOTH, returns="SA-draw", values=drawn, sizes=SIZES, dtypes=ALL, forward_only=True)
def draw(module, x, v, k, P, tau):
    token = module.sample(x, LARGE_SEED, temperature=float(tau), top_k=int(k), top_p=float(P))
    return v[token]


@case(modules=BOTH, returns="SA-draw", values=drawn, sizes=SIZES, forward_only=True)
def draw_in_small_blocks(module, x, v, k, P, tau):
    rows, seed = x[None], torch.tensor(LARGE_SEED, device=x.device)
    filters = module.of_all_rows(rows, int(k), float(P))
    return v[module.sample_forward(rows, seed, float(tau), *filters, BLOCK_V=8)[0]]


@draw_in_small_blocks.pytorch
def _(module, x, v, k, P, tau):
    return v[module.sample_reference(x, LARGE_SEED, temperature=float(tau), top_k=int(k), top_p=float(P))]


@case(modules=BOTH, returns="SA-all(s = SA-s)", values=drawn_of_all, sizes={"V": 301}, forward_only=True)
def draw_of_all(module, x, v):
    return v[module.sample(x, LARGE_SEED)]


# ---------------------------------------------------------------- what is measured
TOP_K, TOP_P, TEMPERATURE, SEED = 50, 0.9, 0.8, 7


# Memory sees a row once, a seed, a `k`, and a token of 8 bytes; what is read again comes from the L2 cache. For each
# logit that is two operations for the largest, a dozen for its key and for the list, with top-p alone four for its
# weight, and without either about 40 for a random word and 20 for two logarithms. What the search does with the few
# logits of the list isn't counted.
def cost(shape, dtype, top_k=TOP_K, top_p=TOP_P):
    rows, tokens = shape
    each = 62 if not (top_k or top_p) else 14 if top_k else 18
    return {
        "forward": dict(
            bytes_read=rows * tokens * dtype.itemsize + 8 + (4 if top_k else 0),
            bytes_written=8 * rows,
            operations=each * rows * tokens,
        )
    }


def inputs(shape, dtype, device):
    return dict(logits=torch.randn(shape, dtype=dtype, device=device) * 3)


def options(k=TOP_K, p=TOP_P):
    return dict(temperature=TEMPERATURE, top_k=k, top_p=p)


# PyTorch draws other tokens, so its ways are only timed: what ours are compared with is the lesson's reference.
def sorted_and_summed(logits, k=TOP_K, p=TOP_P):
    """A sort of the row, running sums, a mask, and a draw."""
    values, order = torch.sort(logits.float() / TEMPERATURE, dim=-1, descending=True)
    probability = torch.softmax(values[:, :k] if k else values, -1)
    if p is not None:
        probability = probability * (probability.cumsum(-1) - probability < p)
    return order.gather(-1, torch.multinomial(probability, 1))[:, 0]


def largest_first(logits, k=TOP_K, p=TOP_P):
    """`torch.topk`, which leaves a short row to sum and draw from."""
    values, order = torch.topk(logits.float() / TEMPERATURE, k)
    probability = torch.softmax(values, -1)
    probability = probability * (probability.cumsum(-1) - probability < p)
    return order.gather(-1, torch.multinomial(probability, 1))[:, 0]


def called(k, p):
    return lambda sample: lambda logits: sample(logits, SEED, **options(k, p))


def reference(k, p):
    def of(logits):
        from annotated_examples.sampling.sample import sample_reference

        return sample_reference(logits, SEED, **options(k, p))

    return of


def variant(k, p, eager):
    from functools import partial

    return dict(
        cost=partial(cost, top_k=k, top_p=p),
        call=called(k, p),
        eager=partial(eager, k=k, p=p),
        reference=reference(k, p),
    )


VARIANTS = {
    "top-p alone": variant(None, TOP_P, sorted_and_summed),
    "everything": variant(None, None, sorted_and_summed),
}
# 6 logits, a seed and a k; a token; and the list, 8 bytes a logit, written and read.
EXAMPLES = {
    LESSON: {"forward": dict(bytes_read=6 * 4 + 8 + 4 + 6 * 8, bytes_written=8 + 6 * 8, operations=0)},
    FAST: {"forward": dict(bytes_read=6 * 4 + 8, bytes_written=8, operations=0)},
}
BENCH = dict(
    shapes=[(64, 151936), (1, 151936), (512, 32000)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=called(TOP_K, TOP_P),
    eager=largest_first,
    reference=reference(TOP_K, TOP_P),
    variants=VARIANTS,
)
