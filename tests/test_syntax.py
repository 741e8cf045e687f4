"""academy/syntax: one tree for all that ask, and every statement of it."""

import ast

import pytest

from academy import syntax

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
