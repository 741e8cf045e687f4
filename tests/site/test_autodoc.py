"""The API reference's pages: made again when what they show has changed, entered in the tables when it has not."""

from types import SimpleNamespace

import pytest

from academy.site import autodoc

SOURCE = '''"""Scaling."""

import torch

#: The default.
FACTOR = 2


def scale(x, factor=FACTOR):
    """`factor` times `x`.

    Args:
        x: any shape.
    """
    # a comment
    return factor * x


class Scaler:
    """Scales."""

    def __call__(self, x):
        """The same."""
        return scale(x)
'''


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "package" / "scaling.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def edited(path, old, new) -> list[str]:
    """What the page shows of the module, of the function and of the class, after an edit."""
    assert old in SOURCE
    path.write_text(SOURCE.replace(old, new))
    return [autodoc.outline(str(path), name) for name in ("", "scale", "Scaler")]


@pytest.mark.parametrize(
    "old, new, changes",
    [
        ("# a comment", "# another comment, which\\n    # is longer", [False, False, False]),
        ("return factor * x", "product = factor * x\\n    return product", [False, False, False]),
        ("return scale(x)", "return scale(x, 2)", [False, False, False]),
        ("any shape", "a vector", [True, True, False]),
        ("x, factor=FACTOR", "x, factor=3", [True, True, False]),
        ("The same", "As the function does", [True, False, True]),
        ("FACTOR = 2", "FACTOR = 3", [True, False, False]),
        ('"""Scaling."""', '"""Scaling numbers."""', [True, False, False]),
    ],
)
def test_an_outline_is_what_the_reference_shows(module, old, new, changes):
    before = edited(module, "import torch", "import torch")
    assert [a != b for a, b in zip(before, edited(module, old, new.replace("\\n", "\n")))] == changes


def test_names_lead_to_files(module):
    root = module.parents[1]
    (module.parent / "__init__.py").write_text("")
    assert autodoc._place(root, "package.scaling") == (str(module), "")
    assert autodoc._place(root, "package.scaling.scale") == (str(module), "scale")
    assert autodoc._place(root, "package") == (str(module.parent / "__init__.py"), "")


def test_what_is_noted_is_entered_again():
    """Objects and anchors that a page registered while it was rendered, into the tables of another build."""

    class Table(list):
        def register(self, *arguments, **options):
            self.append((arguments, options))

        register_anchor = register

    def build():
        handlers = SimpleNamespace(inventory=Table(), get_handler=used.append)
        return SimpleNamespace(plugins={"mkdocstrings": SimpleNamespace(handlers=handlers), "autorefs": Table()})

    used: list[str] = []
    first, page = build(), object()
    with autodoc.noted(first) as entries:
        first.plugins["autorefs"].register_anchor(page, "a.b", title="b", primary=True)
        first.plugins["mkdocstrings"].handlers.inventory.register(name="a.b", uri="x#a.b")
    second, other = build(), object()
    autodoc.enter(entries, other, second)
    assert second.plugins["autorefs"] == [((other, "a.b"), {"title": "b", "primary": True})]
    assert first.plugins["autorefs"] == [((page, "a.b"), {"title": "b", "primary": True})]
    inventories = [config.plugins["mkdocstrings"].handlers.inventory for config in (first, second)]
    assert inventories[0] == inventories[1] == [((), {"name": "a.b", "uri": "x#a.b"})]
    assert used == ["python"]
    first.plugins["autorefs"].register_anchor(page, "later")
    assert len(entries) == 2
