"""Which card, and which tool: what fits where, and what a kernel of one's own gains."""

from academy.compiler.cards import CARDS

import card
from draw import Control, Panel, Picture, bars, picture
from moving import moving

#: A stage of a product's pipeline: 128 x 64 numbers of one matrix and 64 x 256 of the other, in bfloat16.
TILES = "128 x 256 x 64"
STAGE = (128 * 64 + 64 * 256) * 2


@picture
def stages():
    fit = [(each.names.partition(",")[0], each.shared // STAGE) for each in CARDS.values()]
    panel = Panel(46 + 40 * len(fit), f"Pipeline stages that fit, tiles of {TILES}")
    bars(panel, 40, [(name, max(count, 0.02), str(count)) for name, count in fit], ["b"] * len(fit))
    least = min(count for _, count in fit)
    return Picture(
        f"A stage takes {STAGE // 1024} KB of shared memory. Where {least} fit, at most one load is in flight while a tile is "
        "computed: take smaller tiles there.",
        f"Stages of {STAGE // 1024} KB that fit into the shared memory of a program: "
        + "; ".join(f"{name} {count}" for name, count in fit)
        + ".",
        [panel],
    )


#: What is compared, and its key in the results.
CASES = (
    ("SwiGLU, forward", "swiglu/8192x14336/forward"),
    ("LayerNorm, backward", "layernorm/32768x4096/backward"),
    ("cross entropy, both", "cross_entropy/8192x128256/forward+backward"),
)


@picture
def gains():
    panels, words = [], []
    for title, key in CASES:
        shares = [
            (name, card.measured(f"{key}/{provider}share"))
            for name, provider in (("eager PyTorch", "eager."), ("torch.compile", "torch.compile."), ("a kernel", ""))
        ]
        panel = Panel(172, f"{title}: share of the card's limit")
        bars(panel, 40, [(name, share, f"{share:g} %") for name, share in shares], ["off", "b", "a"])
        panels.append(panel)
        words.append(f"{title}: " + ", ".join(f"{name} {share:g} %" for name, share in shares))
    return Picture(
        "Measured on an H200, in bfloat16. Where the compiler has reached the limit, a kernel of one's own gains nothing.",
        "; ".join(words) + ".",
        panels,
    )


#: Operations of a multiprocessor in a cycle, bfloat16 on the tensor cores: the data sheet's rate at 1.83 GHz.
OPERATIONS, CLOCK_GHZ = 4096, 1.83
#: What one program may have of an SM's shared memory.
SHARED = (card.SHARED_KB - 1) * 1024


@picture
def pipeline():
    return moving(
        "pipeline",
        "How many stages does a loop need until nobody waits, and what stops you from taking more?",
        "Add stages until the red is gone: the wait for the first load, amber, always stays. Then take another tile, or a longer "
        "latency.",
        "Each step of the loop needs its tiles of both inputs, BLOCK_K = 64, in bfloat16. A model: a load takes the same time "
        f"however many are under way, and the tensor cores do {OPERATIONS:,} operations in a cycle. So nobody waits behind the "
        "first tile when (stages − 1) × the cycles of a step reach the latency. No stage hides the first load. Each stage is a buffer.",
        (
            Control("stages", "num_stages", 2, 1, 6),
            Control("latency", "Latency of a load", 900, stops=tuple(range(200, 1601, 100))),
            Control("tile", "Tile", "128 × 128", stops=("64 × 64", "128 × 64", "128 × 128", "128 × 256", "256 × 256")),
        ),
        {"operations": OPERATIONS, "shared": SHARED, "block_k": 64},
    )
