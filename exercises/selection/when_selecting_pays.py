"""# From which length on does selecting pay?

Without an indexer a new token reads `latent` bytes of each token in the cache. With one it reads `scored` bytes of each
token, and `latent` bytes of the `k` that are selected; of all of them, if there are fewer.

Write `pays_from(latent, scored, k)`: the smallest number of tokens at which fewer bytes are read with an indexer than
without. `scored` is smaller than `latent`. All are whole numbers above 0.
"""


# %% solution
def pays_from(latent, scored, k):
    # <<<
    return latent * k // (latent - scored) + 1
    # >>>


# %% checks
PAGE = "learn/fewer_bytes.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Up to `k` tokens everything is read, and the indexer's bytes come on top. So the answer is more than `k`.",
    "For n tokens, is scored · n + latent · k smaller than latent · n? Solve it for n; equal isn't fewer.",
)
WHY = """With 1152 bytes for a latent, 144 for a score and 2048 keys it is 2341. In time it may pay later than that:
three kernels are launched in place of one."""


def check(t):
    def want(latent, scored, k):
        tokens = k + 1
        while scored * tokens + latent * k >= latent * tokens:
            tokens += 1
        return tokens

    for given in ((4, 2, 3), (10, 1, 4), (1152, 144, 2048)):
        t.value("pays_from", given, want(*given))
    for _ in range(8):
        latent = t.random.randint(2, 60)
        given = (latent, t.random.randint(1, latent - 1), t.random.randint(1, 50))
        t.value("pays_from", given, want(*given))


WRONG = (
    ("pays_from(4, 2, 3) is None, should be 7",),
    (
        "pays_from(4, 2, 3) is 6, should be 7",
        "latent * k // (latent - scored) + 1",
        "-(-latent * k // (latent - scored))",
    ),
    ("pays_from(4, 2, 3) is 4, should be 7", "latent * k // (latent - scored) + 1", "k + 1"),
)
RIGHT = (
    ("tokens = k\nwhile scored * tokens + latent * k >= latent * tokens:\n    tokens += 1\nreturn tokens",),
    ("saved = latent - scored\nreturn (latent * k + saved) // saved",),
)
