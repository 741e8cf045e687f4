"""Rules for any Triton kernel. Each finds what breaks it in a file; its name is the rule's, with underscores."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from academy.book import syntax
from academy.compiler.rules.kernel_file import Found, KernelFile, assignments, calls, keywords, names_in


def masked_loads_have_other(file: KernelFile) -> Iterator[Found]:
    for function in file.jitted:
        for load in calls(function, "tl.load"):
            if "mask" in keywords(load) and "other" not in keywords(load):
                message = "a load with a mask but without other=: what its masked lanes hold is undefined"
                yield Found(load.lineno, message, function.name, ast.unparse(load.args[0]))


def stores_are_masked_or_whole(file: KernelFile) -> Iterator[Found]:
    """A store without a mask writes one number: its pointer has no block in it."""
    makers = ["tl.arange", *(f"{function.name}(" for function in file.jitted if calls(function, "tl.arange"))]
    for function in file.kernels:
        blocks = {name for name, value in assignments(function) if any(maker in value for maker in makers)}
        for store in calls(function, "tl.store"):
            if "mask" not in keywords(store) and len(store.args) < 3 and names_in(store.args[0]) & blocks:
                message = "a store of a block without a mask: the last block reaches past the end"
                yield Found(store.lineno, message, function.name, ast.unparse(store.args[0]))


def row_offsets_are_int64(file: KernelFile) -> Iterator[Found]:
    """A kernel that multiplies by a stride works with int64 somewhere on the way, or a helper does."""
    wide = [function.name for function in file.jitted if "int64" in ast.unparse(function)]
    for kernel in file.kernels:
        products = [n for n in syntax.walk(kernel) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
        sides = [side for product in products for side in (product.left, product.right)]
        strided = any(isinstance(side, ast.Name) and side.id.startswith("stride") for side in sides)
        if strided and "int64" not in ast.unparse(kernel) and not calls(kernel, *wide):
            message = f"{kernel.name} multiplies by a stride in 32 bits: write tl.program_id(0).to(tl.int64)"
            yield Found(kernel.lineno, message, kernel.name)


def no_and_or_not_on_blocks(file: KernelFile) -> Iterator[Found]:
    """`and`, `or` and `not` are for what is known while compiling: constexprs, dtypes, shapes, `is None`."""
    for function in file.jitted:
        known = {a.arg for a in function.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}
        for node in syntax.walk(function):
            operands: list[ast.expr] = node.values if isinstance(node, ast.BoolOp) else []
            operands = [node.operand] if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else operands
            for operand in operands:
                if not _known_while_compiling(operand, known):
                    message = f"`{ast.unparse(operand)}` may be a block: write &, | or ~ for and, or, not"
                    yield Found(operand.lineno, message, function.name, ast.unparse(operand))


def _known_while_compiling(node: ast.expr, known: set[str]) -> bool:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        return True
    if "dtype" in ast.unparse(node):
        return True
    without_shapes = ast.parse(re.sub(r"\b\w+\.shape\b", "tl", ast.unparse(node)), mode="eval").body
    return all(name in known or name.isupper() or name == "tl" for name in names_in(without_shapes))


def no_python_max_on_blocks(file: KernelFile) -> Iterator[Found]:
    for function in file.jitted:
        for call in calls(function, "max", "min", "sum"):
            message = f"{ast.unparse(call)}: write tl.maximum, tl.minimum or tl.sum"
            yield Found(call.lineno, message, function.name, ast.unparse(call))


def accumulators_are_float32(file: KernelFile) -> Iterator[Found]:
    """`tl.zeros` and `tl.full` in a kernel are sums or maxima: float32, or integers."""
    for function in file.jitted:
        for call in calls(function, "tl.zeros", "tl.full"):
            if any(word in ast.unparse(call) for word in ("float16", "bfloat16", "element_ty")):
                message = f"{ast.unparse(call)}: a sum of 16-bit floats stops growing; accumulate in tl.float32"
                yield Found(call.lineno, message, function.name, ast.unparse(call))


def dots_say_their_precision(file: KernelFile) -> Iterator[Found]:
    for function in file.jitted:
        for call in calls(function, "tl.dot"):
            if "input_precision" not in keywords(call):
                message = f"{ast.unparse(call)}: without input_precision= float32 operands are rounded to tf32"
                yield Found(call.lineno, message, function.name, ast.unparse(call))


def backwards_are_once_differentiable(file: KernelFile) -> Iterator[Found]:
    """Of runtime.autograd: PyTorch's own lets a gradient penalty through where the upstream gradient is a constant."""
    for method in syntax.unguarded_backwards(file.text):
        message = (
            "decorate it with once_differentiable from academy.runtime.autograd: second derivatives would be silently "
            "wrong"
        )
        yield Found(method.lineno, f"backward of a Function: {message}", method.name)


def launchers_do_not_write_to_arguments(file: KernelFile) -> Iterator[Found]:
    """No in-place method and no item assignment on a parameter; names that end in an underscore may."""
    for function in file.launchers:
        parameters = {a.arg for a in function.args.args} - {name for name, _ in assignments(function)}
        for node in syntax.walk(function):
            target: ast.AST | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if re.search(r"[a-z]_$", node.func.attr) and node.func.attr != "requires_grad_":
                    target = node.func.value
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                target = node.value
            if isinstance(target, ast.Name) and target.id in parameters:
                yield Found(
                    target.lineno, f"{function.name} writes to its argument {target.id}", function.name, target.id
                )


RULES = (
    masked_loads_have_other,
    stores_are_masked_or_whole,
    row_offsets_are_int64,
    no_and_or_not_on_blocks,
    no_python_max_on_blocks,
    accumulators_are_float32,
    dots_say_their_precision,
    backwards_are_once_differentiable,
    launchers_do_not_write_to_arguments,
)
