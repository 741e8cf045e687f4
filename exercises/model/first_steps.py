"""# The first steps

`milliseconds(step, clock, warmup, repeats)` should return the mean time of `repeats` steps, once `warmup` steps have
compiled the kernels and allocated the memory. `clock()` waits for the GPU and returns seconds. The times are far too
long, and the fewer steps are repeated, the worse it gets. Find the bug.
"""


# %% solution
def milliseconds(step, clock, warmup, repeats):
    # <<<
    for _ in range(warmup):
        step()
    begin = clock()
    # ===
    # begin = clock()
    # for _ in range(warmup):
    #     step()
    # >>>
    for _ in range(repeats):
        step()
    return (clock() - begin) / repeats * 1e3


# %% checks
import itertools

PAGE = "kernels/capstone/gpt.md"
KIND = "find the bug"
ORDER = 5
HINTS = (
    "Which steps lie between the two readings of the clock?",
    "Warm up first, then read the clock.",
)
WHY = """A first step may take a thousand times as long as the others: it compiles and searches for the best
configuration. If it is timed with the others, it dominates the mean. PyTorch's operations come compiled, so such a
comparison would be unfair to Triton only."""


def check(t):
    calls = [0]

    def timed(first, then):
        """A step, and its clock. Its first calls take `first` milliseconds, the later ones cycle through `then`."""
        lengths, now = itertools.chain(first, itertools.cycle(then)), [0.0]
        calls[0] = 0

        def step():
            calls[0] += 1
            now[0] += next(lengths) / 1e3

        def clock():
            return now[0]

        return step, clock

    uneven = "After the first step every second one takes 2 ms, the others 4 ms."
    slow, fast = [t.random.randint(200, 900) for _ in range(t.random.randint(1, 4))], t.random.randint(4, 9)
    for first, then, warmup, repeats, mean, note in (
        ([], [3], 0, 5, 3.0, "Every step takes 3 ms."),
        ([500, 400], [3], 2, 4, 3.0, "The first two steps take 500 and 400 ms."),
        ([500], [2, 4], 1, 4, 3.0, uneven),
        ([], [2], 0, 1, 2.0, "One step is timed."),
        ([900] * 9, [0], 9, 3, 0.0, "The steps after the first nine take no time."),
        ([70] * 2, [5], 30, 40, 5.0, "Only the first two steps take 70 ms."),
        (slow, [fast], len(slow), t.random.randint(2, 6), float(fast), f"The first steps take {slow} ms."),
    ):
        t.value("milliseconds", (*timed(first, then), warmup, repeats), mean, note=note)
        message = f"{calls[0]} steps are made, should be {warmup} to warm up and {repeats} that are timed"
        t.require(calls[0] == warmup + repeats, message, f"milliseconds(step, clock, {warmup}, {repeats})")


WRONG = (
    (
        "6 steps are made, should be 0 to warm up and 5 that are timed",
        "range(warmup)",
        "range(warmup + 1)",
    ),
    ("milliseconds(step, clock, 2, 4) is 228, should be 3. The first two steps take 500 and 400 ms",),
    (
        "milliseconds(step, clock, 2, 4) is 226.5, should be 3",
        "begin = clock()",
    ),
    (
        "milliseconds(step, clock, 2, 4) is 2, should be 3",
        "/ repeats",
        "/ (warmup + repeats)",
    ),
    (
        "milliseconds(step, clock, 2, 4) is 102.25, should be 3",
        "range(warmup)",
        "range(warmup - 1)",
    ),
    (
        "1 steps are made, should be 0 to warm up and 5 that are timed",
        "    for _ in range(repeats):\n        step()\n    return (clock() - begin) / repeats * 1e3",
        "    step()\n    return (clock() - begin) * 1e3",
    ),
)
RIGHT = (
    (
        "    begin = clock()\n",
        "",
        "    for _ in range(repeats):\n        step()\n    return (clock() - begin) / repeats * 1e3",
        "    total = 0.0\n"
        "    for _ in range(repeats):\n"
        "        begin = clock()\n"
        "        step()\n"
        "        total += clock() - begin\n"
        "    return total / repeats * 1e3",
    ),
    ("for number in range(warmup + 1):\n    begin = clock()\n    if number < warmup:\n        step()",),
)
