"""Fourteen ways to be wrong that any exercise with a kernel can meet, made from its own solution.

Nine are in the kernel: a list, a dictionary, `try`, recursion, loads without `other`, no masks, a tail that nobody
writes, a call of torch, and loads that are rounded. The others are around it: the result made on the host, its numbers
read by Python, the first result returned for ever, an argument that is written to, and a kernel that runs as a decoy.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from academy.book import exercise_files, syntax
from academy.book.exercise_files import Exercise


def function_of(exercise: Exercise) -> str:
    """The function that the check calls and that has to launch a kernel; "" if there is none."""
    for node in ast.walk(ast.parse(exercise.path.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "t.compare"
            and isinstance(node.args[1], ast.Constant)
        ):
            if not any(keyword.arg == "kernel" for keyword in node.keywords):
                return node.args[1].value
    return ""


_NOT_STORED = "what masked lanes load is masked off again when it is stored"
_NO_TENSOR = "no argument is a tensor"
_LESSONS = "the kernel is a lesson's"
_NO_LOAD = "nothing is loaded"
_WHOLE = "a row is as wide as its block: no lane is masked off"
_COPIED = "the TMA masks tails by itself"
#: Where a way isn't wrong, or there is nothing to change: (way, exercise) -> why. A test checks that it is so.
EXEMPT: dict[tuple[str, str], str] = {
    **{
        ("load without other", name): _NOT_STORED
        for name in """first_kernel/scale_and_add first_kernel/reverse first_kernel/dropped_tail first_kernel/add_three
        first_kernel/unwritten_output matmul/diagonal matmul/hard_swish matmul/safe_accumulate matmul/turn_tile
        own_operation/soft_sign own_operation/two_inputs own_operation/kept
        operations/zero_stride_upstream operations/overwritten_upstream operations/swiglu_bytes attention/grouped_heads
        gemlite/unpack gemlite/signed gemlite/group_of fast/persistent fast/words_once model/momentum_step
        model/decay_apart fp8/rounded_logarithm mx/two_of_a_byte distributed/sum_of_ranks recurrences/segmented
        recurrences/join_two operations/masked_by_product attention/one_key_for_all_heads
        recurrences/two_factors sampling/order_of_bits sampling/infinite_noise selection/sign_of_nan
        cache/step_outside recurrences/row_without_a_request model/which_alpha operations/second_round""".split()
    },
    **{
        ("load without other", name): _NO_LOAD
        for name in """first_kernel/unmasked_store rows/wrapped_offset matmul/last_group
        attention/bottom_right attention/tokens_and_heads""".split()
    },
    **{
        ("rounded loads", name): _NO_LOAD
        for name in """first_kernel/unmasked_store rows/wrapped_offset matmul/last_group matmul/gradients
        attention/bottom_right attention/tokens_and_heads""".split()
    },
    **{
        ("in-place input", name): _NO_TENSOR
        for name in """first_kernel/unmasked_store rows/wrapped_offset matmul/last_group
        attention/bottom_right attention/tokens_and_heads""".split()
    },
    **{
        (way, "matmul/gradients"): _LESSONS
        for way in (
            "list", "dict", "try", "recursion", "load without other", "no mask", "torch in the kernel",
            "unwritten tail",
        )
    },
    **{
        (way, exercise.name): _COPIED
        for exercise in exercise_files.every()
        if exercise.stage == "below" and "gl.load(" not in exercise.text and function_of(exercise)
        for way in ("load without other", "no mask", "unwritten tail", "rounded loads")
    },
    ("load without other", "recurrences/reads_the_future"): "the last token is the last of its half on every level",
    ("load without other", "moe/bias_in_the_weights"): "masked lanes become minus infinity afterwards",
    ("load without other", "moe/stable_rank"): "a masked slot is behind all others, and counts for none of them",
    ("load without other", "cache/padding_in_the_minimum"): "masked lanes become infinite before they are compared",
    ("load without other", "selection/heads_past_the_last"): "what is none is chosen away",
    ("load without other", "moe/clamped_gate"): "what a masked lane holds is not stored",
    ("load without other", "moe/full_experts"): "a masked slot is behind all others, and counts for none of them",
    ("rounded loads", "moe/full_experts"): "16 bits hold these small whole numbers exactly",
    ("rounded loads", "moe/stable_rank"): "16 bits hold these small whole numbers exactly",
    ("load without other", "recurrences/normalised"): _WHOLE,
    ("no mask", "recurrences/normalised"): _WHOLE,
    **{
        (way, f"mx/{name}"): _WHOLE
        for way in ("load without other", "no mask")
        for name in ("exponent_of_a_group", "which_neighbours")
    },
    **{
        ("rounded loads", f"mx/{name}"): "16 bits hold these small whole numbers exactly"
        for name in ("two_of_a_byte", "which_neighbours")
    },
    ("no mask", "rows/wrapped_offset"): "a program stores one number",
    ("no mask", "matmul/last_group"): "where every tile is visited once, no lane is masked off",
    ("made on the host", "operations/column_sums_of_squares"): "PyTorch may add up the partial sums, which are checked",
    ("decoy", "operations/column_sums_of_squares"): "PyTorch may add up the partial sums, which are checked",
}  # fmt: skip


class NotApplicable(Exception):
    """The way can't be made from this solution, with the reason."""


def exercises() -> list[Exercise]:
    """Those whose subject is a kernel: their check calls a function that has to launch one."""
    return [exercise for exercise in exercise_files.every() if function_of(exercise)]


# ---- in the kernel


def _first_line(line: str) -> Callable[[Exercise], str]:
    """A statement at the beginning of the first jitted function; `{name}` and `{arguments}` are its own."""

    def made(exercise: Exercise) -> str:
        jitted = syntax.jitted_functions(exercise.solution)
        if not jitted:
            raise NotApplicable("the kernel is a lesson's")
        lines = exercise.solution.split("\n")
        arguments = ", ".join(argument.arg for argument in jitted[0].args.args)
        new = line.format(name=jitted[0].name, arguments=arguments).split("\n")
        at = jitted[0].body[0].lineno - 1
        return "\n".join([*lines[:at], *(f"    {each}" for each in new), *lines[at:]])

    return made


def _calls(text: str, change: Callable[[ast.Call, str], bool]) -> str:
    """The text with changed calls of `tl.…` (`change` gets the name, and says whether it has changed anything)."""
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [(node, ast.unparse(node.func)) for node in calls]
    if not any([change(node, name.removeprefix("tl.")) for node, name in names if name.startswith("tl.")]):
        raise NotApplicable("the kernel has nothing of the kind")
    return ast.unparse(tree) + "\n"


def _without(keyword: str, *functions: str) -> Callable[[Exercise], str]:
    def change(node: ast.Call, name: str) -> bool:
        before = len(node.keywords)
        if name in functions and any(each.arg == "mask" for each in node.keywords):
            node.keywords = [each for each in node.keywords if each.arg not in (keyword, "other")]
        return len(node.keywords) < before

    return lambda exercise: _calls(exercise.solution, change)


def _unwritten_tail(exercise: Exercise) -> str:
    """The last program stores nothing."""

    def change(node: ast.Call, name: str) -> bool:
        if not name.startswith(("store", "atomic")):
            return False
        rest = ast.parse("tl.program_id(0) < tl.num_programs(0) - 1", mode="eval").body
        mask = next((each for each in node.keywords if each.arg == "mask"), None)
        if mask is None:
            node.keywords.append(ast.keyword("mask", rest))
        else:
            mask.value = ast.BinOp(mask.value, ast.BitAnd(), rest)
        return True

    return _calls(exercise.solution, change)


def _rounded_loads(exercise: Exercise) -> str:
    """Every load keeps eight of a float32's 24 bits."""
    tree = ast.parse(exercise.solution)

    class Rounded(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if ast.unparse(node.func) != "tl.load":
                return node
            return ast.parse(f"{ast.unparse(node)}.to(tl.bfloat16).to(tl.float32)", mode="eval").body

    changed = ast.unparse(Rounded().visit(tree)) + "\n"
    if "bfloat16" not in changed or changed == ast.unparse(ast.parse(exercise.solution)) + "\n":
        raise NotApplicable("nothing is loaded")
    return changed


#: Way -> what becomes of the numbers `x` that are loaded, or stored: wrong for one class of values alone.
_LOADED = {
    "no sign": "tl.abs(x)",
    "hides NaN": "tl.where(x == x, x, 0.0)",
    "large numbers cut": "tl.where(x > 5000.0, 5000.0, x)",
    "far below zero cut": "tl.where(x < -5000.0, -5000.0, x)",
    "tiny numbers are zero": "tl.where(tl.abs(x) < 1e-20, 0.0, x)",
    "zero is a small number": "tl.where(x == 0.0, 1e-3, x)",
}
_STORED = {
    "stores no NaN": "tl.where(x == x, x, 0.0)",
    "stores nothing below zero": "tl.where(x < 0.0, 0.0, x)",
    "stores no large numbers": "tl.where(tl.abs(x) > 5000.0, 5000.0, x)",
}


def _changed(function: str, argument: int | None, expression: str) -> Callable[[Exercise], str]:
    """Each call of `function` gives other floating-point numbers, or gets them as this argument."""

    class Changed(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if ast.unparse(node.func) == function:
                if argument is None:
                    return ast.Call(ast.Name("changed"), [node], [])
                node.args[argument] = ast.Call(ast.Name("changed"), [node.args[argument]], [])
            return node

    def made(exercise: Exercise) -> str:
        text = ast.unparse(Changed().visit(ast.parse(exercise.solution)))
        if "changed(" not in text:
            raise NotApplicable("the kernel has nothing of the kind")
        first, _, rest = text.partition("@triton.jit")
        y = f"    y = x\n    if x.dtype.is_floating():\n        y = {expression}\n    return y\n\n\n"
        return f"{first}@triton.jit\ndef changed(x):\n{y}@triton.jit{rest}\n"

    return made


# ---- around it


def _around(body: str, setup: str = "") -> Callable[[Exercise], str]:
    """The function in another one of its name, with `solved` for the solution."""

    def made(exercise: Exercise) -> str:
        name = function_of(exercise)
        inside = "\n".join(f"    {line}" for line in body.split("\n"))
        return f"{exercise.solution}\n\nsolved = {name}\n{setup}\n\n\ndef {name}(*arguments):\n{inside}\n"

    return made


_EACH = "out = solved(*arguments)\nreturn tuple(map(made, out)) if isinstance(out, tuple) else made(out)"

#: Way -> how it is made, and what the reader must be told.
WAYS: dict[str, tuple[Callable[[Exercise], str], str]] = {
    "list": (_first_line("kept = []\nkept.append(1)"), "lists can't change"),
    "dict": (_first_line('kept = {{"a": 1}}'), "a kernel has no dictionaries"),
    "try": (_first_line("try:\n    pass\nexcept ValueError:\n    pass"), "a kernel has no try"),
    "recursion": (_first_line("{name}({arguments})"), "a kernel can't call itself without end"),
    "load without other": (_without("other", "load"), "A lane that is masked off holds anything"),
    "no mask": (_without("mask", "load", "store", "atomic_add"), "outside a tensor"),
    "torch in the kernel": (_first_line("torch.add(1, 2)"), "torch.add works on the host only"),
    "made on the host": (
        _around(_EACH, "made = lambda out: torch.stack(list(out.flatten())).view(out.shape)"),
        "PyTorch computes the result",
    ),
    "read by Python": (_around(_EACH, "made = lambda out: (out.tolist(), out)[1]"), "Python takes numbers out"),
    "hard-coded": (
        _around("out = solved(*arguments)\nfirst.append(out)\nreturn first[0]", "first = []"),
        "should",
    ),
    "unwritten tail": (_unwritten_tail, ""),
    "rounded loads": (_rounded_loads, ""),
    "in-place input": (
        _around(
            "out = solved(*arguments)\n"
            "for value in arguments:\n    if isinstance(value, torch.Tensor):\n        value += 1\nreturn out"
        ),
        "changes its argument 1",
    ),
    "decoy": (_around(_EACH, "made = lambda out: out + torch.zeros_like(out)"), "PyTorch computes the result"),
}

#: Ways that are wrong for one class of values alone, and exercises in which every class shows.
OF_A_CLASS = {way: _changed("tl.load", None, expression) for way, expression in _LOADED.items()}
OF_A_CLASS |= {way: _changed("tl.store", 1, expression) for way, expression in _STORED.items()}
ASKED = """first_kernel/scale_and_add first_kernel/reverse first_kernel/dropped_tail first_kernel/add_three
    first_kernel/unwritten_output rows/nan_minus_infinity rows/half_accumulator own_operation/soft_sign
    own_operation/two_inputs own_operation/kept own_operation/log_softmax matmul/ignored_strides matmul/diagonal
    matmul/turn_tile matmul/k_loop matmul/moving_pointers matmul/k_mask matmul/add_into
    operations/zero_stride_upstream operations/overwritten_upstream operations/rmsnorm_offset
    operations/swiglu_bytes attention/grouped_heads attention/stale_tail recurrences/total_minus_prefix
    recurrences/segmented recurrences/exclusive recurrences/join_two recurrences/gates_one_later
    recurrences/look_back recurrences/state_instead_of_keys recurrences/normalised gemlite/group_of
    fp8/scale_of_a_step moe/past_the_last_row moe/clamped_gate fast/persistent fast/add_norm
    model/momentum_step distributed/label_here""".split()
