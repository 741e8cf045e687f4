"""The checker and the format: cutting the starter, naming what is wrong, and its line."""

import fnmatch
import re
import sys
import textwrap

import pytest
import torch

from academy.runtime import device
from academy import compiler
from academy.book import exercise_files
from academy.exercises import marking, without_rounding
from academy.exercises.answer import Answer
from academy.exercises.questions import Failed, Questions

HEAD = "from academy.runtime import device\n\nimport torch\nimport triton\nimport triton.language as tl\n\n\n"


def write(folder, text):
    path = folder / "stage" / "name.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


EXERCISE = '''
    """# Title

    A question.
    """

    # %% solution
    def f(x):
        # <<<
        y = x + 1
        return y
        # ===
        # y = x
        # return y
        # >>>


    def g():
        # <<<
        return 2
        # >>>


    # %% checks
    PAGE = "learn/first_kernel.py"
    KIND = "fill in"
    HINTS = ("a", "b")
    WHY = "Because."
    WRONG = (("must say", "x + 1", "x + 2"),)
    RIGHT = (("return 2",),)
'''


def test_the_starter_is_cut_from_the_solution(tmp_path):
    exercise = exercise_files.read(write(tmp_path, EXERCISE))
    assert (exercise.name, exercise.title, exercise.question) == ("stage/name", "Title", "A question.")
    assert exercise.solution == "def f(x):\n    y = x + 1\n    return y\n\n\ndef g():\n    return 2\n"
    assert exercise.starter == f"def f(x):\n    y = x\n    return y\n\n\ndef g():\n    {exercise_files.TO_DO}\n"
    assert "y = x + 2" in exercise.edited(("x + 1", "x + 2"))
    assert exercise.edited(()) == exercise.starter
    with pytest.raises(ValueError, match="2 times, not once"):
        exercise.edited(("return", "yield"))


@pytest.mark.parametrize(("part", "name"), [("HINTS", "HINTS"), ("# %% solution", "solution"), ("# Title", "title")])
def test_what_is_missing_is_named(tmp_path, part, name):
    with pytest.raises(ValueError, match=f"name.py: no {name}"):
        exercise_files.read(write(tmp_path, EXERCISE.replace(part, "OTHER")))


@pytest.mark.parametrize(
    ("source", "state", "message", "line"),
    [
        ("def reverse(x:\n", "error", "not valid Python", 1),
        ("import torch\n\nx = undefined\n", "error", "NameError: name 'undefined' is not defined", 3),
        ("import torch\n", "failed", "`reverse` is missing: keep the name", None),
        ("import torch\n\ndef reverse(x):\n    return x.flop(0)\n", "error", "AttributeError", 4),
        ("def reverse(x):\n    while True:\n        pass\n", "failed", "reverse has gone round 10000 times", 2),
        ("import itertools\n\ndef reverse(x):\n    [i for i in itertools.count()]\n", "failed", "reverse has gone", 4),
        ("for i in iter(int, 1):\n    pass\n", "failed", "the file has gone round 10000 times", 1),
        ("x = 9**9**9\n", "error", "OverflowError: this power has about 5e+08 digits", 1),
        ("def reverse(x):\n    n = 9\n    return n ** n ** n ** n\n", "error", "OverflowError: this power has", 3),
    ],
)
def test_a_text_that_does_not_run_is_told_where(source, state, message, line):
    outcome = marking.mark("first_kernel/reverse", source)
    assert outcome.state == state and message in outcome.message and "a kernel sees" not in outcome.message
    assert outcome.line in (line, line and line - 1)


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("tl.store(out_ptr + offsets, x, mask=offsets < n + 1)", "does a store outside a tensor: element 1 of out_ptr"),
        ("tl.store(out_ptr + offsets, undefined, mask=mask)", "NameError: name 'undefined' is not defined"),
        ("tl.store(out_ptr + offsets, 2 * x_ptr, mask=mask)", "a pointer is an address, not the number there: tl.load"),
        ("tl.store(out_ptr + offsets, x_ptr + offsets, mask=mask)", "this stores pointer<fp32>, an address"),
        ("tl.store(out_ptr + offsets, x_ptr[n - 1], mask=mask)", "a pointer has no brackets: tl.load"),
        ("if mask:\n        tl.store(out_ptr + offsets, x)", "a condition is one truth value, and this is a block"),
        ("tl.store(out_ptr + offsets, max(x), mask=mask)", "Python can't go through the numbers of a block"),
        ("for v in x:\n        tl.store(out_ptr, v)", "a kernel's loops go over range, tl.range or tl.static_range"),
        (
            "tl.store(out_ptr + offsets, x.to(torch.float32), mask=mask)",
            "torch.float32 works on the host only",
        ),
        (
            "acc = tl.zeros((4,), dtype=torch.int64)",
            "torch.int64 works on the host only: a kernel uses triton.language",
        ),
        (
            "tl.store(out_ptr + offsets, x + tl.arange(0, 2 * BLOCK), mask=mask)",
            "From the last axis on, two blocks must have the same size, or one of them 1: x[:, None]",
        ),
        ("tl.dot(x[:, None], x)", "equal ranks >= 2: tl.dot multiplies a block of shape (M, K) by one of (K, N)"),
        ("while n > 0:\n        n += 1", "has run 1000 statements: does a loop never end?"),
    ],
)
def test_a_mistake_in_a_kernel_is_told_with_its_line(store, message):
    text = exercise_files.named("first_kernel/reverse").solution
    line = "    tl.store(out_ptr + offsets, x, mask=mask)"
    assert line in text
    outcome = marking.mark("first_kernel/reverse", text.replace(line, f"    {store}"))
    assert message in outcome.message, outcome.message
    number = text[: text.index(line)].count("\n") + 1
    assert outcome.line in (number, number + 1)


@pytest.fixture
def checks(tmp_path):
    path = tmp_path / "reader.py"
    path.write_text("def same(x):\n    return x.clone()\n\n\ndef spoil(x):\n    x[1] = 0.0\n    return x + 1\n")
    return Questions(Answer(path))


def test_messages_name_the_first_wrong_element(checks):
    def told(function, want, x):
        with pytest.raises(Failed) as failed:
            checks.compare("case", function, want, x, name="y", kernel=False)
        return str(failed.value)

    x = torch.tensor([[1.0, 2.0], [0.5, 4.0]])
    wrong = torch.tensor([[1.0, 2.0], [0.25, 8.0]])
    assert told("same", lambda x: wrong.to(x.dtype), x) == (
        "case: y[1, 0] is 0.5, should be 0.25; row 1 is the first that is wrong, for same(x=[[1, 2], [0.5, 4]])"
    )
    assert told("same", lambda x: 2 * x, x[0]) == (
        "case: y[0] is 1, should be 2 (2 of 2 elements are wrong), for same(x=[1, 2])"
    )
    assert told("same", lambda x: 2 * x, torch.arange(12.0) + 1).endswith("11, 12])"), "twelve numbers are shown"
    assert "for same" not in told("same", lambda x: 2 * x, torch.arange(13.0) + 1)
    assert told("same", lambda x: x[0], x).startswith("case: y has shape (2, 2), should have (2,)")
    assert told("same", lambda x: x.half(), x[0]).startswith(
        "case: y has dtype torch.float32, should have torch.float16"
    )
    assert told("spoil", lambda x: x + 1, x[0]).startswith("case: spoil changes its argument 1: it[1] is 0, should be")
    assert told("same", lambda x: x * float("nan"), x[0]).startswith("case: y[0] is 1, should be nan")


def test_a_result_of_a_common_mistake_is_told_as_that(checks, tmp_path):
    mistakes = {lambda x: x / 2: "That is half of it.", lambda x: x.clone(): "Nothing was added."}
    with pytest.raises(Failed, match=r"y\[0\] is .*\. Nothing was added\.$"):
        checks.compare("case", "same", lambda x: x + 1, checks.values(5), kernel=False, name="y", mistakes=mistakes)
    with pytest.raises(Failed, match=r"\. Another note$"):
        mistakes.popitem()
        checks.compare(
            "case", "same", lambda x: x + 1, checks.values(5), kernel=False, note="Another note", mistakes=mistakes
        )
    returned = {lambda x: x: "That is x.", lambda x: [x, 0.5]: "That is a list."}
    for given, said in ([1.0, 0.5], "should be 2. That is a list."), ([1.0, 0.6], "should be 2. A note."):
        with pytest.raises(Failed) as failed:
            Questions(_Returns(given)).value("f", (1.0,), 2.0, note="A note.", mistakes=returned)
        assert str(failed.value).endswith(said)


GRID = "(triton.cdiv(x.numel(), BLOCK),)"
STORE = "tl.store(out_ptr + offsets, x, mask=mask)"
#: An exercise, an edit of its solution, and what is said of that: `*` stands for anything.
SAID = [
    ("selection/folded_heads", ("tl.where(z <= 0.0, 0.0, z)", "tl.maximum(z, 0.0)"),
     "should be nan*`tl.maximum` and `tl.minimum` take the other number"),
    ("fp8/rounded_twice", ("bias_ptr + row))", "bias_ptr + row).to(tl.float16))"), "a bias of 0.50024: out[0]"),
    ("recurrences/short_prompt", ("seen[len(seen) - len(state) :]", "seen[-len(state) :]"), "With W = 1 there is no"),
    ("recurrences/substitution", ("taken[None, :]", "tl.dot(a, inverse)"), "it sums over 4 numbers"),
    # of the arguments those that have the result's shape: `dy` has another one
    ("moe/clamped_gate", ("tl.abs(up) <= limit", "tl.abs(up) < limit"),
     "where x[0, 3] is 1 and limit is 1. Even columns of x are gates"),
    ("first_kernel/reverse", (GRID, "(1.5,)"), "there is no part of a program"),
    ("first_kernel/reverse", (GRID, "(None,)"), "NoneType"),
    ("rows/logsumexp", ("largest + tl.log", "tl.log"), "2 x 4: out[0] is * what brings back what was subtracted?"),
    ("first_kernel/scale_and_add", ("alpha * x + y", "alpha * x - y"), "for scale_and_add(alpha=*, x=[*], y=[*])"),
    ("first_kernel/reverse", ("tl.store", "tl.stroe"), "has no attribute 'stroe'. Did you mean: 'store'?"),
    ("first_kernel/reverse", ("tl.load(x_ptr", "torch.add(x_ptr"), "torch.add works on the host only"),
    ("matmul/smallest_square_tile", ("BLOCK = 1\n", "BLOCK = 1 << (0 if operations_per_byte >= 1 else -1)\n"),
     "smallest_square_tile(0.25) raises ValueError: negative shift count"),
    ("rows/wrong_other", (', other=-float("inf")', ""), "A lane that is masked off holds anything"),
    # what a question demands
    ("matmul/k_loop", (', input_precision="ieee"', ""), 'it needs input_precision="ieee"'),
    ("recurrences/segmented", ("begins_b > 0", "begins_b"), "the condition of this tl.where is int32"),
    ("operations/race", ("(triton.cdiv(len(x), 4),)", "(2 * triton.cdiv(len(x), 4),)"),
     "with the grid (2,), should be"),
    ("fast/persistent", ("[(4,)]", "[(M,)]"), "with the grid (8,), should be (4,)"),
    ("own_operation/two_inputs",
     ("ctx.save_for_backward(a, b)", "ctx.a, ctx.b = a, b", "a, b = ctx.saved_tensors", "a, b = ctx.a, ctx.b"),
     "save_for_backward is given nothing, should be given a and b"),
    ("own_operation/kept", ("ctx.save_for_backward(y)", "ctx.y = y", "(y,) = ctx.saved_tensors", "y = ctx.y"),
     "save_for_backward is given nothing"),
    # what was meant
    ("moe/stable_rank", ("tl.sum(mine * (tl.cumsum(mine, 0) - mine), 1)", "tl.cumsum(mine, 0)[slot, expert]"),
     "the brackets after a block take only"),
    ("own_operation/two_inputs", ("gate_backward(dy, a, b)\n\n", "gate_backward(dy, a, b)[0]\n\n"),
     "backward returns one for each argument of forward"),
    ("own_operation/two_inputs", ("gate_backward(dy, a, b)\n\n", "gate_backward(dy, a, b)[0], None\n\n"),
     "Has backward returned None for it?"),
    ("first_kernel/scale_and_add", ("alpha * x", "tl.load(alpha) * x"), "tl.load takes addresses"),
    ("first_kernel/scale_and_add", ("alpha * x", "tl.load(x) * x"), "tl.load takes addresses"),
    ("first_kernel/reverse", ("out_ptr + offsets, x,", "out_ptr + offsets, tl.flip(x),"), "tl.flip(x, 0)"),
    ("first_kernel/reverse", ("out_ptr + offsets, x,", "out_ptr + offsets, x + z,"),
     "name 'z' is not defined. The names of this function are x_ptr, out_ptr, n, BLOCK, offsets, mask, x"),
    ("first_kernel/reverse", ("out_ptr + offsets, x,", "out_ptr + offsets, torch.relu(x),"), "tl.maximum(x, 0.0)"),
    ("first_kernel/reverse", ("tl.store(out_ptr + offsets, x, mask=mask)", "y = x +"), "syntax, in `y = x +`"),
    ("first_kernel/reverse", (GRID, "", "[]", ""), "a launch says how many programs run: reverse_kernel[(programs,)]"),
    # what Triton says in words of its own
    *(("first_kernel/reverse", (STORE, f"{new}\n    {STORE}"), said) for new, said in (
        ("tl.load(x_ptr, mask)", "its mask is a block: add offsets to the pointer, as in tl.load(x_ptr + offsets"),
        ("tl.store(out_ptr, x)", "its value is a block: add offsets to the pointer, as in tl.store(out_ptr + offsets"),
        ("tl.atomic_add(out_ptr, x)", "as in tl.atomic_add(out_ptr + offsets"),
        ("tl.load(x_ptr + offsets, n)", "the mask of this tl.load is int32, and a mask is True or False"),
        ("tl.store(out_ptr + offsets, x, mask=offsets)", "the mask of this tl.store is"),
        ("tl.store(out_ptr + offsets, x[None, :], mask=mask)", "add offsets along each axis of what is stored"),
        ("tl.atomic_add(out_ptr + offsets, tl.arange(0, 2))", "two blocks must have the same size"),
        ("tl.load(x_ptr + offsets, other=0.0)", "give the mask too"),
        ("tl.load(x_ptr, offsets, mask=mask)", "Here mask is given by its place and by its name"),
        ("tl.load(x_ptr, masks=mask)", "did you mean mask?"),
        ("tl.load(x_ptr, default=0.0)", "tl.load takes pointer, mask, other, "),
        ("tl.store(out_ptr + offsets)", "TypeError: tl.store() missing *: tl.store takes pointer, value, mask"),
        ("tl.load(None)", "tl.load takes addresses, such as x_ptr + offsets, and got None"),
        ("x_ptr + out_ptr", "add whole numbers to an address"),
        ("tl.load(x_ptr + offsets / 2)", "offsets are whole numbers, so write a // b"),
        ("tl.arange(0, 3)", "round up with triton.next_power_of_2(n)"),
        ("range(0, BLOCK) + n", "a block of numbers is tl.arange(0, BLOCK)"),
        ("tl.zeros(BLOCK, tl.float32)", "a shape is a tuple, as in (BLOCK,)"),
        ("tl.zeros((n,), tl.float32)", "declare it as BLOCK: tl.constexpr"),
        ("tl.sum(x, axis=1)", "a block of one axis has axis 0 alone"),
        ("tl.exp(offsets)", "convert first: x.to(tl.float32)"),
        ("x.mean()", "In a kernel that is tl.sum(x, axis=0) / n"),
        ("x.to('float32')", "write tl.float32, not float32"),
        ("x & mask", "& | ^ ~ are for masks and whole numbers"),
        ("print(x)", 'a text, and then what is to be shown: print("x", x)'),
        ("print('x', x, sep='')", 'what is to be shown: print("x", x)'),
        ("tl.device_print(x)", 'what is to be shown: tl.device_print("x", x)'),
    )),
]  # fmt: skip


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
@pytest.mark.parametrize(("name", "edit", "message"), SAID)
def test_an_edit_is_told_what_is_wrong(name, edit, message):
    text = exercise_files.named(name).solution
    for old, new in zip(edit[::2], edit[1::2]):
        assert old in text
        text = text.replace(old, new)
    outcome = marking.mark(name, text, 1, compiled=False)
    assert outcome.state in ("failed", "error"), outcome
    assert fnmatch.fnmatchcase(outcome.message, "*" + message.replace("[", "[[]") + "*"), outcome.message
    assert outcome.line or outcome.state == "failed", outcome


def test_a_mistake_in_three_digits_is_the_same_mistake():
    for answer, said in (
        ("1 / 9", "beside one of the short one"),
        ("0.111", "beside one of the short one"),
        ("0.12", "half"),
    ):
        assert said in marking.mark("operations/which_mean", f"answer = {answer}\n", 1).message


def test_rounding_is_no_mistake_and_a_hundred_times_as_much_is_one(checks):
    x = checks.values(50)
    checks.compare("rounded", "same", lambda x: x * (1 + 2e-8), x, kernel=False)
    with pytest.raises(Failed):
        checks.compare("too far", "same", lambda x: x * (1 + 1e-5), x, kernel=False)


def test_an_error_of_all_elements_together_is_said_in_words(checks):
    x = torch.linspace(1, 2, 1000)
    with pytest.raises(Failed, match="each number of y is close, but all together are further off"):
        checks.compare("case", "same", lambda x: (x.double() - 1e-6).to(x.dtype), x, name="y", kernel=False)


def test_inputs_have_no_pattern_and_nan_around_them(checks):
    x, y = checks.values(3, 7), checks.values(3, 7)
    assert not torch.equal(x, y) and len(x.unique()) == 21 and not torch.equal(x, x.flip(1))
    memory = x.as_strided((x.numel() + 32,), (1,), x.storage_offset() - 16)
    assert memory[:16].isnan().all() and memory[-16:].isnan().all() and not memory[16:-16].isnan().any()
    assert checks.cut(3, 4).stride() == (9, 1) and checks.turned(3, 4).stride() == (1, 3)
    assert checks.values(5, dtype=torch.int32).dtype == torch.int32


def test_an_outcome_is_plain_data():
    data = marking.mark("first_kernel/bytes_saved", "answer = 8000\n").as_json()
    assert data["state"] == "passed" and set(data) == {"state", "message", "line", "case", "seconds", "seed"}


def test_a_number_needs_no_interpreter_and_a_kernel_does():
    assert marking.mark("recurrences/rounds_of_a_scan", "answer = 19\n").message == "Right: 1 check passed."
    said = marking.mark("scale_and_add", exercise_files.named("scale_and_add").solution).message
    assert re.match(r"Right: \d+ checks passed, (in Triton's interpreter|compiled, on the GPU)", said)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("rows/one_trip", "largest - smallest", "(largest - smallest) * 1.0000001"),
        ("operations/rmsnorm_offset", "+ 1e-6)", "+ 1.0000005e-6)"),
    ],
)
def test_a_right_answer_gets_a_second_verdict_and_a_remark_refuses_nothing(name, old, new):
    text = exercise_files.named(name).solution
    right, other = (marking.mark(name, each, 1, compiled=False) for each in (text, text.replace(old, new)))
    assert right.state == other.state == "passed" and text.count(old)
    assert right.message.endswith(f"{without_rounding.SAME}.")
    assert "One remark, which refuses nothing" in other.message and "another function: element" in other.message


@pytest.mark.interpreted
def test_where_it_cannot_be_decided_nothing_is_said(monkeypatch):
    name = "first_kernel/scale_and_add"
    text = exercise_files.named(name).solution
    plain = re.compile(r"Right: \d+ checks passed, in Triton's interpreter\.")

    def broken(*_):
        raise RuntimeError("no rule")

    monkeypatch.setattr(without_rounding, "_compared", broken)
    assert plain.fullmatch(marking.mark(name, text, 1, compiled=False).message)
    monkeypatch.setattr(without_rounding, "_compared", lambda *_: {})
    assert plain.fullmatch(marking.mark(name, text, 1, compiled=False).message)
    monkeypatch.setattr(sys, "platform", "emscripten")  # torch is written in numpy there
    assert without_rounding.verdict(None, in_browser=True) == ""


def test_the_starter_is_told_from_a_mistake():
    starter = exercise_files.named("moe/clamped_gate").starter  # it stops at a name that is still missing
    assert marking.mark("moe/clamped_gate", starter).message.startswith("This is still the starter")
    exercise = exercise_files.named("first_kernel/reverse")
    said = "This is still the starter"
    assert marking.mark(exercise.name, exercise.starter).message.startswith(said)
    assert said not in marking.mark(exercise.name, exercise.starter.replace(exercise_files.TO_DO, "n + 1")).message


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
def test_a_line_is_one_of_the_text():
    """Also if what went wrong stands in a kernel of a lesson that the text calls."""
    exercise = exercise_files.named("matmul/gradients")
    text = exercise.solution.replace("matmul_forward(dz, y.T)", "matmul_forward(dz, y)")
    outcome = marking.mark(exercise.name, text)
    assert "outside a tensor" in outcome.message
    assert "matmul_forward(dz, y)" in text.split("\n")[outcome.line - 1]


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
def test_a_load_without_other_is_blamed_only_where_its_lanes_count():
    text = exercise_files.named("first_kernel/scale_and_add").solution.replace(", other=0.0", "")
    assert marking.mark("scale_and_add", text, 1).state == "passed", "the store's mask leaves these lanes out"
    outcome = marking.mark("scale_and_add", text.replace("alpha * x + y", "alpha * x - y"), 1)
    assert outcome.state == "failed" and "out[0] is" in outcome.message and "masked off" not in outcome.message


def test_values_are_drawn_anew_and_again_with_their_seed(tmp_path):
    text = exercise_files.named("scale_and_add").solution.replace("alpha * x + y", "alpha * x - y")
    first = marking.mark("scale_and_add", text)
    assert marking.mark("scale_and_add", text).message != first.message
    assert marking.mark("scale_and_add", text, first.seed).message == first.message


def test_values_need_every_digit_of_their_dtype(checks):
    x = checks.values(200)
    assert (x.bfloat16().float() != x).float().mean() > 0.9 and (x.half().float() != x).float().mean() > 0.9
    assert x.abs().min() >= 0.1 and (x < 0).sum() == 100
    half = checks.values(200, dtype=torch.float16)
    assert (half.bfloat16().half() != half).float().mean() > 0.5


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_a_lane_without_other_holds_large_numbers_of_both_signs(dtype, tmp_path):
    """A maximum swallows NaN, and so does a minimum; one of the three runs is wrong for either."""
    path = tmp_path / f"reader_{str(dtype)[6:]}.py"
    path.write_text(
        HEAD + "@triton.jit\ndef kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
        "    i = tl.arange(0, BLOCK)\n    tl.store(out_ptr, tl.max(tl.load(x_ptr + i, mask=i < n), axis=0))\n\n\n"
        "def largest(x):\n    out = torch.empty(1, dtype=x.dtype, device=x.device)\n"
        "    kernel[(1,)](x, out, len(x), BLOCK=8)\n    return out\n"
    )
    t = Questions(Answer(path))
    t.compare("8 of 8", "largest", lambda x: x.amax(0).view(1), t.values(8, dtype=dtype), exact=True)
    with pytest.raises(Failed, match="A lane that is masked off holds anything if its load has no `other`"):
        t.compare("5 of 8", "largest", lambda x: x.amax(0).view(1), t.values(5, dtype=dtype), exact=True)


PUT = """@triton.jit
def reverse_kernel(x_ptr, out_ptr, place, value):
    tl.store(out_ptr + place, value)


def reverse(x):
    out = torch.empty_like(x)
    for place, value in enumerate({numbers}):
        reverse_kernel[(1,)](x, out, place, value)
    return out
"""
CHANGED = """    old = x.clone()
    x.copy_(old.flip(0))
    reverse_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    x.copy_(old)
"""


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
@pytest.mark.parametrize(
    ("numbers", "read"),
    [
        ("reversed(x.tolist())", "tolist()"),
        ("[x[-1 - i].item() for i in range(len(x))]", "item()"),
        ("map(float, x.flip(0))", "float()"),
        ("np.asarray(x)[::-1].tolist()", "array()"),
        ("[float(f'{one}') for one in x.flip(0)]", "format()"),
        ("[math.fsum([one]) for one in x.flip(0)]", "float()"),
        ("[statistics.fmean([one]) for one in x.flip(0)]", "float()"),
    ],
)
def test_numbers_that_python_hands_to_a_kernel_are_no_work_of_the_kernel(numbers, read):
    text = HEAD + "import math\nimport statistics\nimport numpy as np\n\n\n" + PUT.format(numbers=numbers)
    outcome = marking.mark("reverse", text, 1, compiled=False)
    assert outcome.state == "failed" and f"Python takes numbers out of a tensor, by {read}" in outcome.message, outcome


@pytest.mark.skipif(not device.INTERPRET, reason="compiled, a kernel is not watched")
def test_an_argument_that_pytorch_changes_for_the_launch_is_its_work():
    launch = "    reverse_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)\n"
    text = exercise_files.named("reverse").solution.replace("n - 1 - offsets", "offsets")
    assert text.count(launch) == 1
    outcome = marking.mark("reverse", text.replace(launch, CHANGED), 1, compiled=False)
    assert outcome.state == "failed" and "PyTorch copies what the kernel loads as x_ptr" in outcome.message, outcome
    assert not any(name in vars(torch.Tensor) for name in ("item", "tolist", "__float__")), "put back"


@pytest.mark.skipif(not device.INTERPRET or not compiler.available(), reason="needs Triton's compiler, uncalled so far")
def test_what_is_right_in_the_interpreter_alone_is_refused():
    text = exercise_files.named("first_kernel/reverse").solution.replace(
        "    mask = offsets < n\n",
        "    mask = offsets < n\n    count = 0\n    if n > 5:\n        count = tl.zeros((BLOCK,), tl.float32)\n",
    )
    assert marking.mark("reverse", text, 1, compiled=False).state == "passed"
    outcome = marking.mark("reverse", text, 1)
    assert outcome.state == "failed" and "it doesn't compile for a GPU: the compiler says" in outcome.message
    assert "if n > 5" in text.split("\n")[outcome.line - 1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("from fractions import Fraction\nanswer = Fraction(13, 10)", "Right"),
        ("from decimal import Decimal\nanswer = Decimal('1.3')", "Right"),
        ("import numpy as np\nanswer = np.float32(1.3)", "Right"),
        ("import torch\nanswer = torch.tensor(1.3)", "Right"),
        ("answer = 1.3000001", "answer is 1.3000001, which is not right"),
        ("answer = True", "answer is True, and should be a number"),
        ("answer = 10**400", "which is not right"),
        ("from fractions import Fraction\nanswer = Fraction(10**400)", "no number that a float can hold"),
    ],
)
def test_a_number_of_any_kind_is_a_number(answer, said):
    assert said in marking.mark("loss_of_what_is_left", answer + "\n", 1).message


def test_both_numbers_are_shown_with_the_digits_that_tell_them_apart(tmp_path):
    path = tmp_path / "digits.py"
    path.write_text("def f(x):\n    return [x, 0.5]\n")
    with pytest.raises(Failed, match=r"f\(1\) is \[1.00000002, 0.5\], should be \[1, 0.5\]"):
        Questions(_Returns([1.00000002, 0.5])).value("f", (1,), [1.0, 0.5])


class _Returns:
    def __init__(self, value):
        self.value = value

    def has(self, name):
        return True

    def call(self, function, arguments):
        return self.value


HIDING = {
    "zeros": "x + (x == 0).to(x.dtype)",
    "equal numbers": "torch.where((x == x.flatten()[0]).all(), x + 1, x)",
    "ties": "torch.where(x == 1, x + 1, x)",
    "negative numbers": "torch.where((x < 0).all(), -x, x)",
    "tiny numbers": "torch.where(x.abs() < 1e-20, torch.zeros_like(x), x)",
    "large numbers": "torch.where((x.abs() > 1e3).sum() > 1, torch.zeros_like(x), x)",
    "one large number": "x.clamp(max=100.0)",
    "a NaN": "torch.where(x == x, x, torch.zeros_like(x))",
    "an infinity": "x.clamp(max=1e30)",
    "minus infinity": "x.clamp(min=-1e30)",
}


@pytest.mark.parametrize("kind", HIDING)
def test_each_class_of_values_is_compared_unless_it_is_spared(kind, tmp_path):
    path = tmp_path / f"hiding_{len(kind)}_{kind[:3].strip()}.py"
    path.write_text(f"import torch\n\n\ndef f(x):\n    return {HIDING[kind]}\n")

    def asked(spare):
        t = Questions(Answer(path), seed=1)
        for size in (20, 30):
            t.compare(f"{size} numbers", "f", lambda x: x.clone(), t.values(size), kernel=False, spare=spare)
        t.finish()
        return t.cases

    with pytest.raises(Failed, match=f", {'(many|a) NaN' if kind == 'a NaN' else '.*'} in x: out"):
        asked(())
    assert asked(("*",)) == 2, "in ordinary numbers nothing is wrong"


def test_no_result_has_to_be_closer_than_the_last_bits_of_the_arguments_allow(tmp_path):
    """A sum of both signs in another order, and a difference of large logarithms; a step is not passed over."""
    path = tmp_path / "closer.py"
    path.write_text(
        "import torch\n\n\ndef total(x):\n    return x.flip(0).cumsum(0)[-1:]\n\n\n"
        "def share(a, b):\n    m = torch.maximum(a, b)\n"
        "    return torch.exp(a - (m + torch.log(torch.exp(a - m) + torch.exp(b - m))))\n\n\n"
        "def below(x):\n    return torch.where(x < 1, x, torch.zeros_like(x))\n"
    )
    t = Questions(Answer(path), seed=1)
    for _ in range(50):
        t.compare("a sum", "total", lambda x: x.sum().view(1), t.values(40), kernel=False)
        a, b = t.values(4) + 3000, t.values(4) + 3000
        t.compare("a share", "share", lambda a, b: torch.exp(a - torch.logaddexp(a, b)), a, b, kernel=False)
    with pytest.raises(Failed, match="should be 1"):
        t.compare("a step", "below", lambda x: torch.where(x <= 1, x, 0 * x), torch.tensor([0.5, 1.0]), kernel=False)
    with pytest.raises(Failed, match="out"):
        t.compare("a wrong digit", "total", lambda x: (x.sum() * (1 + 1e-5)).view(1), t.positive(40), kernel=False)
