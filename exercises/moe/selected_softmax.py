"""# Who loses when one gains?

A token's logits select three of eight experts, and their weights are 0.5, 0.25 and 0.25. The gradient of the loss with
respect to the first weight is 4, with respect to the other two 0. What is the gradient with respect to the *logit* of
the second expert? Put it into `answer`.
"""

# %% solution
# <<<
weights, upstream = (0.5, 0.25, 0.25), (4, 0, 0)
mean = sum(w * d for w, d in zip(weights, upstream))
answer = weights[1] * (upstream[1] - mean)
# ===
# answer = None
# >>>


# %% checks
PAGE = "derivations/moe.md"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "The weights are a softmax of the three selected logits. The other five don't matter.",
    "Each logit's gradient is its weight, times its own upstream gradient less the weighted mean of all three.",
)
WHY = """The weighted mean of the upstream gradients is 0.5 · 4 = 2. So the second logit gets 0.25 · (0 − 2) = −0.5. The
third one gets as much, and the first 0.5 · (4 − 2) = 1: together zero."""


def check(t):
    want = 0.25 * (0 - 0.5 * 4)
    mistakes = {
        0.5: "Raising this logit takes weight from the first expert, and its weight is what the loss grows with.",
        0: "Its own weight has no gradient. But its logit is in the denominator of the first one.",
        1: "That is the gradient of the first logit.",
        -2: "That is the weighted mean, subtracted. Each logit gets it in proportion to its weight.",
        -1: "The mean is weighted: 0.5 times 4, and not 4.",
    }
    t.number(want, mistakes, "Take the derivative of a softmax with the three weights.")


WRONG = (
    ("answer is still None",),
    ("Raising this logit", "answer = 0.5"),
    ("its logit is in the denominator", "answer = 0"),
    ("gradient of the first logit", "answer = 1"),
    ("Take the derivative", "answer = 4"),
)
RIGHT = (
    ("answer = -0.5",),
    ("answer = -0.25 * 0.5 * 4",),
)
