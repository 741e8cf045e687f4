"""# What to write first

For each operation, `prediction` has the milliseconds that it takes now, and those that it would take at best.
Write `order(prediction)`: a list of the operations' names, the one with the most to gain first.
"""


# %% solution
def order(prediction):
    # <<<
    return sorted(prediction, key=lambda name: prediction[name][1] - prediction[name][0])
    # >>>


# %% checks
PAGE = "learn/from_profile.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "Neither the largest share nor the largest factor comes first. What becomes of the step's time?",
    "The step gets shorter by `now - best`. `sorted(prediction, key=…)` sorts the names, the smallest key first.",
)
WHY = """The step gets shorter by the difference, so neither the largest share comes first nor the largest factor.
Matrix products have a large share and nothing to gain."""


def check(t):
    most = "The products take the most time, but there is nothing to gain."
    t.value("order", ({"norm": (2, 1), "products": (10, 10), "loss": (9, 3)},), ["loss", "norm", "products"], note=most)
    factor = "A rotary embedding ten times as fast saves 1.8 ms, a loss half again as fast 4 ms."
    t.value(
        "order", ({"rotary": (2.0, 0.2), "loss": (12, 8), "gate": (3, 2.5)},), ["loss", "rotary", "gate"], note=factor
    )
    for most in (9, 1e-3, 1e4):
        names = ["norm", "rotary", "loss", "gate", "products", "attention"]
        t.random.shuffle(names)
        gains = sorted((t.random.uniform(-most / 9, most) for _ in names), reverse=True)
        best = [t.random.uniform(0.1, 20) for _ in names]
        rows = list(zip(names, gains, best))
        t.random.shuffle(rows)
        note = "What counts is `now - best`, whatever the names and the sizes are."
        t.value("order", ({name: (least + gain, least) for name, gain, least in rows},), names, note=note)
    t.value("order", ({},), [])
    t.value("order", ({"loss": (3.0, 1.0)},), ["loss"])
    slower = {"loss": (1.0, 4.0), "gate": (2.0, 2.0), "norm": (2.0, 2.001)}
    t.value("order", (slower,), ["gate", "norm", "loss"], note="What would get slower comes last.")


WRONG = (
    (
        "whatever the names and the sizes are",
        "return [name for name in ('loss', 'rotary', 'norm', 'gate', 'products') if name in prediction]",
    ),
    ("should be ['loss', 'norm', 'products']",),
    (
        "The products take the most time, but there is nothing to gain",
        "prediction[name][1] - prediction[name][0]",
        "-prediction[name][0]",
    ),
    (
        "A rotary embedding ten times as fast saves 1.8 ms",
        "prediction[name][1] - prediction[name][0]",
        "prediction[name][1] / prediction[name][0]",
    ),
    (
        "is ['products', 'norm', 'loss'], should be",
        "prediction[name][1] - prediction[name][0]",
        "prediction[name][0] - prediction[name][1]",
    ),
)
RIGHT = (
    (
        "prediction[name][1] - prediction[name][0]",
        "prediction[name][0] - prediction[name][1], reverse=True",
    ),
    (
        "gains = [(now - best, name) for name, (now, best) in prediction.items()]\n"
        "return [name for _, name in sorted(gains)][::-1]",
    ),
)
