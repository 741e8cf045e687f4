"""The check-list of the guide "Best practice", held against every kernel file by reading its syntax tree."""

import ast
import re
import tokenize
from functools import cache

import pytest

from academy.book import syntax
from tests.kernels.harness import ROOT

FILES = sorted(p for p in (ROOT / "annotated_examples").glob("*/*.py") if p.name != "__init__.py")
GUIDE = ROOT / "docs" / "guides" / "best-practice.md"
#: Lines of code of the longest kernel, lines of code of the file, and all its lines with notes.
LESSON_SIZES = (35, 200, 450)
FAST_SIZES = (60, 400, 2000)
#: A first kernel is shorter; in these the modes, or the whole of attention, are the subject.
OTHER_SIZES = {
    "tutorials/vector_add.py": (35, 100, 450),
    "gemlite/gemm.py": (60, 300, 450),
    "attention/flash_attention.py": (60, 300, 450),
}
#: Lines of code of the example run, the script's last lines and the path set-up together.
FRAME_LINES = 25
#: These get 16-bit operands only, for which there is no precision to choose: their launchers see to it.
SIXTEEN_BITS = {
    "matmul_descriptor_kernel",
    "matmul_interleaved_kernel",
    "add_block",
    "gemm_planes_kernel",
    "gemm_descriptor_kernel",
    "gemm_plane_order_kernel",
    "sums_of_columns",
    "add_group",
}
#: Addresses of stores that need no mask: in memory that the launcher allocates padded to whole blocks; in a chunk that
#: lies inside the row.
WHOLE = {
    "plane_order_kernel": {"a_sums_ptr + block * stride_sums + offs_m"},
    "softmax_forward_chunked_kernel": {"y_ptr + start + offs_n"},
    "softmax_backward_chunked_kernel": {"dx_ptr + start + offs_n", "dx_ptr + offs_n"},
}
#: What tells the compiler or the cache more than the idea needs, and the lessons in which it stands all the same: the
#: modes and hints of gemm are its subject; in dropout the words of a thread and its elements have to meet.
HINTS = {"cache_modifier", "eviction_policy", "maxnreg", "tl.max_contiguous", "tl.multiple_of", "tl.max_constancy"}
WITH_HINTS = {
    "gemlite/gemm.py": {"eviction_policy", "tl.max_contiguous", "tl.multiple_of"},
    "classics/dropout.py": {"tl.max_contiguous"},
}
#: Half of another file, in which the public functions stand.
HALVES = {"fast/flash_attention_backward.py"}
#: The lesson is the next step from the other one, or the other half of its file.
BORROWERS = {
    "gemlite/gemm_splitK.py": "annotated_examples.gemlite.gemm",
    "fast/linear_cross_entropy.py": "annotated_examples.fast.cross_entropy",
    "fast/flash_attention.py": "annotated_examples.fast.flash_attention_backward",
}


class File:
    """A kernel file as a syntax tree, and the parts that the checks ask for. name: `classics/layernorm.py`."""

    def __init__(self, text, name="classics/a.py"):
        self.text, self.name = text, name
        self.tree = ast.parse(text)
        self.is_fast, self.is_common = name.startswith("fast/"), name.startswith("common/")
        self.functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        self.jitted = [f for f in self.functions if syntax.is_jitted(f)]
        self.kernels = [f for f in self.jitted if f.name.endswith("_kernel")]

    def launchers(self):
        ends = re.compile(r"_(forward|backward)$")
        return [f for f in self.functions if f not in self.jitted and ends.search(f.name)]

    def public_functions(self):
        """What a reader imports: module-level functions with a docstring, other than launchers and helpers."""
        described = [f for f in self.functions if "Args:" in (ast.get_docstring(f) or "")]
        return [f for f in described if f not in self.launchers()]


def calls(tree, name):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


def keywords(call):
    return {k.arg for k in call.keywords}


# The checks. Each returns the places that break the rule, as sentences.


def academy_device_comes_first(file):
    imports = [n for n in file.tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [getattr(n, "module", None) or n.names[0].name for n in imports]
    mine = [
        i for i, n in enumerate(imports) if names[i] == "academy" and re.search(r"\b(device|checks)\b", ast.unparse(n))
    ]
    if not mine:
        needs = any(name.split(".")[0] in ("triton", "torch", "annotated_examples") for name in names)
        return ["academy.device is not imported"] if needs else []  # plain arithmetic doesn't
    first = mine[0]
    early = [name for name in names[:first] if name.split(".")[0] in ("triton", "torch", "annotated_examples")]
    return [f"{name} is imported before academy.device" for name in early]


def imports_point_one_way(file):
    """A fast file builds on lessons and common, a lesson on common, common on nothing but itself; what joins kernels
    with models (integrations, capstone) on all of them."""
    if file.name.startswith(("integrations/", "capstone/")):
        return []
    found = [n.module or "" for n in ast.walk(file.tree) if isinstance(n, ast.ImportFrom)]
    found += [a.name for n in ast.walk(file.tree) if isinstance(n, ast.Import) for a in n.names]
    kernels = [name for name in found if name.startswith("annotated_examples")]
    allowed = ("annotated_examples.common", BORROWERS.get(file.name, "annotated_examples.common"))
    return [
        f"imports {name}"
        for name in kernels
        if not name.startswith(allowed) and not (file.is_fast and not name.startswith("annotated_examples.fast"))
    ]


def masked_loads_have_other(file):
    return [
        f"line {load.lineno}: a load with a mask but without other="
        for function in file.jitted
        for load in calls(function, "tl.load")
        if "mask" in keywords(load) and "other" not in keywords(load)
    ]


def stores_are_masked_or_whole(file):
    """A store without a mask writes one number: its pointer has no block in it."""
    found = []
    for function in file.kernels:
        makers = ["tl.arange", *(f"{f.name}(" for f in file.jitted if calls(f, "tl.arange"))]
        blocks = {name for name, value in assignments(function) if any(maker in value for maker in makers)}
        for store in calls(function, "tl.store"):
            names = {n.id for n in ast.walk(store.args[0]) if isinstance(n, ast.Name)}
            whole = ast.unparse(store.args[0]) in WHOLE.get(function.name, ())
            if "mask" not in keywords(store) and len(store.args) < 3 and names & blocks and not whole:
                found.append(f"line {store.lineno}: a store of a block without a mask")
    return found


def assignments(function):
    """(name, source of the value) of each assignment in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        yield name.id, ast.unparse(node.value)


def row_offsets_are_int64(file):
    """A kernel that multiplies by a row stride or a width works with int64 somewhere on the way.

    Names in capitals are constexpr; a helper may do it (`helpers`), and a tensor descriptor does it in hardware.
    """
    wide = {f.name for f in file.jitted if "int64" in ast.unparse(f)}
    found = []
    for kernel in file.kernels:
        text = ast.unparse(kernel)
        strided = any(
            isinstance(n, ast.BinOp)
            and isinstance(n.op, ast.Mult)
            and any(isinstance(side, ast.Name) and side.id.startswith("stride") for side in (n.left, n.right))
            for n in ast.walk(kernel)
        )
        if strided and "int64" not in text and not any(f"{name}(" in text for name in wide):
            found.append(f"{kernel.name}: offsets times a stride, all in 32 bits")
    return found


def no_and_or_not_on_blocks(file):
    """`and`, `or` and `not` are for what is known while compiling: constexprs, dtypes, `is None`."""
    found = []
    for function in file.jitted:
        known = {a.arg for a in function.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}
        for node in ast.walk(function):
            if isinstance(node, ast.BoolOp):
                operands = node.values
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                operands = [node.operand]
            else:
                continue
            found += [
                f"line {node.lineno}: `{ast.unparse(operand)}` may be a block"
                for operand in operands
                if not known_while_compiling(operand, known)
            ]
    return found


def known_while_compiling(node, known):
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
        return True
    if "dtype" in ast.unparse(node):
        return True
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return all(name in known or name.isupper() or name == "tl" for name in names)


def no_python_max_on_blocks(file):
    return [
        f"line {call.lineno}: {ast.unparse(call)}: write tl.maximum or tl.minimum"
        for function in file.jitted
        for name in ("max", "min", "sum")
        for call in calls(function, name)
    ]


def accumulators_are_float32(file):
    """`tl.zeros` and `tl.full` in a kernel are sums or maxima: float32, or integers."""
    narrow = ("float16", "bfloat16", "element_ty")
    return [
        f"line {call.lineno}: {ast.unparse(call)}"
        for function in file.jitted
        for name in ("tl.zeros", "tl.full")
        for call in calls(function, name)
        if any(word in ast.unparse(call) for word in narrow)
    ]


def dots_say_their_precision(file):
    return [
        f"line {call.lineno}: {ast.unparse(call)}"
        for function in file.jitted
        if function.name not in SIXTEEN_BITS
        for call in calls(function, "tl.dot")
        if "input_precision" not in keywords(call)
    ]


@cache
def code_lines(text: str) -> frozenset[int]:
    """Numbers of the lines that count where the size of a file or of a function is limited.

    Signatures with their decorators, docstrings, comments and blank lines don't count.
    """
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {n for t in syntax.tokens(text) if t.type not in layout for n in range(t.start[0], t.end[0] + 1)}
    for node in syntax.statements(syntax.tree(text)):
        if isinstance(node, syntax.DEFINITION):
            lines -= set(range(syntax.first_line(node), max(node.body[0].lineno, syntax.first_line(node) + 1)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, syntax.last_line(node) + 1))
    return frozenset(lines)


def files_are_short(file):
    """Signatures, comments, docstrings and blank lines are no code (`code_lines`)."""
    kernel_most, code_most, lines_most = OTHER_SIZES.get(file.name, FAST_SIZES if file.is_fast else LESSON_SIZES)
    code = code_lines(file.text)
    found = [
        f"{f.name}: {length} lines of code, {kernel_most} at most"
        for f in file.jitted
        if (length := len([n for n in code if f.lineno <= n <= f.end_lineno])) > kernel_most
    ]
    if len(code) > code_most:
        found.append(f"{len(code)} lines of code, {code_most} at most")
    if (lines := len(file.text.splitlines())) > lines_most:
        found.append(f"{lines} lines, {lines_most} at most")
    return found


def lessons_have_no_hints(file):
    """They belong into a fast file, where their gain is measured, but for `WITH_HINTS`."""
    if file.is_fast or file.is_common:
        return []
    found = [n for n in ast.walk(file.tree) if isinstance(n, ast.Call)]
    used = {(hint, call.lineno) for call in found for hint in {ast.unparse(call.func), *keywords(call)} & HINTS}
    return [f"line {line}: {hint}" for hint, line in sorted(used) if hint not in WITH_HINTS.get(file.name, ())]


def the_frame_is_short(file):
    """The example run, the script's last lines and the path set-up are no part of the lesson."""
    code = code_lines(file.text)
    parts = [f for f in file.functions if f.name == "EXAMPLE"]
    parts += [n for n in file.tree.body if isinstance(n, ast.If) and "__name__" in ast.unparse(n.test)]
    length = len([n for n in code if any(part.lineno <= n <= part.end_lineno for part in parts)])
    return (
        [f"example, script and path set-up take {length} lines, {FRAME_LINES} at most"] if length > FRAME_LINES else []
    )


def examples_draw_no_random_numbers(file):
    """A recorded run has to be the same everywhere, in the browser too."""
    found = []
    for function in file.functions:
        if function.name == "EXAMPLE":
            found += re.findall(r"rand\w*|normal_|uniform_", ast.unparse(function))
    return [f"EXAMPLE calls {name}" for name in found]


def backwards_are_once_differentiable(file):
    """academy.autograd's: PyTorch's own lets a gradient penalty through where the upstream gradient is a constant."""
    return [f"line {f.lineno}: backward is not once_differentiable" for f in syntax.unguarded_backwards(file.text)]


def launchers_do_not_write_to_arguments(file):
    """No in-place method and no item assignment on a parameter; names that end in an underscore may."""
    found = []
    for function in file.launchers():
        parameters = {a.arg for a in function.args.args}
        rebound = {name for name, _ in assignments(function)}
        for node in ast.walk(function):
            target = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if re.search(r"[a-z]_$", node.func.attr) and node.func.attr != "requires_grad_":
                    target = node.func.value
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                target = node.value
            if isinstance(target, ast.Name) and target.id in parameters - rebound:
                found.append(f"line {node.lineno}: {function.name} writes to {target.id}")
    return found


def public_functions_say_what_they_take(file):
    """`Args: as ...` points at the function that describes them; a first line that is an expression is the result."""
    found = []
    for function in file.public_functions():
        text = ast.get_docstring(function)
        parts = ["Args:", "Raises:"] + (["Returns:"] if "`" not in text.splitlines()[0] else [])
        found += [f"{function.name}: no {part}" for part in parts if part not in text]
        if "Args: as `" not in text:
            names = [a.arg for a in function.args.args + function.args.kwonlyargs]
            missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
            found += [f"{function.name}: {name} is not described" for name in missing]
    return found if file.public_functions() else ["no public function with a docstring"]


def has_the_parts_of_a_lesson(file):
    """A fast file imports its lesson's reference and contract."""
    names = {f.name for f in file.functions}
    names |= {a.name for n in file.tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    found = [] if "EXAMPLE" in names else ["no EXAMPLE"]
    found += [] if any(name.endswith("_reference") for name in names) else ["no reference"]
    found += [] if "contract(" in file.text else ["no contract"]
    if "script.main(" not in file.text:
        found.append("no script.main")
    docstring = ast.get_docstring(file.tree) or ""
    wanted = () if file.is_fast else ("What it costs", "Contract")
    return found + [f"the docstring lacks: {part}" for part in wanted if part not in docstring]


CHECKS = [
    academy_device_comes_first,
    imports_point_one_way,
    masked_loads_have_other,
    stores_are_masked_or_whole,
    row_offsets_are_int64,
    no_and_or_not_on_blocks,
    no_python_max_on_blocks,
    accumulators_are_float32,
    dots_say_their_precision,
    files_are_short,
    lessons_have_no_hints,
    backwards_are_once_differentiable,
    launchers_do_not_write_to_arguments,
    public_functions_say_what_they_take,
    the_frame_is_short,
    examples_draw_no_random_numbers,
    has_the_parts_of_a_lesson,
]


def name_of(value):
    return value.__name__ if callable(value) else f"{value.parent.name}/{value.name}"


def applies(check, path):
    """Files of common/ are pieces, without public functions; integrations/ and capstone/ hold no lessons."""
    if path.parent.name == "integrations" and check is files_are_short:
        return False
    if name_of(path) in HALVES and check is public_functions_say_what_they_take:
        return False
    return path.parent.name not in ("common", "integrations", "capstone") or check not in (
        public_functions_say_what_they_take,
        has_the_parts_of_a_lesson,
    )


@pytest.mark.parametrize(
    ("check", "path"), [(c, p) for c in CHECKS for p in FILES if applies(c, p)], ids=lambda value: name_of(value)
)
def test_kernel_files(check, path):
    name = name_of(path)
    problems = check(File(path.read_text("utf-8"), name))
    assert not problems, f"{name}: " + "; ".join(problems)


# A test must be able to fail: each check finds the fault that it is about, and says nothing of the mended file.

FAULTS = {
    academy_device_comes_first: (
        "import triton\nfrom academy import device",
        "from academy import device\nimport triton",
    ),
    imports_point_one_way: (
        "from annotated_examples.fast.matmul import matmul",
        "from annotated_examples.common.rows import as_rows",
    ),
    masked_loads_have_other: (
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m)",
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0)",
    ),
    stores_are_masked_or_whole: (
        "@triton.jit\ndef a_kernel(p, x):\n    o = tl.arange(0, 4)\n    tl.store(p + o, x)",
        "@triton.jit\ndef a_kernel(p, x):\n    o = tl.arange(0, 4)\n    tl.store(p + o, x, mask=o < 3)",
    ),
    row_offsets_are_int64: (
        "@triton.jit\ndef a_kernel(p, stride_m):\n    row = tl.program_id(0)\n    p += row * stride_m",
        "@triton.jit\ndef a_kernel(p, stride_m):\n    row = tl.program_id(0).to(tl.int64)\n    p += row * stride_m",
    ),
    no_and_or_not_on_blocks: (
        "@triton.jit\ndef f(a, b):\n    m = a and not b",
        "@triton.jit\ndef f(a, b, C: tl.constexpr):\n    m = a & ~b\n    if C and a is not None:\n        m = a",
    ),
    no_python_max_on_blocks: (
        "@triton.jit\ndef f(a):\n    m = max(a, 0)",
        "@triton.jit\ndef f(a):\n    m = tl.maximum(a, 0)",
    ),
    accumulators_are_float32: (
        "@triton.jit\ndef f():\n    acc = tl.zeros((4,), tl.float16)",
        "@triton.jit\ndef f():\n    acc = tl.zeros((4,), tl.float32)",
    ),
    dots_say_their_precision: (
        "@triton.jit\ndef f(a, b):\n    c = tl.dot(a, b)",
        "@triton.jit\ndef f(a, b):\n    c = tl.dot(a, b, input_precision='ieee')",
    ),
    files_are_short: (
        "@triton.jit\ndef f(a):\n" + "    a += 1\n" * (LESSON_SIZES[0] + 1),
        "@triton.jit\ndef f(a):\n" + "    a += 1\n    # why\n" * LESSON_SIZES[0],
    ),
    lessons_have_no_hints: (
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0, eviction_policy='evict_first')",
        "@triton.jit\ndef f(p, m):\n    x = tl.load(p, mask=m, other=0.0)",
    ),
    the_frame_is_short: (
        "def EXAMPLE():\n" + "    f()\n" * (FRAME_LINES + 1),
        "def EXAMPLE():\n" + "    f()\n    # why\n" * (FRAME_LINES - 2) + "if __name__ == '__main__':\n    f()\n",
    ),
    examples_draw_no_random_numbers: ("def EXAMPLE():\n    torch.randn(3)", "def EXAMPLE():\n    torch.arange(3)"),
    backwards_are_once_differentiable: (
        "class F(Function):\n    @once_differentiable\n    def backward(ctx, dy): pass",
        "class F(Function):\n    @autograd.once_differentiable\n    def backward(ctx, dy): pass",
    ),
    launchers_do_not_write_to_arguments: (
        "def f_forward(x):\n    x.mul_(2)",
        "def f_forward(x):\n    x = x.clone()\n    x.mul_(2)",
    ),
    public_functions_say_what_they_take: (
        'def f(x, y):\n    """`x`.\n\n    Args:\n        x: one.\n\n    Raises:\n        TypeError: no."""',
        'def f(x):\n    """`x`.\n\n    Args:\n        x: one.\n\n    Raises:\n        TypeError: no."""',
    ),
    has_the_parts_of_a_lesson: (
        "def f(): pass",
        '"""What it costs. Contract."""\nscript.main(x)\n'
        + "".join(f"def {name}(): pass\n" for name in ("EXAMPLE", "x_contract", "x_reference")),
    ),
}


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_each_check_finds_its_fault(check):
    broken, mended = FAULTS[check]
    assert check(File(broken))
    assert not check(File(mended))


def test_the_guide_names_every_check():
    rows = re.findall(r"^\|[^|]+\|([^|]+)\|[^|]+\|$", GUIDE.read_text("utf-8"), re.M)
    named = [cell.strip() for cell in rows if cell.strip() not in ("test", "---")]
    assert named == [check.__name__.replace("_", " ") for check in CHECKS]
