"""Along the learning path nothing of Triton is used before a sentence says what it does (`site.taught_before_used`)."""

import re

import pytest

from academy.book import exercise_files
from academy.book.learning_path import HOME, LearningPath
from academy.site import taught_before_used

PATH = LearningPath.read(taught_before_used.ROOT / "docs").pages


def hint(what: str) -> str:
    """How to explain it."""
    for construct in taught_before_used.CONSTRUCTS:
        if what == construct.name:
            pattern = construct.explained.replace("⟨", "`").replace("⟩", "`")
            return f"write a sentence above it that matches {pattern}"
    return f"write a sentence above it that says what it does: `{what.removesuffix('=')}` makes …"


def read(*pages):
    reader = taught_before_used.Reader()
    for page in pages:
        reader.page(page)
    return reader


def test_no_page_uses_what_none_has_explained():
    reader = read(*PATH)
    missing = [f"{use.file}:{use.line}: {use.what} isn't explained yet; {hint(use.what)}" for use in reader.missing]
    assert not missing, "\n".join(missing)
    assert {construct.name for construct in taught_before_used.CONSTRUCTS} <= reader.seen, (
        "a construct that nothing uses"
    )
    assert len(reader.seen) > 60, "the path's code was not found"


@pytest.mark.parametrize(
    ("earlier", "first", "what"),
    [
        ([], "learn/softmax.py", "tl.program_id"),
        ([], "learn/softmax.py", "a tensor arrives as a pointer"),
        (["learn/first_kernel.py"], "kernels/tutorials/matmul_autotuned.md", "a loop, `range`"),
        (["learn/first_kernel.py"], "kernels/tutorials/matmul_blocked.md", "a column and a row, `[:, None]`"),
        (["learn/first_kernel.py"], "kernels/classics/cross_entropy.md", "tl.max"),
    ],
)
def test_a_page_too_early_on_the_path_is_noticed(earlier, first, what):
    assert what in {use.what for use in read(*earlier, first).missing}


def test_every_way_in_leads_to_the_first_page_of_the_path():
    first = PATH[0]
    docs = {
        name: (taught_before_used.ROOT / "docs" / name).read_text("utf-8")
        for name in ("index.md", "getting-started.md", HOME)
    }
    (button,) = re.findall(r"\]\(([^)]+)\)\{[^}]*md-button--primary", docs["index.md"])
    after_installing = docs["getting-started.md"].partition("\n## Next: ")[2]
    start = re.search(r"^Start with \[[^\]]+\]\(([^)]+)\)", docs[HOME], re.M)
    assert button == first and re.search(r"\]\(([^)]+)\)", after_installing)[1] == first
    assert f"learn/{start[1]}" == first and docs[HOME].index(start[0]) < docs[HOME].index("[[path]]")


def missing(text):
    reader = taught_before_used.Reader()
    reader.python(text, "page.py")
    return [(use.line, use.what) for use in reader.missing]


KERNEL = """# %% [markdown]
# Words in front.

# %%
x = tl.flip(x)  # words beside
# Words behind.
"""


@pytest.mark.parametrize(
    ("place", "words", "explains"),
    [
        ("in front", "`tl.flip(x)` turns a block round", True),
        ("in front", "`tl.flip` (since 3.0) turns a block round", True),
        ("in front", "`tl.flip` and `tl.sort` move lanes", True),
        ("beside", "`tl.flip` turns a block round", True),
        ("behind", "`tl.flip` turns a block round", False),
        ("in front", "tl.flip turns a block round", False),
        ("in front", "Turn it with `tl.flip`, as you know", False),
        ("in front", "`tl.flipped` turns a block round", False),
    ],
)
def test_only_a_sentence_in_front_explains(place, words, explains):
    text = KERNEL.replace(f"ords {place}", f"ords: {words}")
    assert missing(text) == ([] if explains else [(5, "tl.flip")])


def test_an_exercise_counts_right_after_its_page():
    reader = read("learn/first_kernel.py")
    assert not reader.missing and "tl.load" in reader.seen
    reader.exercise(exercise_files.named("rows/logsumexp"))
    assert ("exercises/rows/logsumexp.py", "tl.max") in {(use.file, use.what) for use in reader.missing}


def test_code_in_an_answer_a_snippet_and_a_shared_function_counts():
    folded = "# %% [markdown]\n# <details>\n#\n# ```python\n# x = tl.flip(x)\n# ```\n#\n# `tl.flip` turns it round.\n"
    assert missing(folded) == [(5, "tl.flip")]
    reader = taught_before_used.Reader()
    reader.markdown('```python\n--8<-- "docs/guides/snippets/gpu.py:programs"\n```\n', "page.md")
    assert ("docs/guides/snippets/gpu.py", "tl.program_id") in {(use.file, use.what) for use in reader.missing}
    shared = "from annotated_examples.common.tile_order import grouped_order\n\nplace = grouped_order(0, 1, 1, 1)\n"
    reader.python(shared, "page.py")
    assert "tl.minimum" in reader.seen
