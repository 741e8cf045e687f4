"""# Where a weight stops decaying

A bfloat16 weight is 1. Its gradient is always 0, so each step only multiplies it by `1 - lr * decay`, which is 0.997,
and stores it in bfloat16 again. From 1/2 to 1 the numbers of bfloat16 are multiples of 1/256. How many 256ths is the
weight after 1000 steps? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 256
while round(answer * 0.997) < answer:
    answer = round(answer * 0.997)
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/optimizers/adamw.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "Count in 256ths: the weight begins at 256, and each product is rounded to a whole number.",
    "256 · 0.997 is 255.232, so the first step leads to 255. When is less than a half taken off?",
)
WHY = """A step takes 0.003 of the weight off. As long as that is more than half of 1/256, the weight goes down by
1/256. From 166 on it is less, and the weight stays where it is, however many steps follow. With a factor of 0.999 not
even the first step changes anything. So the kernel computes in float32 and rounds once, the decay together with what
the gradient moves."""


def check(t):
    mistakes = {
        12.7: "Without rounding it would be 0.997 to the power of 1000. Each step stores a bfloat16.",
        13: "Without rounding it would be 0.997 to the power of 1000. Each step stores a bfloat16.",
        0: "That is where a number stops that is always rounded down. It is rounded to the nearest.",
        256: "The first step leads to 255.232, which is nearer to 255 than to 256.",
        167: "A step takes 0.501 off 167, and leads to 166.",
        0.6484: "That is the weight. How many 256ths is it?",
    }
    t.number(166, mistakes, "From which number on does a step take off less than a half of a 256th?")


WRONG = (
    ("answer is still None",),
    ("Without rounding", "answer = 256 * 0.997**1000"),
    ("rounded to the nearest", "answer = 0"),
    ("nearer to 255", "answer = 256"),
    ("leads to 166", "answer = 167"),
    ("How many 256ths", "answer = 166 / 256"),
)
RIGHT = (
    ("answer = 166",),
    ("import torch\nw = torch.ones(()).bfloat16()\nfor _ in range(1000):\n    w *= 0.997\nanswer = w.item() * 256",),
)
