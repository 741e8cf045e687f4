"""# What not keeping the logits costs

A training step has 8192 tokens with 4096 hidden numbers each, and a vocabulary of 151,936. A product of these takes 2 ·
8192 · 4096 · 151,936 operations, 10.2 TFLOP. `linear_token_logprobs` holds one piece of the logits at a time, in the
forward pass and in the backward pass, which needs gradients of the hidden states and of the weights. How many TFLOP do
all its products have together, in a step with the backward pass? Put the number into `answer`.
"""

# %% solution
# <<<
product = 2 * 8192 * 4096 * 151_936 / 1e12
answer = 4 * product
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/classics/linear_token_logprobs.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "The gradient of the logits is multiplied twice: with the weights, and with the hidden states.",
    "What does backward have left of the logits that forward has made?",
)
WHY = """Logits, logits again, and two gradients: 40.8 TFLOP, a third more than PyTorch's three products. That is the
price for logits that take 0.13 GB at a time and not 2.5 GB, several times over. A rollout, which asks only how likely
its tokens were, has one product and pays nothing."""


def check(t):
    product = 2 * 8192 * 4096 * 151_936 / 1e12
    mistakes = {
        3 * product: "That is for logits that are kept. Here their pieces are made again in the backward pass.",
        2 * product: "The backward pass has products, too: what becomes of the gradient of the logits?",
        product: "That is what forward takes.",
        5 * product: "The second round makes the logits, and overwrites them by their gradient: that is no product.",
        4e12 * product: "Those are operations. A TFLOP is 10¹² of them.",
    }
    three = "The logits are made twice. How many products take their gradient?"
    t.number(4 * product, mistakes, three)


WRONG = (
    ("answer is still None",),
    ("Here their pieces are made again", "4 * product", "3 * product"),
    ("That is what forward takes", "4 * product", "product"),
    ("The backward pass has products, too", "4 * product", "2 * product"),
    ("Those are operations", " / 1e12", ""),
    ("How many products take their gradient", "answer = 41.5"),
)
RIGHT = (
    ("answer = (1 + 1 + 2) * 2 * 8192 * 4096 * 151_936 / 1e12",),
    ("answer = 8 * 8192 * 4096 * 151.936e-9",),
    ("answer = 4 * 10.2",),
)
