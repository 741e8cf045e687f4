"""# When is an outlier forgotten?

Delayed scaling takes its scale from the largest magnitude that it has seen in the last four steps, not counting the
present one. The largest magnitude of a tensor is 7 in every step, but 700 in step 10. Which is the first step after
that in which the scale is what it was before? Put its number into `answer`.
"""

# %% solution
# <<<
largest = {step: 700 if step == 10 else 7 for step in range(40)}
answer = next(step for step in range(11, 40) if max(largest[step - back] for back in (1, 2, 3, 4)) == 7)
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/fp8/linear.md"
KIND = "predict a number"
ORDER = 11
HINTS = (
    "Step 11 looks at steps 7 to 10.",
    "Which is the last step that still looks at step 10?",
)
WHY = """Steps 11 to 14 look back at step 10, and use a scale that is a hundred times too large: small numbers are lost.
Step 10 itself used the old scale, under which 700 saturated. A long history makes saturation rarer, and recovery
slower."""


def check(t):
    mistakes = {
        14: "Step 14 looks at steps 10 to 13.",
        11: "Step 11 is the first that looks at step 10.",
        10: "In step 10 the scale is still the old one, but the question is about later steps.",
        13: "Step 13 looks at steps 9 to 12.",
    }
    t.number(15, mistakes, "Write down which steps each step looks at.")


WRONG = (
    ("answer is still None",),
    ("Step 14 looks at", "answer = 14"),
    ("is the first that looks", "answer = 11"),
    ("Write down which", "answer = 16"),
)
RIGHT = (
    ("answer = 15",),
    ("answer = 10 + 4 + 1",),
)
