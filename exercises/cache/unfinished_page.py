"""# The unfinished page

Keys that have a step for each channel are quantized a whole page at a time: all tokens of the page take part in the
range of a channel. The tokens of a page that isn't full yet wait in sixteen bits.

Write `codes_and_recent(length, page_size)`: of a sequence of `length` tokens, how many keys are read as codes, and how
many as they are, as a pair.
"""


# %% solution
def codes_and_recent(length, page_size):
    # <<<
    recent = length % page_size
    return length - recent, recent
    # >>>


# %% checks
PAGE = "kernels/attention/quantized_decode.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "With pages of 16 a sequence of 40 tokens has two full pages. How many tokens are left?",
    "And a sequence of 32? Its second page has just become full, and has been written as codes.",
)
WHY = """A page that is flushed earlier costs more than it saves. With a single token a channel's range is 0: the key is
exact, its code says nothing, and the step and the lowest value take eight bytes for a number that had two. A report of
"two bits without any loss" was this."""


def check(t):
    mistakes = {
        divmod: "That is the number of pages. How many keys do they hold?",
        lambda length, page: ((length - 1) // page * page, (length - 1) % page + 1): "A page that is full is written.",
        lambda length, page: (length % page, length // page * page): "The keys that are read as codes come first.",
    }
    drawn = [(t.random.randint(0, 200), t.random.randint(1, 40)) for _ in range(6)]
    for length, page in ((40, 16), (32, 16), (0, 16), (5, 16), (16, 16), (17, 16), (9, 1), (20, 7), *drawn):
        t.value("codes_and_recent", (length, page), (length // page * page, length % page), mistakes=mistakes)


WRONG = (
    ("codes_and_recent(40, 16) is None, should be (32, 8)",),
    ("A page that is full is written", "length % page_size", "(length - 1) % page_size + 1"),
    ("codes_and_recent(40, 16) is (24, 16), should be (32, 8)", "length % page_size", "min(length, page_size)"),
)
RIGHT = (
    ("return length // page_size * page_size, length % page_size",),
    ("pages, rest = divmod(length, page_size)\nreturn pages * page_size, rest",),
)
