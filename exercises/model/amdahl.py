"""# Amdahl's law

An operation takes a fraction `share` of a step's time, and a new kernel makes it `gain` times as fast. Write
`whole(share, gain)`: how many times as fast is the whole step?
"""


# %% solution
def whole(share, gain):
    # <<<
    return 1 / (1 - share + share / gain)
    # >>>


# %% checks
PAGE = "learn/from_profile.py"
KIND = "fill in"
ORDER = 2
HINTS = (
    "Say the step took 1 before. How much of that does the new kernel leave as it was?",
    "The rest, `share`, is divided by `gain`. How long does the step take now?",
)
WHY = """That is Amdahl's law. If a tenth of the time becomes ten times as fast, the step becomes 1.1 times as fast.
Even a kernel that takes no time at all makes it no more than `1 / (1 - share)` times as fast."""


def check(t):
    t.value("whole", (0.5, 2), 4 / 3, note="Half of the time stays, and the other half becomes a quarter.")
    t.value("whole", (0.1, 10), 1 / 0.91)
    t.value("whole", (1.0, 3), 3.0, note="If it is the whole step, the step gains what the kernel gains.")
    t.value("whole", (0.25, 1), 1.0, note="A kernel as fast as before changes nothing.")
    t.value("whole", (0.25, 0.5), 0.8, note="A kernel that is slower makes the step slower.")
    t.value("whole", (0.0, 7), 1.0, note="It takes no time of the step at all.")
    for _ in range(12):
        share = t.random.choice(
            (t.random.random(), 10.0 ** -t.random.randint(1, 6), 1 - 10.0 ** -t.random.randint(1, 6))
        )
        gain = t.random.choice((t.random.uniform(0.01, 1), t.random.uniform(1, 20), 10.0 ** t.random.uniform(-4, 6)))
        t.value("whole", (share, gain), 1 / ((1 - share) + share / gain))


WRONG = (
    ("whole(0.5, 2) is None, should be 1.33333",),
    (
        "Half of the time stays, and the other half becomes a quarter",
        "1 / (1 - share + share / gain)",
        "1 - share + share * gain",
    ),
    (
        "whole(0.5, 2) is 0.75, should be 1.33333",
        "1 / (1 - share + share / gain)",
        "1 - share + share / gain",
    ),
    (
        "whole(0.5, 2) is 2, should be 1.33333",
        "1 / (1 - share + share / gain)",
        "1 / (1 - share)",
    ),
    ("whole(", "share / gain", "share / max(gain, 0.5)"),
)
RIGHT = (
    ("return gain / (gain * (1 - share) + share)",),
    ("saved = share - share / gain\nreturn 1 / (1 - saved)",),
)
