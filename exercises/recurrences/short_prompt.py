"""# A prompt shorter than the state

A filter of `W` taps needs the last `W - 1` inputs as its state. `next_state(state, x)` gets the old state, a list of
`W - 1` numbers, oldest first, and a list of new inputs, and returns the new state. For short lists of inputs it is
wrong. Find the bug.
"""


# %% solution
def next_state(state, x):
    # <<<
    seen = [*state, *x]
    return seen[len(seen) - len(state) :]
    # ===
    # zeros = [0.0] * max(len(state) - len(x), 0)
    # return zeros + x[max(len(x) - len(state), 0) :]
    # >>>


# %% checks
PAGE = "kernels/recurrences/causal_conv1d.md"
KIND = "find the bug"
ORDER = 9
HINTS = (
    "After a single new input, what should the other W - 2 numbers of the state be?",
    "Put the old state in front of the inputs, and take the last `len(state)` of all of them: from which index on?",
)
WHY = """If fewer than `W - 1` inputs are new, some of the old ones are still seen. With a prompt of one or two tokens
this was a bug in more than one library, and its gradient another. A filter of one tap needs no state, and there
`seen[-len(state):]`, which is `seen[-0:]`, would be all of the list."""


def check(t):
    def numbers(count):
        return [float(t.random.randint(-99, 99)) for _ in range(count)]

    for taps, new in (
        (4, 5),
        (4, 3),
        (4, 1),
        (4, 2),
        (3, 0),
        (2, 1),
        (t.random.randint(5, 8), t.random.randint(1, 3)),
        (40, 7),
        (3, 90),
        (33, 0),
        (2, 0),
    ):
        state, x = numbers(taps - 1), numbers(new)
        note = "The old state's last numbers are still among the last inputs." if new < taps - 1 else ""
        t.value("next_state", (state, x), [*state, *x][new:], note=note)
    t.value("next_state", ([], numbers(2)), [], note="With W = 1 there is no state, before or after.")


WRONG = (
    ("The old state's last numbers are still among the last inputs",),
    ("next_state(", "return (state + x)[-3:]"),
    ("With W = 1 there is no state", "return (state + x)[-len(state) :]"),
    ("next_state(", "return x[-len(state) :]"),
    ("next_state(", "return (x + state)[: len(state)]"),
)
RIGHT = (
    ("return (state + x)[len(x) :]",),
    ("return [*state[len(x) :], *x[max(len(x) - len(state), 0) :]]",),
)
