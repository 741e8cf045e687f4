"""Quoted numbers: what counts as a claim, where it holds, and that no digit of any claim can be changed unnoticed."""

import re

import pytest

from academy.traces import literals, quotes, store

KERNEL = """
# {module}
@triton.jit
def helper(value):
    # {helper}
    twice = value * 2
    return twice

@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # {before}
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # {load}
    x = tl.load(
        x_ptr + offsets,  # {inner}
        mask=mask,
    )
    total = 0.0
    for k in range(0, 3):
        # {loop}
        total += helper(tl.sum(tl.where(mask, x, 0.0), axis=0))
    mean = total / 7  # {trailing}
    tl.store(y_ptr + offsets, x, mask=mask)

def EXAMPLE():
    x = torch.arange(10.0)
    for n in (10, 5):
        copy_kernel[(3,)](x, torch.zeros(10), n, BLOCK=4)
"""
PLACES = ("module", "helper", "before", "load", "inner", "loop", "trailing")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The kernel without a comment, recorded once; its code is the same with any comment."""
    from academy.traces import worker
    from academy.traces.recording import Recording

    path = tmp_path_factory.mktemp("quotes") / "quoted_example.py"
    path.write_text(source())
    return path, Recording(worker.record(path, [path]))


def source(**comments):
    preamble = "import torch\nimport triton\nimport triton.language as tl\n"
    return preamble + KERNEL.format(**{place: comments.get(place, "nothing") for place in PLACES})


def found(recorded, **comments):
    path, recording = recorded
    path.write_text(source(**comments))
    return [problem.message for problem in quotes.check(path, path.name, recording)]


HOLDS = [
    ("before", "`n = 10` and `BLOCK = 4`"),
    ("before", "`pid=2: pid = 2`, and still `offsets = [8, 9, 10, 11]`"),
    ("before", "`pid=(2, 0): offsets[1:3] = [9, 10]`"),
    ("before", "`pid=2: mask = [1, 1, 0, 0]`, `sum(mask) = 2`, `mask[0] = True`"),
    ("before", "`pid=2: offsets = [8, ..., 11]`, `offsets.shape = (4,)`, `len(offsets) = 4`"),
    ("before", "`pid=1: pid * BLOCK = 4`"),
    ("before", "`pid=2, launch=1: n = 5`"),
    ("load", "`pid=2: x[:2] = [8, 9]`"),
    ("load", "`pid=1: x_ptr = 0`"),
    ("inner", "`pid=1: x = [4, 5, 6, 7]`"),
    ("loop", "`pid=1, k=0: total = 44`, `k=2: total = 132.0`, first `total = 44`"),
    ("trailing", "`pid=1: mean = 18.857`, `mean = 18.9`, `mean = 1.9e1`"),
    ("helper", "`pid=1: twice = 44`"),
    ("module", "`copy_kernel, pid=2: offsets = [8, 9, 10, 11]`, `copy_kernel: n = 10`"),
    ("module", "code such as `x[i]`, `offsets + 1`, `K >= 16`, `a == 3`, `c = 2 * x`, `y = x @ w`, `BLOCK`, `f(x, n)`"),
    ("before", "a fence:\n    # ```\n    # `n = 11`\n    # ```\n    # `n = 10`"),
    ("before", "over two lines `pid=2: offsets = [8, 9,\n    # 10, 11]`"),
    ("before", "Program 2 has four lanes. Elements 10 and 11 don't exist. 32-bit, 2³¹, int64."),
    ("before", "Program 0 owns `pid=0: pid = 0`, program 1 and programs 2 and 3 the rest."),
]


@pytest.mark.parametrize("place, comment", HOLDS)
def test_holds(recorded, place, comment):
    assert found(recorded, **{place: comment}) == []


FAILS = [
    ("before", "`n = 11`", "the kernel computes 10"),
    ("before", "`pid=2: offsets = [8, 9, 10]`", "the kernel computes [8, 9, 10, 11]"),
    ("before", "`pid=2: offsets = [8, ..., 12]`", "computes"),
    ("before", "`pid=2: offsets = 8`", "computes"),
    ("before", "`pid=3: pid = 3`", "there is no program 3 in the grid (3,)"),
    ("before", "`pid=2, launch=2: n = 5`", "launches copy_kernel 2 times"),
    ("before", "`nothing_of_that_name = 3`", "nothing_of_that_name has no value here"),
    ("before", "`offsets.size() = 3`", "TypeError"),
    ("load", "`pid=2: x = [8, 9, 0, 0]`", "undefined"),
    ("load", "`pid=2: x[2:] = [nan, nan]`", "NaN can't be quoted"),
    ("loop", "`pid=1, k=3: total = 44`", "gets to k=3"),
    ("loop", "`pid=1, k=1: total = 44`", "the kernel computes 88"),
    ("trailing", "`pid=1: mean = 18.858`", "the kernel computes 18.85714"),
    ("trailing", "`pid=1: mean = 19`", "the kernel computes 18.85714"),
    ("before", "`num_warps=4`", "num_warps has no value here"),
    ("before", "`tl.load(x_ptr, other=0.0)`", "keyword argument without its value"),
    ("before", "`n = 10 elements`", "has to be checkable"),
    ("before", "`n = 10, BLOCK = 4`", "has to be checkable"),
    ("before", "`pid=2: offsets[0] = 0e5`", "write 0 without an exponent"),
    ("module", "`n = 10`", "outside a jitted function a number names its kernel"),
    ("module", "`copy_kernel: n = 11`", "the kernel computes 10"),
    ("module", "`num_stages=3`", "outside a jitted function"),
    ("before", "the block [8, 9, 10]", "a list of numbers outside backticks can't be checked: [8, 9, 10]"),
    ("before", "where n = 10 here", "a value outside backticks can't be checked: n = 10"),
    ("before", "Program 2 has columns 8 to 11.", "a number about a program outside backticks can't be checked: 8"),
]


@pytest.mark.parametrize("place, comment, message", FAILS)
def test_fails(recorded, place, comment, message):
    (problem,) = found(recorded, **{place: comment})
    assert message in problem


def test_a_problem_points_at_its_span(recorded):
    path, recording = recorded
    path.write_text(source(before="first\n    # then `n = 11` wrong"))
    (problem,) = quotes.check(path, "shown.py", recording)
    assert problem.path == "shown.py"
    assert problem.source[problem.col - 1 :].startswith("n = 11")
    assert path.read_text().split("\n")[problem.line - 1] == problem.source


# ---- the kernels themselves -----------------------------------------------------------------------------------------

FILES = store.kernel_files()


@pytest.fixture(scope="module")
def recordings():
    return store.load(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_changed_digit_is_noticed(path, recordings):
    """Every digit right of the `=` in every claim, changed to each of the nine others."""
    text = path.read_text()
    claims, _ = quotes.parse(text)
    tried = 0
    for claim in claims:
        got = quotes.computed(claim, recordings[path], text)
        assert literals.same(got, claim.right)
        for place in re.finditer(r"\d", claim.right):
            for digit in "0123456789".replace(place[0], ""):
                changed = claim.right[: place.start()] + digit + claim.right[place.end() :]
                try:
                    assert not literals.same(got, changed), f"{claim.span}: {changed} passes too"
                except (SyntaxError, ValueError):
                    pass  # `[07]` is no number at all: an error of its own
                tried += 1
    assert tried >= 9 * len(claims) or not claims


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_changed_claims_fail_the_whole_check_with_file_and_line(path, recordings, tmp_path):
    """Through the file: the last digit of each claim's right side."""
    text = path.read_text()
    claims, _ = quotes.parse(text)
    for number, claim in enumerate(claims):
        digits = list(re.finditer(r"\d", claim.right))
        if not digits or number % 4:  # every fourth claim: the rest differ in nothing that this test looks at
            continue
        at = digits[-1].start()
        changed = claim.right[:at] + str((int(claim.right[at]) + 1) % 10) + claim.right[at + 1 :]
        lines = text.split("\n")
        if f"= {claim.right}" not in lines[claim.line - 1][claim.col - 1 :]:
            continue  # the claim goes over two lines
        head, tail = lines[claim.line - 1][: claim.col - 1], lines[claim.line - 1][claim.col - 1 :]
        lines[claim.line - 1] = head + tail.replace(f"= {claim.right}", f"= {changed}", 1)
        copy = tmp_path / path.name
        copy.write_text("\n".join(lines))
        problems = quotes.check(copy, "shown.py", recordings[path])
        assert [(p.path, p.line) for p in problems if "kernel computes" in p.message] == [("shown.py", claim.line)]
