"""Which calls of the sampling kernels are compared with the formulas of backprop_math/sample.md.

A set is compared as a mask of ones and zeros, a token as the random number that it got. The random numbers of the
formulas are computed in PyTorch's whole numbers. Logits are whole numbers, so that many are equal.
"""

from academy.formulas.cases import case

MODULE = "choosing.sample"
ALL = ("float32", "float16", "bfloat16")
SIZES = {"V": 37}
SEED = 2**35 + 11


def three(V):
    return {"k": 3, "P": 0.9}


def more_than_there_are(V):
    return {"k": V + 3, "P": 0.7, "tau": 2.5}


def random(V):
    """The numbers of a row of V tokens, the first of a batch."""
    import torch

    from annotated_examples.common.seeds import random_words_reference

    words = random_words_reference(torch.tensor(SEED), torch.arange(-(-V // 4))).flatten()[:V]
    return (words.double() + 0.5) / 2**32


def drawn(V):
    return {"k": 20, "P": 0.7, "tau": 0.8, "v": random(V)}


def drawn_of_all(V):
    return {"k": V, "P": 1.0, "tau": 1.0, "v": random(V)}


@case(modules=MODULE, returns="SA-k", values=three, sizes=SIZES, dtypes=ALL, forward_only=True)
def top_k(module, x, k):
    return module.filter_logits(x, top_k=int(k)).isfinite().float()


@case(modules=MODULE, returns="SA-tie", values=three, sizes=SIZES, forward_only=True)
def top_k_in_small_chunks(module, x, k):
    import torch

    places = torch.full((1,), int(k), device=x.device)
    return module.filter_forward(x[None], places, 1, None, BLOCK_V=8, BITS=1)[0].isfinite().float()


top_k_in_small_chunks.pytorch(lambda module, x, k: module.filter_logits_reference(x, top_k=int(k)).isfinite().float())


@case(modules=MODULE, returns="SA-p", values=more_than_there_are, sizes=SIZES, dtypes=ALL, forward_only=True)
def top_p(module, x, P, tau):
    return module.filter_logits(x / tau, top_p=float(P)).isfinite().float()


@case(modules=MODULE, returns="SA-draw", values=drawn, sizes=SIZES, dtypes=ALL, forward_only=True)
def draw(module, x, v, k, P, tau):
    token = module.sample(x, SEED, temperature=float(tau), top_k=int(k), top_p=float(P))
    return v[token]


@case(modules=MODULE, returns="SA-all(s = SA-s)", values=drawn_of_all, sizes={"V": 301}, forward_only=True)
def draw_of_all(module, x, v):
    return v[module.sample(x, SEED)]
