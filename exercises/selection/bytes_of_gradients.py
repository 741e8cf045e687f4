"""# Rows, or atomics?

On the way back each of `T` queries has a gradient for each of its `K` keys, `W` numbers in float32. In a fixed order
they are written as rows and read again, to be added up. With atomics each is added to the key's gradient at once.

Write `bytes_moved(T, K, W)`: the bytes of the rows, written and read, and the bytes that atomics send, as a pair.
"""


# %% solution
def bytes_moved(T, K, W):
    # <<<
    return 2 * 4 * T * K * W, 4 * T * K * W
    # >>>


# %% checks
PAGE = "kernels/attention/sparse_mla.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "A pair of a query and a key has one row of W numbers, and a number has four bytes.",
    "A row is written once and read once. An atomic sends its number once.",
)
WHY = """4096 queries with lists of 2048 keys of 576 numbers make 38.7 GB of rows, many times what the whole cache has.
Atomics send half of it, and to few places: the gradients of 8192 keys are 19 MB, which stay in the L2 cache. That is
the price of the same bits each time."""


def check(t):
    mistakes = {
        lambda T, K, W: (4 * T * K * W, 4 * T * K * W): "Rows are written, and then read again.",
        lambda T, K, W: (4 * T * K * W, 2 * T * K * W): "A number in float32 has four bytes.",
        lambda T, K, W: (8 * T * K * W, 8 * T * K * W): "An atomic sends each number once.",
        lambda T, K, W: (2 * T * K * W, T * K * W): "Those are numbers. How many bytes has each?",
    }
    drawn = tuple(t.random.randint(2, 50) for _ in range(3))
    for T, K, W in ((4096, 2048, 576), (1, 1, 1), (2, 3, 5), drawn):
        t.value("bytes_moved", (T, K, W), (8 * T * K * W, 4 * T * K * W), mistakes=mistakes)


WRONG = (
    ("bytes_moved(4096, 2048, 576) is None, should be (38654705664, 19327352832)",),
    ("Rows are written, and then read again", "2 * 4 * T * K * W, 4", "4 * T * K * W, 4"),
    ("bytes_moved(4096, 2048, 576) is (9663676416, ", "2 * 4 * T * K * W, 4", "2 * T * K * W, 4"),
)
RIGHT = (
    ("once = T * K * W * 4\nreturn 2 * once, once",),
    ("pairs = T * K\nreturn 8 * pairs * W, 4 * pairs * W",),
)
