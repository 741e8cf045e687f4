"""Three plain mistakes that leave every access inside: a tail that nobody reads, swapped strides, a missing `other`."""

import re

import pytest

from academy import cli
from academy.traces import faults, store

PRODUCT = """
@triton.jit
def product_kernel(x_ptr, y_ptr, z_ptr, M, N, K, sxm, sxk, syk, syn, szm, szn, B: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k0 in range(0, {rounds}):
        k = k0 * B + tl.arange(0, B)
        x = tl.load(x_ptr + {x}, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(y_ptr + {y}, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
    tl.store(z_ptr + m[:, None] * szm + n[None, :] * szn, acc, mask=(m[:, None] < M) & (n[None, :] < N))

def EXAMPLE():
    x, y = torch.arange(45.0).view(5, 9), torch.arange(27.0).view(9, 3)
    z = torch.empty(5, 3)
    product_kernel[{grid}](x, y, z, 5, 3, 9, *x.stride(), *y.stride(), *z.stride(), B=4)
"""
RIGHT = dict(
    rounds="tl.cdiv(K, B)",
    x="m[:, None] * sxm + k[None, :] * sxk",
    y="k[:, None] * syk + n[None, :] * syn",
    grid="(2, 1)",
)


def test_what_lengths_choose_may_stay_unread(record):
    source = """
        @triton.jit
        def take_kernel(x_ptr, lengths_ptr, y_ptr, BLOCK: tl.constexpr):
            offs = tl.arange(0, BLOCK)
            length = tl.load(lengths_ptr)
            tl.store(y_ptr, tl.sum(tl.load(x_ptr + offs, mask=offs < length, other=0.0)))

        def EXAMPLE():
            take_kernel[(1,)](torch.ones(8), torch.tensor([5]), torch.empty(1), BLOCK=8)
        """
    path, recording = record(source)
    assert faults.wrong_in_the_run(path, recording) == []
    path, recording = record(source.replace("tl.load(lengths_ptr)", "5"))
    (problem,) = faults.wrong_in_the_run(path, recording)
    assert "reads x_ptr[5] (3 of 8" in problem.message


SHARES = """
@triton.jit
def shares_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + row * n + offs, mask=mask{other})
    doubled = x * 2
    total = tl.sum(doubled, axis=0)
    share = doubled / total
    tl.store(y_ptr + row * n + offs, share, mask=mask)

def EXAMPLE():
    x = {x}
    y = torch.empty_like(x)
    shares_kernel[(3,)](x, y, 5, BLOCK=8)
    print(y)
"""


WRONG_STRIDE = "3 elements apart, a stride of y_ptr"
OTHER = ", other=0.0"
AFTER = "torch.arange(1.0, 16.0).view(3, 5)"
#: A file; line and words of each mistake in it, and of each warning.
FOUND = {
    "right": (PRODUCT.format(**RIGHT), [], []),
    "a tail": (PRODUCT.format(**RIGHT | dict(rounds="K // B")), [
        (14, r"no program of product_kernel reads x_ptr\[0, 8\] \(5 of 45 elements are left out"
             r".*all from 8 on along axis 1\): does a loop end too early"),
        (15, r"reads y_ptr\[8, 0\] \(3 of 27 elements"),
    ], []),
    "two strides": (PRODUCT.format(**RIGHT | dict(y="k[:, None] * syn + n[None, :] * syk")), [
        (15, "as if two strides were swapped, but y_ptr has shape"),
    ], []),
    "of y": (PRODUCT.format(**RIGHT | dict(x="m[:, None] * syk + k[None, :] * syn")), [
        (14, f"{WRONG_STRIDE}, but x_ptr has shape"),
    ], []),
    "of z": (PRODUCT.format(**RIGHT | dict(x="m[:, None] * szm + k[None, :] * szn")), [(14, WRONG_STRIDE)], []),
    "NaN of a missing other": (SHARES.format(other="", x=AFTER), [
        (14, r"stores NaN in y_ptr\[0, 0\].*The first NaN that counts is total, in `total = tl.sum\(doubled, axis=0\)`"
             ".*the load of x_ptr in line 12, which masks lanes off and has no `other`"),
    ], []),
    "with other": (SHARES.format(other=OTHER, x=AFTER), [], []),
    "NaN of arithmetic": (SHARES.format(other=OTHER, x="torch.zeros(3, 5)"), [], [
        (15, "The first NaN that counts is share, in `share = doubled / total`"),
    ]),
    "NaN of before": (SHARES.format(other="", x="torch.full((3, 5), float('nan'))"), [], []),
    "lanes that nothing depends on": (
        SHARES.format(other="", x="torch.ones(3, 5)").replace("doubled / total", "doubled + 1"), [], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("source, mistakes, warnings", FOUND.values(), ids=FOUND)
def test_what_is_found(record, source, mistakes, warnings):
    path, recording = record(source)
    for found, wanted in (faults.wrong_in_the_run(path, recording), mistakes), (faults.warnings(recording), warnings):
        if wanted is not None:
            assert [problem.line for problem in found] == [line for line, _ in wanted]
            assert all(re.search(words, problem.message, re.S) for problem, (_, words) in zip(found, wanted)), found


def test_they_are_an_exit_status(kernel_file, in_process, capsys):
    assert cli.main(["trace", str(kernel_file(PRODUCT.format(**RIGHT | dict(rounds="K // B"))))]) == 1
    assert cli.main(["trace", str(kernel_file(SHARES.format(other="", x="torch.ones(3, 5)")))]) == 1
    swapped = RIGHT | dict(y="k[:, None] * syn + n[None, :] * syk")
    assert cli.main(["trace", str(kernel_file(PRODUCT.format(**swapped)))]) == 1
    assert "swapped" in capsys.readouterr().out


@pytest.mark.parametrize(
    "size, block, said",
    [
        ("3, 9", 4, ["one tile along an axis of its grid (1 x 3)"]),
        ("9, 3", 4, ["one tile along an axis of its grid (3 x 1)"]),
        ("8, 8", 4, ["equally many tiles along two axes of its grid (2 x 2)"]),
        ("5, 9", 4, []),
    ],
)
def test_sizes_that_hide_mistakes_are_named(record, size, block, said):
    source = """
        @triton.jit
        def copy_kernel(x_ptr, y_ptr, M, N, B: tl.constexpr):
            m = tl.program_id(0) * B + tl.arange(0, B)[:, None]
            n = tl.program_id(1) * B + tl.arange(0, B)[None, :]
            mask = (m < M) & (n < N)
            tl.store(y_ptr + m * N + n, tl.load(x_ptr + m * N + n, mask=mask), mask=mask)

        def EXAMPLE():
            x = torch.ones(SIZE)
            grid = triton.cdiv(x.shape[0], 4), triton.cdiv(x.shape[1], 4)
            copy_kernel[grid](x, torch.empty_like(x), *x.shape, B=4)
        """
    source = source.replace("SIZE", size)
    path, recording = record(source.replace("4)", f"{block})").replace("B=4", f"B={block}"))
    found = faults.sizes_to_change(path, recording)
    assert len(found) == len(said) and all(words in each for words, each in zip(said, found)), found


def test_a_loop_with_one_round_is_named(record):
    source = PRODUCT.format(**RIGHT).replace("(5, 9)", "(5, 4)").replace("45.0", "20.0").replace("27.0", "12.0")
    source = source.replace("view(9, 3)", "view(4, 3)").replace("5, 3, 9,", "5, 3, 4,")
    path, recording = record(source)
    found = faults.sizes_to_change(path, recording)
    assert found[0].startswith("product_kernel has one tile along an axis of its grid (2 x 1)")
    assert found[1] == "the loop of product_kernel in line 12 has one round"


def test_no_file_of_the_project_raises_a_false_alarm():
    """Kept recordings, so this costs little. The lessons skip what masks, windows and labels leave out. The bytes that
    `operations/` says of an example, and the numbers in its file's notes, are those of its run."""
    for path, recording in store.load(store.kernel_files()).items():
        assert faults.stale_numbers(path, recording) == [], path
        assert faults.wrong_in_the_run(path, recording) == [], path
        assert faults.warnings(recording) == [], path


@pytest.mark.compiles
def test_what_runs_here_and_compiles_nowhere_is_reported(kernel_file, in_process, capsys):
    source = SHARES.format(other=", other=0.0", x="torch.ones(3, 5)")
    source = source.replace("doubled = x * 2", "parts = {0: x * 2}\n    doubled = parts[0]")
    path = kernel_file(source)
    assert cli.main(["trace", str(path)]) == 1
    assert re.search(rf"{path}:13:\d+: a kernel has no dictionaries", capsys.readouterr().out)
    path = kernel_file(SHARES.format(other=", other=0.0", x="torch.ones(3, 5)"))
    assert cli.main(["trace", str(path)]) == 0
    assert "compiles for sm_90 (H100, H200)" in capsys.readouterr().out
    assert cli.main(["trace", str(path), "--no-compile"]) == 0
    assert "compiles for" not in capsys.readouterr().out
