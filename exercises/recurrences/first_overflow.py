"""# Where it overflows

A textbook computes what is left of token `j` at token `i` as `exp(G[i]) * exp(-G[j])`, where `G` are the sums of the
gates from the chunk's first token on, that token's own included. The result is at most 1. Write `first_overflow(gate)`:
all gates are the same negative number; how many tokens of a chunk does it take until the second factor of the last of
them is infinite in float32? The largest finite float32 number is about `exp(88.7228)`.
"""


# %% solution
def first_overflow(gate):
    # <<<
    tokens = 1
    while -gate * tokens <= 88.7228:
        tokens += 1
    return tokens
    # >>>


# %% checks
PAGE = "kernels/recurrences/kda.md"
KIND = "predict a number"
ORDER = 2
HINTS = (
    "The last of n tokens has the sum n · gate.",
    "At a gate of −5: 17 tokens give exp(85), which is finite. And 18?",
)
WHY = """At gates of −5 a chunk of 18 tokens is too long, and chunks have 32 or 64. Shifting both sums to the middle of
the chunk doubles that length, and no more; in halves nothing is ever above 1."""


def check(t):
    def want(gate):
        return int(88.7228 / -gate) + 1

    drawn = [-t.random.uniform(0.05, 12.0) for _ in range(9)]
    for gate in (-5.0, -1.0, -0.5, -10.0, -90.0, -3.0, -2.25, *drawn):
        note = "exp(85) is finite in float32, and exp(90) isn't." if gate == -5.0 else ""
        t.value("first_overflow", (gate,), want(gate), note=note)


WRONG = (
    ("first_overflow(-5) is None, should be 18",),
    ("exp(85) is finite in float32, and exp(90) isn't", "-gate * tokens <= 88.7228", "-gate * (tokens + 1) <= 88.7228"),
    ("first_overflow(-5) is 19, should be 18", "    return tokens", "    return tokens + 1"),
    ("first_overflow(-5) is 26, should be 18", "88.7228", "128.0"),
)
RIGHT = (
    ("return int(88.7228 // -gate) + 1",),
    ("return next(n for n in range(1, 10**5) if -gate * n > 88.7228)",),
)
