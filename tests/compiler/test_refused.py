"""What no kernel can have is found without a compiler; the list of it is held against the compiler."""

import pytest

from academy import compiler
from academy.compiler.rules import refused
from tests.compiler.constructs import ACCEPTED, FIRST, REFUSED, TYPED, text

needs_compiler = pytest.mark.skipif(not compiler.available(), reason="Triton's compiler isn't installed")


def launch(**changes) -> dict:
    """A launch of `kernel` in `constructs.HEAD`, as the interpreter would have noted it."""
    tensor = {"tensor": "float32", "offset": 0}
    arguments = dict(x_ptr=tensor, y_ptr=tensor, n=50, BLOCK=64) | changes
    return dict(kernel="kernel", module="text", file="text.py", arguments=arguments, options={})


def by_compiler(body: str) -> list:
    return compiler.problems(text(body), [launch()])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_the_check(name):
    found = refused.problems(text(REFUSED[name]), "text.py")
    assert found and found[0].line >= FIRST and found[0].path == "text.py", found
    assert len(found[0].message) > 25 and "\n" not in found[0].message


@needs_compiler
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_the_compiler(name):
    assert by_compiler(REFUSED[name])


@pytest.mark.parametrize("name", [*ACCEPTED, *TYPED])
def test_taken_by_the_check(name):
    assert refused.problems(text({**ACCEPTED, **TYPED}[name])) == []


@needs_compiler
@pytest.mark.parametrize("name", ACCEPTED)
def test_taken_by_the_compiler(name):
    assert by_compiler(ACCEPTED[name]) == []


@needs_compiler
@pytest.mark.parametrize("name", TYPED)
def test_refused_for_its_types(name):
    """The compiler names the line, or at least one nearby."""
    (problem, *_) = by_compiler(TYPED[name])
    lines = TYPED[name].count("\n") + 1
    assert FIRST <= problem.line <= FIRST + lines, problem


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("@triton.jit\ndef f(x):\n    return f(x)\n", ["call itself"]),
        (
            "from triton.language import sum\n@triton.jit\ndef f(x):\n    return sum(x, 0)\n",
            [],
        ),  # no function of Python
        ("def host(x):\n    return {i: [] for i in x}\n", []),
        ("@numba.jit\ndef host(x):\n    return {i: [] for i in x}\n", []),
    ],
)
def test_what_is_no_body(source, said):
    found = refused.problems(source)
    assert len(found) == len(said) and all(words in problem.message for words, problem in zip(said, found))


def test_the_kernels_of_this_project_pass():
    from academy.traces import store

    for folder in ("annotated_examples", "docs/guides/museum", "docs/learn"):
        for path in sorted((store.ROOT / folder).rglob("*.py")):
            assert refused.problems(path.read_text("utf-8"), path.name) == []
