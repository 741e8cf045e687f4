"""Small changes of a kernel's source, each of which the comparison with the printed formula should notice.

Made on the syntax tree of jitted functions, written back at the place in the source: signs, operators, comparisons,
constants, dropped masks and mask terms, dropped `other`, swapped branches and arguments, exchanged functions and
pointers, casts to too few bits, sums that forget what they had. A masked lane that is loaded behind the last reduction
never reaches a result, so there `other` is left alone.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from academy import syntax

_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//"}
_OPERATORS |= {ast.BitAnd: "|", ast.BitOr: "&"}
_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
_OPPOSITE = {ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "=="}
_FUNCTIONS = {"exp": "log", "log": "exp", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
_FUNCTIONS |= {
    "sum": "max",
    "sqrt": "exp",
    "rsqrt": "sqrt",
    "erf": "tanh",
    "tanh": "erf",
    "sigmoid": "exp",
    "zeros": "ones",
}
#: Keywords that choose how the hardware works, not what is computed.
_TUNING = {
    "num_stages",
    "num_warps",
    "eviction_policy",
    "cache_modifier",
    "flatten",
    "axis",
    "volatile",
    "warp_specialize",
}
_TUNING |= {"input_precision", "allow_tf32", "loop_unroll_factor", "disallow_acc_multi_buffer", "dtype", "sem", "scope"}


@dataclass(frozen=True)
class KernelMutant:
    """start, end: offsets in the source, replaced by `new`. line: from 1; context: its text, changed at `column`."""

    operator: str
    function: str
    line: int
    start: int
    end: int
    new: str
    old: str
    context: str = ""
    column: int = 0

    @property
    def name(self) -> str:
        """How the reviewed list names it: function, line, place in the line, and change."""
        return f"{self.function}: {self.context} @{self.column}: {self.old} -> {self.new}"

    def apply(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def of_source(source: str) -> list[KernelMutant]:
    """All mutants of the jitted functions of a module, in the order of the source; none gives the source itself."""
    found, seen = [], {source}
    for function in syntax.jitted_functions(source):
        for mutant in _Kernel(source, function).mutants():
            if mutant.apply(source) not in seen:
                seen.add(mutant.apply(source))
                found.append(mutant)
    return found


def sample(mutants: list[KernelMutant], count: int) -> list[KernelMutant]:
    """At most `count` of them, spread over functions and operators; an edit of the file changes few of the chosen."""
    groups: dict[tuple[str, str], list[KernelMutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.function, mutant.operator), []).append(mutant)
    chosen: list[KernelMutant] = []
    for group in groups.values():
        group.sort(key=lambda mutant: hashlib.sha256(mutant.name.encode()).digest())
    while len(chosen) < min(count, len(mutants)):
        for group in groups.values():
            if group and len(chosen) < count:
                chosen.append(group.pop())
    return sorted(chosen, key=lambda mutant: mutant.start)


class _Kernel:
    def __init__(self, source: str, function: ast.FunctionDef):
        self.source, self.function = source, function
        self.lines = [0]
        for line in source.split("\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)
        arguments = [argument.arg for argument in function.args.args]
        self.pointers = [name for name in arguments if name.endswith("_ptr")]
        reductions = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Call) and _reduces(node)]
        self.last_reduction = max(reductions, default=0)
        hints = [argument for node in ast.walk(function) if _is_hint(node) for argument in node.args[1:]]
        told = _loads(*hints)
        self.only_hints = {name for name, count in _loads(function).items() if count == told[name]}

    def mutants(self) -> Iterator[KernelMutant]:
        body = self.function.body[1:] if ast.get_docstring(self.function) else self.function.body
        for statement in body:
            yield from self.visit(statement)

    def visit(self, node: ast.AST) -> Iterator[KernelMutant]:
        if isinstance(node, ast.keyword) and node.arg in (*_TUNING, "other"):
            return
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in self.only_hints:
            return
        rule = getattr(self, "_" + type(node).__name__.lower(), None)
        if rule:
            yield from rule(node)
        for child in ast.iter_child_nodes(node):
            if not self.silent(node, child):
                yield from self.visit(child)

    def silent(self, node: ast.AST, child: ast.AST) -> bool:
        """Annotations, tuning (`RUNS: tl.constexpr = 4`), the axis of `tl.num_programs`, zeros for unused arguments,
        and how wide the compiler is told that it may load."""
        if isinstance(node, ast.AnnAssign):
            return child is node.annotation or isinstance(child, (ast.Constant, ast.IfExp))
        if _is_hint(node) and child is not node.args[0]:
            return True
        if not isinstance(node, ast.Call) or not isinstance(child, ast.Constant):
            return False
        unused = isinstance(node.func, ast.Name) and child.value == 0
        return unused or self.text(node.func) == "tl.num_programs"

    # ---------------------------------------------------------------- places
    def offset(self, line: int, column: int) -> int:
        """Offset of an ast place, whose columns count UTF-8 bytes."""
        text = self.source[self.lines[line - 1] : self.lines[line]]
        return self.lines[line - 1] + len(text.encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def change(self, operator: str, node: ast.AST, new: str) -> KernelMutant:
        start, end = self.span(node)
        return self.replace(operator, start, end, new)

    def replace(self, operator: str, start: int, end: int, new: str) -> KernelMutant:
        line = self.source.count("\n", 0, start) + 1
        text = self.source.split("\n")[line - 1]
        column = start - self.lines[line - 1] - (len(text) - len(text.lstrip()))
        old, context = self.source[start:end], text.split("  #")[0].strip()
        return KernelMutant(operator, self.function.name, line, start, end, new, old, context, column)

    # ---------------------------------------------------------------- rules, by type of node
    def _binop(self, node: ast.BinOp):
        new = _OPERATORS.get(type(node.op))
        left, right = self.text(node.left), self.text(node.right)
        if new:
            # The parts keep their own brackets only if the source had them around the whole.
            gap = self.source[self.span(node.left)[1] : self.span(node.right)[0]]
            start = self.span(node.left)[1] + gap.index(_symbol(node.op))
            yield self.replace("operator", start, start + len(_symbol(node.op)), new)
        if isinstance(node.op, ast.BitAnd):
            yield self.change("drop mask term", node, left)
            yield self.change("drop mask term", node, right)
        elif isinstance(node.op, (ast.Add, ast.Sub)):
            yield self.change("drop term", node, left)
        elif isinstance(node.op, (ast.Mult, ast.Div)):
            yield self.change("drop factor", node, left)

    def _compare(self, node: ast.Compare):
        constant = isinstance(node.comparators[0], ast.Constant)
        # Next to a constant the border itself is hit by no random number: turn the comparison round instead.
        new = (_OPPOSITE if constant else _COMPARISONS).get(type(node.ops[0]))
        if new:
            gap_start = self.span(node.left)[1]
            start = gap_start + self.source[gap_start : self.span(node.comparators[0])[0]].index(_symbol(node.ops[0]))
            yield self.replace("comparison", start, start + len(_symbol(node.ops[0])), new)

    def _unaryop(self, node: ast.UnaryOp):
        if isinstance(node.op, ast.USub):
            yield self.change("sign", node, self.text(node.operand))

    def _constant(self, node: ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            return
        yield self.change("constant", node, repr(node.value + 1))

    def _call(self, node: ast.Call):
        name = self.text(node.func)
        short = name.rsplit(".", 1)[-1]
        if isinstance(node.func, ast.Attribute) and short in _FUNCTIONS:
            start, end = self.span(node.func)
            yield self.replace("function", end - len(short), end, _FUNCTIONS[short])
        if name == "tl.where":
            yes, no = node.args[1], node.args[2]
            yield self.replace("swap", self.span(yes)[0], self.span(no)[1], f"{self.text(no)}, {self.text(yes)}")
            yield self.change("drop condition", node, f"({self.text(yes)})")
        if name == "tl.dot" and len(node.args) > 1:
            yield self.change("swap", node, f"tl.dot({self.text(node.args[1])}, {self.text(node.args[0])})")
        if isinstance(node.func, ast.Attribute) and short == "to" and len(node.args) == 1:
            # Offsets of too few bits show in tensors of 2³¹ elements only; tests/kernels/addresses.py looks at those.
            value = self.text(node.func.value)
            exact = value.startswith("tl.zeros") or value.endswith(".to(tl.float16)")
            if self.text(node.args[0]) == "tl.float32" and not exact:
                yield self.change("narrow cast", node.args[0], "tl.float16")
        if isinstance(node.func, ast.Name) and len(node.args) > 1:
            for a, b in zip(node.args, node.args[1:]):
                yield self.replace("swap", self.span(a)[0], self.span(b)[1], f"{self.text(b)}, {self.text(a)}")
        if name in ("tl.load", "tl.store"):
            yield from self._memory(node)

    def _memory(self, node: ast.Call):
        for keyword in node.keywords:
            if keyword.arg == "mask":
                yield self.change("drop mask", keyword.value, "None")
            elif keyword.arg == "other" and node.lineno <= self.last_reduction:
                yield self.change("drop other", keyword.value, "None")
                if self.text(keyword.value) != "0":  # an integer: there is no NaN to put in
                    yield self.change("other", keyword.value, 'float("nan")')
        for inner in ast.walk(node.args[0]):
            if isinstance(inner, ast.Name) and inner.id in self.pointers:
                for other in self.pointers:
                    if other != inner.id:
                        yield self.change("pointer", inner, other)
                        break

    def _augassign(self, node: ast.AugAssign):
        target, value = self.text(node.target), self.text(node.value)
        new = _OPERATORS.get(type(node.op))
        if new:
            yield self.change("operator", node, f"{target} {new}= {value}")
        yield self.change("forget", node, f"{target} = {value}")
        yield self.change("drop statement", node, "pass")


def _loads(*nodes: ast.AST) -> Counter:
    """How often each name is read."""
    inside = [node for parent in nodes for node in ast.walk(parent)]
    return Counter(node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _is_hint(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        f"tl.{name}" for name in ("max_contiguous", "multiple_of", "max_constancy")
    }


def _reduces(node: ast.Call) -> bool:
    return ast.unparse(node.func) in {
        f"tl.{name}" for name in ("sum", "max", "min", "dot", "cumsum", "reduce", "argmax")
    }


def _symbol(operator: ast.AST) -> str:
    return {
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.FloorDiv: "//",
        ast.Mod: "%",
        ast.BitAnd: "&",
        ast.BitOr: "|",
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
    }[type(operator)]
