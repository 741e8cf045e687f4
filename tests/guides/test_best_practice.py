"""The check-list of the guide "Best practice": every kernel file keeps it, and each rule finds what it is about."""

import re

import pytest

from academy import cli
from academy.book import layout
from academy.compiler import rules
from academy.compiler.rules.house_rules import FRAME_LINES, LESSON_SIZE, MOST_NAMES
from academy.compiler.rules.kernel_file import KernelFile
from tests.kernels.harness import ROOT

FILES = rules.files(ROOT)
GUIDE = ROOT / "docs" / "guides" / "best-practice.md"
RULES = rules.every_rule()


@pytest.mark.parametrize("path", FILES, ids=lambda path: layout.module_name(ROOT, path))
def test_kernel_files(path):
    assert not (found := rules.problems(path, ROOT)), "\n".join(map(str, found))


def test_every_exception_is_needed():
    assert not (found := rules.unused_entries(ROOT)), "\n".join(map(str, found))


# A test must be able to fail: each rule finds the fault that it is about, and says nothing of the mended file.

FAULTS = {
    "academy device comes first": (
        "import triton\nfrom academy.runtime import device",
        "from academy.runtime import device\nimport triton",
    ),
    "imports point one way": (
        "from annotated_examples.fast.matmul import matmul",
        "from annotated_examples.common.rows import as_rows",
    ),
    "masked loads have other": (
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m)",
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0)",
    ),
    "stores are masked or whole": (
        "@triton.jit\ndef a_kernel(p, x):\n    o = tl.arange(0, 4)\n    tl.store(p + o, x)",
        "@triton.jit\ndef a_kernel(p, x):\n    o = tl.arange(0, 4)\n    tl.store(p + o, x, mask=o < 3)",
    ),
    "row offsets are int64": (
        "@triton.jit\ndef a_kernel(p, stride_m):\n    row = tl.program_id(0)\n    p += row * stride_m",
        "@triton.jit\ndef a_kernel(p, stride_m):\n    row = tl.program_id(0).to(tl.int64)\n    p += row * stride_m",
    ),
    "no and or not on blocks": (
        "@triton.jit\ndef f(a, b):\n    m = a and not b",
        "@triton.jit\ndef f(a, b, C: tl.constexpr):\n    m = a & ~b\n"
        "    if C and a.shape[0] > 1 and a is not None:\n        m = a",
    ),
    "no python max on blocks": (
        "@triton.jit\ndef f(a):\n    m = max(a, 0)",
        "@triton.jit\ndef f(a):\n    m = tl.maximum(a, 0)",
    ),
    "accumulators are float32": (
        "@triton.jit\ndef f():\n    acc = tl.zeros((4,), tl.float16)",
        "@triton.jit\ndef f():\n    acc = tl.zeros((4,), tl.float32)",
    ),
    "dots say their precision": (
        "@triton.jit\ndef f(a, b):\n    c = tl.dot(a, b)",
        "@triton.jit\ndef f(a, b):\n    c = tl.dot(a, b, input_precision='ieee')",
    ),
    "files are short": (
        "@triton.jit\ndef f(a):\n" + "    a += 1\n" * (LESSON_SIZE[0] + 1),
        "@triton.jit\ndef f(a):\n" + "    a += 1\n    # why\n" * LESSON_SIZE[0],
    ),
    "signatures can be read": (
        f"@triton.jit\ndef f({', '.join(f'a{n}' for n in range(MOST_NAMES + 1))}): pass",
        "@triton.jit\ndef f(x, y, N, BLOCK: tl.constexpr):  # x, y: (pointer, stride, stride)\n    pass",
    ),
    "pointers say their shape": (
        "@triton.jit\ndef a_kernel(\n    x_ptr,\n    y_ptr, N,  # (N,)\n):\n    pass",
        "@triton.jit\ndef a_kernel(\n    x_ptr, y_ptr,  # (M, N), (N,)\n    N,\n):\n    pass",
    ),
    "lessons have no hints": (
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0, eviction_policy='evict_first')",
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0)",
    ),
    "the frame is short": (
        "def EXAMPLE():\n" + "    f()\n" * (FRAME_LINES + 1),
        "def EXAMPLE():\n" + "    f()\n    # why\n" * (FRAME_LINES - 2) + "if __name__ == '__main__':\n    f()\n",
    ),
    "examples draw no random numbers": ("def EXAMPLE():\n    torch.randn(3)", "def EXAMPLE():\n    torch.arange(3)"),
    "backwards are once differentiable": (
        "class F(Function):\n    @once_differentiable\n    def backward(ctx, dy): pass",
        "class F(Function):\n    @autograd.once_differentiable\n    def backward(ctx, dy): pass",
    ),
    "launchers do not write to arguments": (
        "def f_forward(x):\n    x.mul_(2)",
        "def f_forward(x):\n    x = x.clone()\n    x.mul_(2)",
    ),
    "public functions say what they take": (
        'def f(x, y):\n    """`x`.\n\n    Args:\n        x: one.\n\n    Raises:\n        TypeError: no."""',
        'def f(x):\n    """`x`.\n\n    Args:\n        x: one.\n\n    Raises:\n        TypeError: no."""',
    ),
    "has the parts of a lesson": (
        "def f(): pass",
        '"""What it costs. Contract."""\nscript.main(x)\n'
        + "".join(f"def {name}(): pass\n" for name in ("EXAMPLE", "x_contract", "x_reference")),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_finds_its_fault(rule):
    broken, mended = FAULTS[rule]
    assert list(RULES[rule](KernelFile(broken)))
    assert not list(RULES[rule](KernelFile(mended)))


@pytest.mark.parametrize("said, broken", [("", False), ("house_rules = true\n", True)])
def test_a_project_says_whether_its_files_are_lessons(tmp_path, said, broken):
    kernels = tmp_path / "annotated_examples"
    (kernels / "own").mkdir(parents=True)
    (kernels / "practice.toml").write_text(said)
    (kernels / "own/kernel.py").write_text("import triton\n\n\n@triton.jit\ndef f(x_ptr):\n    pass\n")
    found = [str(problem) for problem in rules.lint(tmp_path, None)]
    assert any("has the parts of a lesson" in problem for problem in found) == broken


def test_the_guide_names_every_rule():
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|[^|]+\|$", GUIDE.read_text("utf-8"), re.M)
    named = [cell.strip() for cell in rows if cell.strip() not in ("name", "---")]
    assert set(named) == set(RULES) and len(named) == len(RULES)


def test_a_kernel_file_of_ones_own(tmp_path, capsys, monkeypatch):
    """Outside of any project: only what holds for every kernel, each fault with its file and line."""
    path = tmp_path / "mine.py"
    path.write_text("import triton\nimport triton.language as tl\n\n\n" + FAULTS["masked loads have other"][0])
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "mine.py"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("mine.py:7:5: a load with a mask but without other=") and "1 problem" in said
    exempt = "[[exempt]]\nrule = 'masked loads have other'\nfunction = 'f'\nreason = 'nothing adds them up'\n"
    (tmp_path / "practice.toml").write_text(exempt)
    assert cli.main(["check", "mine.py"]) == 0
    path.write_text("def f(:\n")
    assert cli.main(["check", "mine.py"]) == 1 and "mine.py:1:7: invalid syntax" in capsys.readouterr().out


def test_an_exception_that_nothing_needs_is_told(tmp_path):
    file = tmp_path / "annotated_examples/classics/a.py"
    file.parent.mkdir(parents=True)
    file.write_text(FAULTS["masked loads have other"][0])
    entry = "[[exempt]]\nrule = '{}'\nfunction = {}\nreason = '{}'\n"
    listed = [("masked loads have other", "['f', 'g']", "why"), ("no python max on blocks", "'f'", "")]
    (tmp_path / "annotated_examples/practice.toml").write_text("".join(entry.format(*each) for each in listed))
    told = sorted((problem.line, problem.message) for problem in rules.unused_entries(tmp_path))
    assert [line for line, _ in told] == [1, 5, 5]
    assert "function g" in told[0][1] and told[1][1] == "no reason is given"
    assert not any("other=" in problem.message for problem in rules.problems(file, tmp_path))


def test_a_backward_that_loses_second_derivatives():
    """PyTorch's own `once_differentiable` isn't enough; the guide "From PyTorch to Triton" says why."""
    (found,) = RULES["backwards are once differentiable"](KernelFile(FAULTS["backwards are once differentiable"][0]))
    assert found.line == 3 and "academy.runtime.autograd" in found.message
