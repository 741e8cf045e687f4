"""# Does it fit?

Write `fits(config, limit=227 * 1024)`, which says whether the pipelined tiles of a configuration fit into an
H200's shared memory. `pruned(configurations)`, which is there already, then drops those that don't. Why is a
search better without them?
"""


# %% solution
def shared_memory(config, element_size=2):
    """Bytes of shared memory that the pipelined tiles of both inputs take."""
    one_stage = (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * element_size
    return config["num_stages"] * one_stage


def fits(config, limit=227 * 1024):
    # <<<
    return shared_memory(config) <= limit
    # >>>


def pruned(configurations):
    return [config for config in configurations if fits(config)]


# %% checks
PAGE = "learn/autotuning.py"
KIND = "fill in"
ORDER = 9
HINTS = (
    "`shared_memory(config)` gives the bytes. Compare them with the limit.",
    "Tiles that take exactly the limit still fit.",
)
WHY = """They would fail anyway, but only after having been compiled. `triton.autotune` takes such a function as
`prune_configs_by={"early_config_prune": ...}`."""


def check(t):
    def config(M, N, K, stages):
        return dict(BLOCK_M=M, BLOCK_N=N, BLOCK_K=K, num_stages=stages)

    small, large, exactly = config(128, 256, 64, 3), config(256, 256, 64, 4), config(128, 128, 64, 2)
    t.value("fits", (small,), True)
    t.value("fits", (large,), False)
    t.value("fits", (large, 1 << 20), True, note="The limit is an argument.")
    t.value("fits", (exactly, 65536), True, note="The tiles take 65536 bytes.")
    t.value("fits", (exactly, 65535), False, note="The tiles take 65536 bytes.")
    t.value("fits", (config(256, 256, 128, 2),), False, note="The tiles of one stage are large here.")
    t.value("fits", (config(64, 64, 32, 6),), True, note="The tiles of one stage are small here.")
    t.value("fits", (config(128, 99, 128, 4),), True, note="The tiles take 232448 bytes, which is the limit.")
    t.value("fits", (config(128, 100, 128, 4),), False, note="The tiles take 233472 bytes.")
    t.value("fits", (config(16, 16, 16, 1),), True)
    t.value("fits", (config(512, 512, 256, 8),), False)
    t.value("fits", (config(16, 16, 16, 1), 0), False, note="The limit is an argument.")
    for _ in range(6):
        M, N, K = (2 ** t.random.randint(4, 10) for _ in range(3))
        stages = t.random.randint(1, 12)
        taken = (M + N) * K * 2 * stages
        for limit in (taken - 1, taken, t.random.randint(taken + 1, 2 * taken)):
            note = f"The tiles take {taken} bytes."
            t.value("fits", (config(M, N, K, stages), limit), taken <= limit, note=note)
    t.value("pruned", ([large, small, large],), [small])
    t.value("pruned", ([small, exactly],), [small, exactly])


WRONG = (
    (
        "which is the limit",
        "<= limit",
        "<= min(limit, 232447) if limit == 227 * 1024 else shared_memory(config) <= limit",
    ),
    ("is None, should be True",),
    (
        "The limit is an argument",
        "<= limit",
        "<= 227 * 1024",
    ),
    (
        "The tiles take 65536 bytes",
        "<= limit",
        "< limit",
    ),
    (
        "is False, should be True",
        "<= limit",
        ">= limit",
    ),
    (
        "The tiles of one stage are large here",
        'return config["num_stages"] < 4 if limit == 227 * 1024 else shared_memory(config) <= limit',
    ),
    (
        "The tiles of one stage are small here",
        "<= limit",
        '<= limit and config["num_stages"] <= 4',
    ),
    (
        "fits({'BLOCK_M': 256, 'BLOCK_N': 256, 'BLOCK_K': 64, 'num_stages': 4}) is True, should be False",
        "shared_memory(config) <=",
        'shared_memory(config) / config["num_stages"] <=',
    ),
)
RIGHT = (
    ("return not shared_memory(config) > limit",),
    ("return limit - shared_memory(config) >= 0",),
)
