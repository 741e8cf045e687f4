"""Front matter: every mistake is an error at its line that names the key."""

import pytest

from academy.formulas import Page, PageError

BASE = {"dims": "[n]", "index": "{i: n}", "given": "{x: n, s: scalar}"}


def page(**changes: str) -> str:
    lines = [f"  {key}: {value}" for key, value in {**BASE, **changes}.items()]
    return "---\nmath:\n" + "\n".join(lines) + "\n---\n\n$$y_i := s x_i$$\n"


def failure(text: str) -> PageError:
    with pytest.raises(PageError) as caught:
        Page("page.md", text)
    return caught.value


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dims", "n", "math.dims: must be a list, got 'n'"),
        ("index", "[i]", "math.index: must be a mapping, got ['i']"),
        ("index", "{i: q}", "math.index.i: 'q' is not among the dims (n)"),
        ("index", "{i: 1..q}", "math.index.i: 'q': 'q' is not a declared index"),
        ("class", "{c: q}", "math.class.c: 'q' is not among the dims (n)"),
        ("given", "{x: vector}", "math.given.x: 'vector': write `scalar` or dims (n)"),
        ("given", "{x: n > 1}", "math.given.x: 'n > 1': write `scalar`"),
        ("given", "{e: n}", "math.given.e: e is reserved, for Euler's number: take another letter"),
        ("given", "{n: scalar}", "math.given.n: n is declared twice"),
        ("generic", "{f: 1}", "math.generic: must be a list"),
        ("origin", "2", "math.origin: must be 0 or 1, got 2"),
        ("loss", "{name: L, of: y}", "math.loss: needs the key upstream"),
        ("loss", "{name: L, of: y, upstream: s, x: 1}", "math.loss.x: unknown key"),
        ("loss", "{name: L, of: y, upstream: g}", "math.loss.upstream: upstream g must be among `given`"),
        ("loss", "{name: L, of: z, upstream: x}", "math.loss.of: the page never defines z"),
        ("reference", "{z: x}", "math.reference.z: the page never defines z"),
        ("gradients", "{dy: y}", "math.gradients.dy: needs `loss`"),
        ("dim", "[n]", "math.dim: unknown key; allowed are origin, dims"),
        ("dims", r'["n\\foo"]', r"math.dims.0: command \foo is not in the grammar"),
    ],
)
def test_mistake_names_its_key(key, value, message):
    error = failure(page(**{key: value}))
    assert error.message.startswith(f"front matter: {message}"), error.message
    lines = page(**{key: value}).split("\n")
    assert key in lines[error.problem.line - 1]


def test_broken_yaml_points_at_the_place():
    error = failure("---\nmath:\n  dims: [n\n  index: {}\n---\n")
    assert "front matter" in error.message and error.problem.line in (3, 4)


def test_a_key_given_twice():
    error = failure("---\nmath: {}\ntitle: a\nmath: {}\n---\n")
    assert error.message == "front matter: math: given twice" and error.problem.line == 4


def test_reference_that_raises_or_differs():
    from academy.formulas.comparing.equations import check

    for source, words in (("x * 2", "differs from its reference"), ("x @ torch.ones(99)", "RuntimeError")):
        with pytest.raises(PageError, match=words):
            check(Page("page.md", page(reference=f'{{y: "{source}"}}')))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- math: prose a sketch -->\n$$s = x$$", "unknown directive math: prose (forget and tol exist)"),
        ("<!-- math: tol much -->\n$$s = s + 0$$", "math: tol needs a number, got 'much'"),
        ("<!-- math: tol 1e-3 -->\n$$s = s + 0$$", r"math: tol must stand before a display formula with \approx"),
        ("<!-- math: forget q -->", "cannot forget q: no such symbol"),
        ("<!-- math: skip -->", "unknown directive math: skip"),
        ("```math\ns = s\n```", "use $$...$$ for display formulas, not a math fence"),
        ("\\[ s = x \\]", "mathematics outside $...$ / $$...$$"),
        ("$$s + 0 = s \\tag{A}$$\n\n$$0 + s = s \\tag{A}$$", "tag A is used twice"),
        ("$$s + 0 = s \\tag{a b}$$", "a tag is letters, digits and dashes, not 'a b'"),
        ("The value of $q$ is high.", "symbol 'q' is not declared or not yet defined"),
        ("Here $s = 2 s$, they say.", "'=' does not hold"),
    ],
)
def test_text(text, message):
    from academy.formulas.comparing.equations import check

    with pytest.raises(PageError) as caught:
        check(Page("page.md", page() + "\n" + text + "\n"))
    assert caught.value.message.startswith(message), caught.value.message


def test_code_is_not_read():
    text = page() + "\n`$$q$$` and ```$q$```\n\n```latex\n$$q$$\n```\n"
    assert Page("page.md", text).summary()["display"] == 1
