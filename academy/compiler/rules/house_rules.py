"""Rules for the kernel files of this project: what a lesson has, how long it is, what it may import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from academy.book import syntax
from academy.book.comments import comments
from academy.book.layout import KERNELS
from academy.compiler.rules.kernel_file import Found, KernelFile, calls, code_lines, keywords

#: Lines of code of the longest kernel, lines of code of the file, and all its lines with notes. `[[size]]` entries of
#: practice.toml give others.
LESSON_SIZE = (35, 200, 450)
FAST_SIZE = (60, 400, 600)
#: Names in the signature of a jitted function; in dense attention, which comes first in a reader's life, fewer.
MOST_NAMES = 20
MOST_NAMES_OF = {"attention/causal_attention.py": 14}
#: How a kernel's arguments end that are a tensor's address.
POINTERS = ("_ptr", "_tensor", "_desc")
#: Lines of code of the example run and the script's last lines together.
FRAME_LINES = 20
#: What tells the compiler or the cache more than the idea needs.
HINTS = {"cache_modifier", "eviction_policy", "maxnreg", "tl.max_contiguous", "tl.multiple_of", "tl.max_constancy"}
#: Groups that join kernels with models: they build on all others, and hold no lessons.
JOINING = ("integrations/", "capstone/")
_LATE = ("triton", "torch", KERNELS)


def academy_device_comes_first(file: KernelFile) -> Iterator[Found]:
    imports = [node for node in file.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [getattr(node, "module", None) or node.names[0].name for node in imports]
    late = [(node, name) for node, name in zip(imports, names) if name.split(".")[0] in _LATE]
    first = [
        node.lineno
        for node, name in zip(imports, names)
        if name in ("academy", "academy.runtime") and re.search(r"\b(device|checks)\b", ast.unparse(node))
    ]
    if late and not first:  # plain arithmetic doesn't need it
        yield Found(late[0][0].lineno, "academy.runtime.device is not imported")
    for node, name in late:
        if first and node.lineno < first[0]:
            yield Found(node.lineno, f"{name} is imported before academy.runtime.device")


def imports_point_one_way(file: KernelFile) -> Iterator[Found]:
    """A fast file builds on lessons and common, a lesson on common, common on nothing but itself; what joins kernels
    with models on all of them."""
    if file.name.startswith(JOINING):
        return
    for node in syntax.statements(file.tree):
        found = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in found:
            shared = name.startswith(f"{KERNELS}.common")
            below = file.name.startswith("fast/") and not name.startswith(f"{KERNELS}.fast")
            if name.startswith(KERNELS) and not shared and not below:
                yield Found(node.lineno, f"imports {name}", code=name)


def files_are_short(file: KernelFile) -> Iterator[Found]:
    """Signatures, comments, docstrings and blank lines are no code (`code_lines`)."""
    if file.name.startswith("integrations/"):
        return
    usual = FAST_SIZE if file.name.startswith("fast/") else LESSON_SIZE
    kernel_most, code_most, lines_most = file.size or usual
    code = code_lines(file.text)
    for function in file.jitted:
        length = sum(function.lineno <= line <= (function.end_lineno or 0) for line in code)
        if length > kernel_most:
            message = f"{function.name}: {length} lines of code, {kernel_most} at most"
            yield Found(function.lineno, message, function.name)
    if len(code) > code_most:
        yield Found(1, f"{len(code)} lines of code, {code_most} at most")
    if (lines := len(file.text.splitlines())) > lines_most:
        yield Found(1, f"{lines} lines, {lines_most} at most")


def signatures_can_be_read(file: KernelFile) -> Iterator[Found]:
    """A tuple is one name, so a tensor and its strides are one."""
    for function in file.jitted:
        count, most = len(function.args.args), MOST_NAMES_OF.get(file.name, MOST_NAMES)
        if count > most:
            message = f"{function.name} takes {count} arguments, {most} at most"
            yield Found(function.lineno, message, function.name)


def pointers_say_their_shape(file: KernelFile) -> Iterator[Found]:
    """In a comment on the line where they stand. What a helper points to, the kernel says that calls it."""
    commented = {comment.line for comment in comments(file.text) if not comment.for_tools}
    for function in file.kernels:
        for argument in function.args.args:
            if argument.arg.endswith(POINTERS) and argument.lineno not in commented:
                message = f"{function.name}: no comment says the shape of what {argument.arg} points to"
                yield Found(argument.lineno, message, function.name, argument.arg)


def lessons_have_no_hints(file: KernelFile) -> Iterator[Found]:
    """They belong into a fast file, where their gain is measured."""
    if file.name.startswith(("fast/", "common/")):
        return
    found = [node for node in syntax.walk(file.tree) if isinstance(node, ast.Call)]
    used = {(call.lineno, hint) for call in found for hint in HINTS & {ast.unparse(call.func), *keywords(call)}}
    for line, hint in sorted(used):
        yield Found(line, f"{hint} in a lesson", code=hint)


def public_functions_say_what_they_take(file: KernelFile) -> Iterator[Found]:
    """`Args: as ...` points at the function that describes them; a first line that is an expression is the result."""
    if file.name.startswith(("common/", *JOINING)):
        return
    if not file.public_functions:
        yield Found(1, "no public function with a docstring")
    for function in file.public_functions:
        text = ast.get_docstring(function) or ""
        parts = ["Args:", "Raises:"] + (["Returns:"] if "`" not in text.splitlines()[0] else [])
        missing = [f"no {part}" for part in parts if part not in text]
        if "Args: as `" not in text:
            names = [a.arg for a in function.args.args + function.args.kwonlyargs]
            missing += [f"{name} is not described" for name in names if not re.search(rf"\b{name}\b", text)]
        for what in missing:
            yield Found(function.lineno, f"{function.name}: {what}", function.name)


def the_frame_is_short(file: KernelFile) -> Iterator[Found]:
    """The example run and the script's last lines are no part of the lesson."""
    parts: list[ast.stmt] = [function for function in file.functions if function.name == "EXAMPLE"]
    parts += [n for n in file.tree.body if isinstance(n, ast.If) and "__name__" in ast.unparse(n.test)]
    spans = [range(part.lineno, (part.end_lineno or 0) + 1) for part in parts]
    length = sum(any(line in span for span in spans) for line in code_lines(file.text))
    if length > FRAME_LINES:
        message = f"example and script take {length} lines, {FRAME_LINES} at most"
        yield Found(parts[0].lineno, message)


def examples_draw_no_random_numbers(file: KernelFile) -> Iterator[Found]:
    """A recorded run has to be the same everywhere, in the browser too."""
    for function in file.functions:
        for call in [n for n in syntax.walk(function) if isinstance(n, ast.Call)] if function.name == "EXAMPLE" else []:
            if found := re.search(r"\b(rand\w*|normal_|uniform_)$", ast.unparse(call.func)):
                yield Found(call.lineno, f"EXAMPLE calls {found[1]}", function.name)


def has_the_parts_of_a_lesson(file: KernelFile) -> Iterator[Found]:
    """A fast file imports its lesson's reference and contract."""
    if file.name.startswith(("common/", *JOINING)):
        return
    names = {function.name for function in file.functions}
    names |= {a.name for n in file.tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    docstring = ast.get_docstring(file.tree) or ""
    costs = () if file.name.startswith("fast/") else ("What it costs", "Contract")
    wanted = {
        "EXAMPLE": "EXAMPLE" in names,
        "reference": any(name.endswith("_reference") for name in names),
        "contract": "contract" in names or "contract(" in file.text,  # a fast file may have it remembered
        "script.main": bool(calls(file.tree, "script.main")),
        **{part: part in docstring for part in costs},
    }
    for part, there in wanted.items():
        if not there:
            yield Found(1, f"the docstring lacks: {part}" if part in costs else f"no {part}", code=part)


RULES = (
    academy_device_comes_first,
    imports_point_one_way,
    files_are_short,
    signatures_can_be_read,
    pointers_say_their_shape,
    lessons_have_no_hints,
    public_functions_say_what_they_take,
    the_frame_is_short,
    examples_draw_no_random_numbers,
    has_the_parts_of_a_lesson,
)
