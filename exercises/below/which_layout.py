"""# Which thread holds what?

A tile of 32 x 64 elements is loaded by 4 warps, the elements `itemsize` bytes each. Write `layout(itemsize)`: the
four lists of its `gl.BlockedLayout`. A thread should hold 16 bytes side by side, Hopper's widest access. A warp
should take whole rows of the tile, and the warps should stand below one another.

[[figure: layout/strides]]
"""


# %% solution
def layout(itemsize):
    # <<<
    wide = 16 // itemsize
    across = 64 // wide
    return [1, wide], [32 // across, across], [4, 1], [1, 0]
    # >>>


# %% checks
PAGE = "kernels/gluon/tile_copy.md"
KIND = "fill in"
ORDER = 6
HINTS = (
    "The lists are: elements of a thread, threads of a warp, warps, and the order, fastest dimension "
    "first. Each has a number for the "
    "rows and one for the columns.",
    "How many elements are 16 bytes? How many threads side by side, each with so many, cover 64 columns? A "
    "warp has 32.",
    "The order `[1, 0]` lets the columns run fastest.",
)
WHY = """With float16 a thread has 8 elements, 8 threads cover a row, and a warp takes 4 rows at once. With float32 a
thread has 4 elements, a row takes 16 threads, and a warp takes 2 rows. What a thread holds follows from the bytes."""


def check(t):
    from triton.experimental.gluon import language as gl

    from academy.gluon import GluonError, layouts

    sizes = [1, 2, 4, 8]
    t.random.shuffle(sizes)
    for itemsize in (2, 4, *sizes):
        case = f"layout({itemsize})"
        t.cases += 1
        lists = t.call("layout", itemsize)
        pairs = isinstance(lists, (tuple, list)) and [isinstance(each, list) and len(each) == 2 for each in lists]
        t.require(pairs == [True] * 4, f"it is {lists}, should be four lists of two numbers", case)
        whole = all(isinstance(number, int) and number >= 0 for each in lists for number in each)
        t.require(whole, f"{lists} must hold whole numbers", case)
        try:
            made = gl.BlockedLayout(*lists)
            layouts.check(made, (32, 64), 4)
            form = layouts.linear(made, (32, 64))
        except (GluonError, AssertionError, ValueError, IndexError, ZeroDivisionError) as error:
            t.require(False, f"{lists} can't be a layout of 32 x 64: {error or type(error).__name__}", case)
        wide, held = 16 // itemsize, 2 ** len(form.registers)
        mine = [form.element(register, 0, 0) for register in range(min(wide, held))]
        said = f"thread 0 holds {', '.join(map(str, mine[:4]))} …: {wide} neighbours of a row are 16 bytes"
        t.require(mine == [(0, column) for column in range(wide)], said, case)
        rows = {form.element(0, lane, 0)[0] for lane in range(32)}
        least = 32 * wide // 64
        said = f"the 32 threads of warp 0 touch {len(rows)} rows at once; {least} whole ones hold their 512 bytes"
        t.require(len(rows) == least, said, case)
        t.require(held * 128 == 32 * 64, f"{held} elements in each of 128 threads: some are held twice", case)
        firsts = [form.element(0, 0, warp) for warp in range(4)]
        said = f"warps begin at {', '.join(map(str, firsts))}: they should stand below one another, {least} rows apart"
        t.require(firsts == [(warp * least, 0) for warp in range(4)], said, case)


WRONG = (
    ("layout(2): it is None, should be four lists of two numbers",),
    (
        "layout(2): the 32 threads of warp 0 touch 32 rows at once",
        "[1, 0]",
        "[0, 1]",
        "[32 // across, across]",
        "[32, 1]",
    ),
    ("layout(4): the 32 threads of warp 0 touch 4 rows at once; 2 whole ones", "wide = 16 // itemsize", "wide = 8"),
    ("layout(2): thread 0 holds (0, 0), (1, 0)", "[1, wide]", "[wide, 1]"),
    ("layout(2): the 32 threads of warp 0 touch 32 rows at once; 4 whole ones", "[32 // across, across]", "[32, 1]"),
    ("some are held twice", "[4, 1]", "[1, 4]"),
    ("has 64 threads a warp, not 32", "[32 // across, across]", "[64 // across, across]"),
    ("is for 8 warps, and 4 execute this line", "[4, 1]", "[8, 1]"),
)
RIGHT = (
    ("rows = {1: 8, 2: 4, 4: 2, 8: 1}[itemsize]\nreturn [1, 16 // itemsize], [rows, 32 // rows], [4, 1], [1, 0]",),
    ("across = 4 * itemsize\nreturn [1, 64 // across], [32 // across, across], [4, 1], [1, 0]",),
)
