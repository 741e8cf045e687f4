"""# Bytes saved

`x + y + z` for three float32 vectors of 1000 elements: as two calls of `vector_add`, then as one kernel that reads all
three. How many fewer bytes does the single kernel move? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 2 * 3 * 4 * 1000 - 4 * 4 * 1000
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/first_kernel.py"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "A float32 number has 4 bytes. A call of `vector_add` reads two vectors and writes one.",
    "Two calls move 2 · 3 vectors, one kernel moves 3 + 1.",
)
WHY = "The intermediate sum is neither written nor read again. That makes two vectors of 4000 bytes."


def check(t):
    mistakes = {
        2000: "That is the number of elements. Each has 4 bytes.",
        4000: "That is 4 bytes an element: the intermediate sum, counted once. It is written by one kernel and read by "
        "the next.",
        16000: "That is what the one kernel moves, 16 bytes an element. The question is how much less that is than "
        "the two calls.",
        24000: "That is what the two calls move, 24 bytes an element.",
    }
    t.number(8000, mistakes, "Count the vectors that each way reads and writes, 4000 bytes each: 4 bytes an element.")


WRONG = (
    (
        "answer is 2000, which is not right. That is the number of elements",
        "answer = 2000",
    ),
    (
        "It is written by one kernel and read by the next",
        "answer = 4000",
    ),
    (
        "Count the vectors",
        "answer = 12000",
    ),
    ("answer is still None",),
)
RIGHT = (
    ("answer = 8000",),
    ("answer = 8e3",),
)
