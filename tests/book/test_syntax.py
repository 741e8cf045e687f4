"""academy/book/syntax: one tree for all that ask, and every statement of it."""

import ast
import os
import sys

import pytest

from academy.book import syntax

SOURCE = """
import a
@decorated
def f(x):
    "text"
    for i in range(x):
        if i: pass
        else:
            try: y = [j for j in x]
            except E: z = lambda: 0
            finally: return
    class C:
        async def g(self):
            with a as b:
                match b:
                    case 1: k = 2
                    case _: raise
"""


def test_a_text_is_parsed_once():
    assert syntax.tree(SOURCE) is syntax.tree(SOURCE)
    with pytest.raises(SyntaxError):
        syntax.tree("def f(:")


def test_every_statement_is_found_once_in_the_order_of_the_text():
    found = list(syntax.statements(syntax.tree(SOURCE)))
    walked = [node for node in ast.walk(syntax.tree(SOURCE)) if isinstance(node, ast.stmt)]
    assert len(found) == len(walked) and set(found) == set(walked)
    places = [(node.lineno, node.col_offset) for node in found]
    assert places == sorted(places)


def test_jitted_functions_are_told_by_their_decorators():
    text = """
@triton.autotune(configs=[])
@triton.jit
def tuned(): pass
@triton.jit(do_not_specialize=["n"])
def called(): pass
@functools.cache
def cached(): pass
def launcher():
    triton.jit(cached)
    @jit
    def nested(): pass
"""
    assert [function.name for function in syntax.jitted_functions(text)] == ["tuned", "called", "nested"]
    assert syntax.jitted_functions(text)[0] is syntax.tree(text).body[0], "of the one tree"


def test_imported_kernel_files_are_found_in_order(tmp_path):
    for name in ("b", "a", "c"):
        path = tmp_path / "annotated_examples" / "x" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    text = """
import torch, annotated_examples.x.c
from annotated_examples.x import b, missing
from .x import a
def main():
    from annotated_examples.x.a import something
    from annotated_examples.x import a
"""
    assert [path.stem for path in syntax.imported_kernels(text, tmp_path)] == ["c", "b", "a"]
    assert syntax.imported_kernels("import torch", tmp_path) == []


def test_a_file_that_is_changed_within_a_second_is_read_again(tmp_path, monkeypatch):
    """Python keeps bytecode for a time in whole seconds and a size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "changed_at_once.py"
    for value in (1, 2):
        path.write_text(f"value = {value}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert syntax.import_path(path).value == value
