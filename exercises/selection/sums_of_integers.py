"""# A sum in any order

Floats that are added in another order give another sum, so with atomics the last bits may change from run to run. Those
of whole numbers don't, as long as they fit. So a gradient could be added up in whole numbers: each part is rounded to a
multiple of 2⁻²⁰ first.

Write `total(parts)`: round each float of the list `parts` to the nearest multiple of 2⁻²⁰, as Python's `round` does it,
add these up as whole numbers, and return the sum as a float.
"""


# %% solution
def total(parts):
    # <<<
    return sum(round(part * 2**20) for part in parts) / 2**20
    # >>>


# %% checks
PAGE = "kernels/attention/sparse_mla.md"
KIND = "fill in"
ORDER = 4
HINTS = (
    "`round(part * 2**20)` is a whole number.",
    "Round before adding. The sum of the rounded numbers, divided by 2²⁰ at the end, is the same in any order.",
)
WHY = """Adding whole numbers of 64 bits is exact, so no order is better than another, and atomics of whole numbers give
the same bits each time. The price is a fixed unit: a part below 2⁻²¹ is lost, and with 2⁻²⁰ as the unit a sum must stay
below 2⁴³. Gradients have neither a smallest nor a largest size that is known beforehand, which is why floats float."""


def check(t):
    unit = 2**-20
    cases = [[0.5, 0.25], [], [unit * 0.6, unit * 0.6], [1.0, unit * 0.4, unit * 0.4, unit * 0.4], [1e12, 1.0, -1e12]]
    for _ in range(3):
        cases.append([t.random.randint(-(10**9), 10**9) / 3e6 for _ in range(t.random.randint(3, 8))])
    mistakes = {
        lambda parts: round(sum(parts) * 2**20) / 2**20: "Each part is rounded before anything is added.",
        lambda parts: sum(int(part * 2**20) for part in parts) / 2**20: "`int` cuts off, `round` goes to the nearest.",
        lambda parts: sum(parts): "Nothing was rounded.",
        lambda parts: sum(round(part * 2**20) for part in parts): "That is the sum in units of 2⁻²⁰.",
    }
    for parts in cases:
        expected = 0
        for part in parts:
            expected += round(part * 2**20)
        t.value("total", (parts,), expected / 2**20, mistakes=mistakes)


WRONG = (
    ("total([0.5, 0.25]) is None, should be 0.75",),
    (
        "Each part is rounded before",
        "sum(round(part * 2**20) for part in parts) / 2**20",
        "round(sum(parts) * 2**20) / 2**20",
    ),
    ("total([0.5, 0.25]) is", "/ 2**20", "/ 2**19"),
)
RIGHT = (
    ("units = [round(part * 1048576) for part in parts]\nreturn sum(units) / 1048576",),
    ("units = 0\nfor part in parts[::-1]:\n    units += round(part * 2**20)\nreturn units / 2**20",),
)
