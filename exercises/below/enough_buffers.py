"""# How many buffers are enough?

The TMA sends a tile in 3 units of time, 14 units later it is there, and its product takes 4. What is the
smallest number of buffers with which, in the long run, the tensor cores never wait? Put the number into `answer`.
(The timeline shows smaller times. Work this one out, then check it there with others.)

[[figure: below/overlap]]
"""

# %% solution
# <<<
answer = -(-(3 + 14 + 4) // 4)
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/overlap.py"
KIND = "predict a number"
ORDER = 5
HINTS = (
    "How long is a buffer taken, from the moment its copy begins until its product is done?",
    "In that time the tensor cores compute several products, if they never wait. Each of those needs a "
    "buffer of its own.",
)
WHY = """A buffer is taken for 3 + 14 + 4 = 21 units, and a product takes 4. So 21 / 4 = 5.25 buffers would do, and
there are no quarters of a buffer."""


def check(t):
    def time_of_a_step(buffers, copy=3, latency=14, compute=4):
        begins, done = [], []
        for k in range(400):
            begins.append(max(done[k - buffers] if k >= buffers else 0, begins[-1] + copy if k else 0))
            done.append(max(begins[-1] + copy + latency, done[-1] if k else 0) + compute)
        return (done[399] - done[199]) / 200

    enough = next(buffers for buffers in range(1, 99) if time_of_a_step(buffers) == 4)
    mistakes = {
        5: "With five buffers a step takes 21 / 5 = 4.2 units in the long run. Nearly.",
        7: "That many would do if a product took 3 units, as long as a copy.",
        4: "The latency counts, and so do the copy and the product themselves.",
        5.25: "There are no quarters of a buffer.",
        21: "That is how long a buffer is taken. How many products are computed in that time?",
    }
    t.number(enough, mistakes, "For how long is a buffer taken, and how many products are computed meanwhile?")


WRONG = (
    ("answer is still None",),
    ("With five buffers a step takes 21 / 5", "answer = (3 + 14 + 4) // 4"),
    ("as long as a copy", "answer = 21 // 3"),
    ("There are no quarters of a buffer", "answer = 21 / 4"),
    ("For how long is a buffer taken", "answer = 2"),
)
RIGHT = (
    ("answer = 6",),
    ("import math\nanswer = math.ceil(21 / 4)",),
)
