"""# Held above or held below

A token adds −min(ρA, CA) to the loss, where C is its ratio ρ held between 1 − `low` and 1 + `high`. Write
`slope(ratio, advantage, low, high)`, the derivative of that with respect to the token's log-probability, without
autograd. (The ratio is an exponential of it, so its derivative is the ratio itself. No ratio lies exactly at a bound.)

[[figure: policy/clip]]
"""

# %% solution


def slope(ratio, advantage, low, high):
    # <<<
    if advantage > 0 and ratio > 1 + high:
        return 0.0
    if advantage < 0 and ratio < 1 - low:
        return 0.0
    return -ratio * advantage
    # >>>


# %% checks
PAGE = "derivations/policy_loss.md"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Of two products the smaller one counts. If the advantage is positive, when is the one with C smaller?",
    "If the advantage is negative, the larger factor makes the smaller product.",
    "A bad token that has become much likelier has a slope: it has to come back.",
)
WHY = """The clip takes away what could be gained by going further, and never what has to be paid. To stop on both
sides is a common mistake: then a bad token that has become likelier by more than the bound stays that likely."""


def check(t):
    def want(ratio, advantage, low, high):
        held = ratio > 1 + high if advantage > 0 else advantage < 0 and ratio < 1 - low
        return 0.0 if held else -ratio * advantage

    mistakes = {
        lambda *given: -want(*given): "It is a loss: what makes a good token likelier lowers it.",
        lambda *given: want(*given) / given[0]: "The derivative of the ratio is the ratio.",
    }

    def try_it(ratio, advantage, low=0.2, high=0.2, note=""):
        given = ratio, advantage, low, high
        t.value("slope", given, want(*given), note=note, mistakes=mistakes)

    try_it(1.0, 1.0, note="Nothing has moved, so nothing is held.")
    try_it(1.5, 1.0, note="A good token that has become much likelier is held.")
    try_it(0.5, 1.0, note="A good token that has become less likely isn't held.")
    try_it(0.5, -1.0, note="A bad token that has become much less likely is held.")
    try_it(1.5, -1.0, note="A bad token that has become likelier isn't held.")
    try_it(1.3, 1.0, 0.2, 0.4, note="The bounds may differ.")
    try_it(0.75, -1.0, 0.3, 0.1, note="The bounds may differ.")
    try_it(2.0, 0.0)
    for _ in range(8):
        advantage = t.random.uniform(0.2, 3) * t.random.choice((-1, 1))
        low, high = t.random.uniform(0.05, 0.4), t.random.uniform(0.05, 0.4)
        for ratio in (1 - 2 * low, 1 - low / 2, 1 + high / 2, 1 + 2 * high):
            try_it(ratio, advantage, low, high)


WRONG = (
    ("slope(1, 1, 0.2, 0.2) is None",),
    ("A good token that has become less likely isn't held", "advantage < 0 and ratio < 1 - low", "ratio < 1 - low"),
    ("A bad token that has become likelier isn't held", "advantage > 0 and ratio > 1 + high", "ratio > 1 + high"),
    ("It is a loss", "return -ratio * advantage", "return ratio * advantage"),
    ("The derivative of the ratio is the ratio", "return -ratio * advantage", "return -advantage"),
    ("The bounds may differ", "ratio > 1 + high", "ratio > 1 + low"),
)
RIGHT = (
    (
        "held = ratio > 1 + high if advantage > 0 else ratio < 1 - low\n"
        "return 0.0 if held and advantage else -ratio * advantage",
    ),
    (
        "clipped = min(max(ratio, 1 - low), 1 + high)\n"
        "return -ratio * advantage if ratio * advantage <= clipped * advantage else 0.0",
    ),
)
