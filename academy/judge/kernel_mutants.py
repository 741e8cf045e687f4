"""Small changes of a kernel's source, each of which the comparison with the printed formula should notice.

Made on the syntax tree of jitted functions, written back at the place in the source: signs, operators, comparisons,
constants, dropped masks and mask terms, dropped `other`, swapped branches and arguments, exchanged functions and
pointers, casts to too few bits, sums that forget what they had. A masked lane that is loaded behind the last reduction
never reaches a result, so there `other` is left alone.

Such a change is coarse. Fine ones are made as well, of the size of rounding: what a reader gets wrong and no tolerance
sees. `of_source(source, fine=True)` gives these.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from academy.book import syntax
from academy.judge.mutants import Mutant

#: Operators as they are written, and what takes their place.
_SYMBOLS: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//"}
_SYMBOLS |= {ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SYMBOLS |= {ast.Eq: "==", ast.NotEq: "!="}
_OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "%", "%": "//", "&": "|", "|": "&"}
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_FUNCTIONS = dict(
    pair.split(":")
    for pair in """exp:log log:exp max:min min:max maximum:minimum minimum:maximum sum:max
    sqrt:exp rsqrt:sqrt erf:tanh tanh:erf sigmoid:exp zeros:ones""".split()
)
#: Keywords that choose how the hardware works, not what is computed; and `other`, which has a rule of its own.
_LEFT_ALONE = set(
    """num_stages num_warps eviction_policy cache_modifier flatten axis volatile warp_specialize other
    input_precision allow_tf32 loop_unroll_factor disallow_acc_multi_buffer dtype sem scope""".split()
)
_HINTS = {"tl.max_contiguous", "tl.multiple_of", "tl.max_constancy"}
#: Factors of fine changes: 1 + 2⁻²⁰, which is one in the seventh digit, and 1 + 2⁻²³, the float32 that follows 1.
_DIGIT, _BIT = "1.00000095367431640625", "1.00000011920928955078125"
#: Functions of floats, and reductions and choices that are floats if what they get is.
_OF_FLOATS = set("exp exp2 log log2 sqrt rsqrt sqrt_rn sin cos erf tanh sigmoid fdiv div_rn dot dot_scaled".split())
_PASS_ON = set("sum max min maximum minimum where cumsum trans reshape broadcast_to abs fma".split())
_REDUCTIONS = {f"tl.{name}" for name in ("sum", "max", "min", "dot", "cumsum", "reduce", "argmax")}


def of_source(source: str, every_function: bool = False, fine: bool = False) -> list[Mutant]:
    """All mutants of the jitted functions of a module, or of all functions at its top, in the order of the source; none
    gives the source itself. fine: those of the size of rounding, in place of the coarse ones."""
    found, seen = [], {source}
    top = [node for node in syntax.tree(source).body if isinstance(node, ast.FunctionDef)]
    for function in top if every_function else syntax.jitted_functions(source):
        for mutant in (_Fine if fine else _Kernel)(source, function).mutants():
            if (changed := mutant.apply(source)) not in seen:
                seen.add(changed)
                found.append(mutant)
    return found


def _calls(node: ast.AST, names: set[str]) -> list[ast.Call]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) in names]


def _loads(*nodes: ast.AST) -> Counter:
    """How often each name is read."""
    inside = [node for parent in nodes for node in ast.walk(parent)]
    return Counter(node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


class _Kernel:
    def __init__(self, source: str, function: ast.FunctionDef):
        self.source, self.function = source, function
        self.place = syntax.Places(source)
        self.pointers = [argument.arg for argument in function.args.args if argument.arg.endswith("_ptr")]
        self.last_reduction = max((node.lineno for node in _calls(function, _REDUCTIONS)), default=0)
        told = _loads(*(argument for node in _calls(function, _HINTS) for argument in node.args[1:]))
        self.only_hints = {name for name, count in _loads(function).items() if count == told[name]}

    def mutants(self) -> Iterator[Mutant]:
        for statement in self.function.body[1 if ast.get_docstring(self.function) else 0 :]:
            yield from self.visit(statement)

    def visit(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.keyword) and node.arg in _LEFT_ALONE:
            return
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in self.only_hints:
            return
        yield from getattr(self, "_" + type(node).__name__.lower(), lambda node: ())(node)
        for child in ast.iter_child_nodes(node):
            if not self.silent(node, child):
                yield from self.visit(child)

    def silent(self, node: ast.AST, child: ast.AST) -> bool:
        """Annotations, tuning (`RUNS: tl.constexpr = 4`), the axis of `tl.num_programs`, zeros for unused arguments,
        and how wide the compiler is told that it may load."""
        if isinstance(node, ast.AnnAssign):
            return child is node.annotation or isinstance(child, (ast.Constant, ast.IfExp))
        if not isinstance(node, ast.Call):
            return False
        name = self.text(node.func)
        if name in _HINTS and child is not node.args[0]:
            return True
        unused = isinstance(node.func, ast.Name) and isinstance(child, ast.Constant) and child.value == 0
        return isinstance(child, ast.Constant) and (unused or name == "tl.num_programs")

    # ---------------------------------------------------------------- places
    def text(self, node: ast.AST) -> str:
        return self.source[slice(*self.place.span(node))]

    def change(self, operator: str, node: ast.AST, new: str) -> Mutant:
        return self.replace(operator, *self.place.span(node), new)

    def replace(self, operator: str, start: int, end: int, new: str) -> Mutant:
        first = self.source.rfind("\n", 0, start) + 1
        line = self.source[first:].split("\n", 1)[0]
        column = start - first - (len(line) - len(line.lstrip()))
        context, old = line.split("  #")[0].strip(), self.source[start:end]
        name = f"{self.function.name}: {context} @{column}: {old} -> {new}"
        return Mutant(name, old, new, start=start, operator=operator, function=self.function.name)

    def exchanged(self, kind: str, left: ast.AST, operator: ast.AST, right: ast.AST, table: dict) -> Iterator[Mutant]:
        """The operator between two parts (which keep their brackets) replaced by another one."""
        old = _SYMBOLS.get(type(operator), "")
        if old in table:
            gap = self.place.span(left)[1]
            start = gap + self.source[gap : self.place.span(right)[0]].index(old)
            yield self.replace(kind, start, start + len(old), table[old])

    def swapped(self, one: ast.AST, other: ast.AST) -> Mutant:
        start, end = self.place.span(one)[0], self.place.span(other)[1]
        return self.replace("swap", start, end, f"{self.text(other)}, {self.text(one)}")

    # ---------------------------------------------------------------- rules, by type of node
    def _binop(self, node: ast.BinOp) -> Iterator[Mutant]:
        yield from self.exchanged("operator", node.left, node.op, node.right, _OPERATORS)
        if isinstance(node.op, ast.BitAnd):
            yield self.change("drop mask term", node, self.text(node.left))
            yield self.change("drop mask term", node, self.text(node.right))
        elif isinstance(node.op, (ast.Add, ast.Sub)):
            yield self.change("drop term", node, self.text(node.left))
        elif isinstance(node.op, (ast.Mult, ast.Div)):
            yield self.change("drop factor", node, self.text(node.left))

    def _compare(self, node: ast.Compare) -> Iterator[Mutant]:
        # Next to a constant the border itself is hit by no random number: turn the comparison round instead.
        right = node.comparators[0]
        table = _OPPOSITE if isinstance(right, ast.Constant) else _COMPARISONS
        yield from self.exchanged("comparison", node.left, node.ops[0], right, table)

    def _unaryop(self, node: ast.UnaryOp) -> Iterator[Mutant]:
        if isinstance(node.op, ast.USub):
            yield self.change("sign", node, self.text(node.operand))

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            yield self.change("constant", node, repr(node.value + 1))

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        name = self.text(node.func)
        short = name.rsplit(".", 1)[-1]
        if isinstance(node.func, ast.Attribute) and short in _FUNCTIONS:
            end = self.place.span(node.func)[1]
            yield self.replace("function", end - len(short), end, _FUNCTIONS[short])
        if name == "tl.where":
            yield self.swapped(node.args[1], node.args[2])
            yield self.change("drop condition", node, f"({self.text(node.args[1])})")
        if name == "tl.dot" and len(node.args) > 1:
            yield self.change("swap", node, f"tl.dot({self.text(node.args[1])}, {self.text(node.args[0])})")
        if isinstance(node.func, ast.Attribute) and short == "to" and len(node.args) == 1:
            # Offsets of too few bits show in tensors of 2³¹ elements only; tests/kernels/addresses.py looks at those.
            value = self.text(node.func.value)
            exact = value.startswith("tl.zeros") or value.endswith(".to(tl.float16)")
            if self.text(node.args[0]) == "tl.float32" and not exact:
                yield self.change("narrow cast", node.args[0], "tl.float16")
        if isinstance(node.func, ast.Name):
            yield from map(self.swapped, node.args, node.args[1:])
        if name in ("tl.load", "tl.store"):
            yield from self._memory(node)

    def _memory(self, node: ast.Call) -> Iterator[Mutant]:
        for keyword in node.keywords:
            if keyword.arg == "mask":
                yield self.change("drop mask", keyword.value, "None")
            elif keyword.arg == "other" and node.lineno <= self.last_reduction:
                yield self.change("drop other", keyword.value, "None")
                if self.text(keyword.value) != "0":  # an integer: there is no NaN to put in
                    yield self.change("other", keyword.value, 'float("nan")')
        for inner in ast.walk(node.args[0]):
            if isinstance(inner, ast.Name) and inner.id in self.pointers and len(self.pointers) > 1:
                yield self.change("pointer", inner, next(name for name in self.pointers if name != inner.id))

    def _augassign(self, node: ast.AugAssign) -> Iterator[Mutant]:
        target, value = self.text(node.target), self.text(node.value)
        if (old := _SYMBOLS.get(type(node.op), "")) in _OPERATORS:
            yield self.change("operator", node, f"{target} {_OPERATORS[old]}= {value}")
        yield self.change("forget", node, f"{target} = {value}")
        yield self.change("drop statement", node, "pass")


class _Fine(_Kernel):
    """Changes as small as rounding: a factor near 1 (one in the seventh digit, or the last bit), an exponent or a
    constant off by as much, no eps, n - 1 for n, a term of a sum left out, a mask one short."""

    def __init__(self, source: str, function: ast.FunctionDef):
        super().__init__(source, function)
        self.arguments = {argument.arg for argument in function.args.args}
        self.floats: set[str] = {name for name in self.arguments if "scale" in name or "eps" in name}
        self.own = self.arguments | {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stored(n)}
        made = [n for n in ast.walk(function) if isinstance(n, (ast.Assign, ast.AugAssign)) and n.value]
        for _ in range(4):  # what a name gets may be made of names that come later, in a loop
            for node in made:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
                self.floats |= names if self.floating(node.value) else set()

    def floating(self, node: ast.AST) -> bool:
        """Whether an expression is a number with a fraction, as far as its text says."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, float)
        if isinstance(node, ast.Name):
            return node.id in self.floats
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Subscript, ast.Tuple)):
            return isinstance(getattr(node, "op", None), ast.Div) or any(map(self.floating, ast.iter_child_nodes(node)))
        if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Attribute, ast.Name)):
            return False
        name = self.text(node.func).rsplit(".", 1)[-1]
        if name in ("to", "zeros", "full", "load"):
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg in ("dtype", "other"))]
            return any("float32" in self.text(each) or self.floating(each) for each in given)
        passes_on = name in _PASS_ON or isinstance(node.func, ast.Name)
        return name in _OF_FLOATS or (passes_on and any(map(self.floating, node.args)))

    def factors(self, node: ast.AST) -> Iterator[Mutant]:
        for operator, factor in (("factor", _DIGIT), ("last bit", _BIT)):
            yield self.change(operator, node, f"({self.text(node)}) * {factor}")

    # ---------------------------------------------------------------- rules, by type of node
    def _assign(self, node: ast.Assign | ast.AugAssign | ast.Return) -> Iterator[Mutant]:
        zeros = isinstance(node.value, ast.Call) and self.text(node.value.func) in ("tl.zeros", "tl.full")
        if node.value and self.floating(node.value) and not isinstance(node.value, (ast.Tuple, ast.Constant)) | zeros:
            yield from self.factors(node.value)

    _augassign = _return = _assign

    def _unaryop(self, node: ast.UnaryOp) -> Iterator[Mutant]:
        yield from ()

    def _binop(self, node: ast.BinOp) -> Iterator[Mutant]:
        if isinstance(node.op, ast.Add) and isinstance(node.right, ast.Name) and "eps" in node.right.id:
            yield self.change("no eps", node, self.text(node.left))
        if isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name) and not self.floating(node.right):
            yield self.change("n - 1", node.right, f"({node.right.id} - 1)")

    def _name(self, node: ast.Name) -> Iterator[Mutant]:
        """Constants of the module, and numbers that the kernel is given."""
        if node.id.isupper() and node.id not in self.own or node.id in self.arguments & self.floats:
            yield self.change("digit", node, f"({node.id} * {_DIGIT})")

    def _constant(self, node: ast.Constant) -> Iterator[Mutant]:
        if isinstance(node.value, float) and 0 < node.value < float("inf"):
            yield self.change("digit", node, repr(node.value * float(_DIGIT)))

    def _compare(self, node: ast.Compare) -> Iterator[Mutant]:
        if isinstance(node.ops[0], ast.Lt) and isinstance(right := node.comparators[0], ast.Name):
            yield self.change("one short", right, f"{right.id} - 1")

    def _call(self, node: ast.Call) -> Iterator[Mutant]:
        name = self.text(node.func)
        if name in ("tl.exp", "tl.exp2", "tl.log", "tl.log2"):
            yield self.change("exponent", node.args[0], f"({self.text(node.args[0])}) * {_BIT}")
        if name == "tl.sum" and self.floating(node.args[0]):
            terms = self.text(node.args[0])
            kept = f"tl.where(tl.arange(0, ({terms}).shape[-1]) != 3, {terms}, 0.0)"
            yield self.change("term left out", node.args[0], kept)
        if name == "tl.store" and self.floating(node.args[1]):
            yield from self.factors(node.args[1])


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)
