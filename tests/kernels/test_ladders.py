"""Every rung of every ladder: right on hostile inputs, short, and the last one is the fast version."""

import ast
import importlib
import json

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from academy import compiler
from academy.bench import ladder_run
from academy.bench.run import dtype_name
from academy.book import layout, syntax
from academy.book.layout import ROOT
from academy.exact import without_rounding
from academy.judge import accuracy
from academy.results import ladder
from tests.kernels import harness

#: Ladder -> shapes that no block divides.
SHAPES = {
    "cross_entropy": [(1, 1), (5, 37), (3, 1031)],
    "flash_attention": [(1, 1, 1, 16), (2, 1, 67, 32), (8, 8, 72, 16)],
    "layernorm": [(1, 1), (5, 37), (3, 1031)],
    "layernorm_backward": [(1, 1), (5, 37), (3, 515)],
    "matmul": [(1, 1, 1), (17, 9, 70), (40, 24, 72)],
    "matmul_backward": [(1, 1, 1), (37, 70, 19)],
    "softmax": [(1, 1), (5, 37), (3, 1031)],
}
#: Rungs that take 16-bit matrices whose rows begin at multiples of 16 bytes.
ALIGNED = {("matmul", "descriptors"), ("matmul", "persistent")}
ALIGNED |= {("flash_attention", "by_descriptor"), ("flash_attention", "two_tiles_ahead")}
#: Ladder -> what its last rung is.
FAST = {
    "cross_entropy": "fast.cross_entropy:cross_entropy_loss",
    "flash_attention": "fast.flash_attention:flash_attention",
    "layernorm": "fast.layernorm:layernorm_forward",
    "layernorm_backward": "fast.layernorm:layernorm_backward",
    "matmul": "fast.matmul:matmul_forward",
    "matmul_backward": "fast.matmul:matmul_backward",
    "softmax": "fast.softmax:softmax_forward",
}
MOST_LINES = 35
#: Ladder -> a few rows of what it is measured with: what is compiled for it is the same.
COMPILED = {
    "cross_entropy": (2, 128256),
    "flash_attention": (1, 2, 256, 128),
    "layernorm": (2, 4096),
    "layernorm_backward": (2, 4096),
    "matmul": (256, 512, 128),
    "matmul_backward": (256, 512, 128),
    "softmax": (2, 50257),
}
SCRIPT = """
import sys

sys.path.append({root!r})
from academy.runtime import device
from academy.bench import ladder_run


def EXAMPLE():
    for name, shape, words in {wanted!r}:
        variant = ladder_run.variant(name)
        for word in words:
            inputs = variant.inputs(shape, variant.dtypes[0], device.DEVICE)
            for each in variant.differentiable:
                inputs[each].requires_grad_()
            variant.ours[word](**inputs)
"""
LADDERS = ladder.names(ROOT)
RUNGS = [(name, rung) for name in LADDERS for rung in ladder.rungs(name, ROOT)]
DTYPES = [torch.float32, torch.bfloat16]


def rung_id(value):
    return value.word if isinstance(value, ladder.Rung) else None


def test_every_ladder_is_listed_here():
    assert set(SHAPES) == set(FAST) == set(COMPILED) == set(LADDERS)
    folders = {path.name for path in (ROOT / ladder.FOLDER).iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(LADDERS), "a folder of rungs without benchmarks/ladders/<name>.py, or the other way round"


@pytest.fixture(scope="module")
def variants():
    return {name: ladder_run.variant(name) for name in LADDERS}


#: Tensors that a launcher gets contiguous, as its contract says.
CONTIGUOUS = {"saved", "mean", "rstd", "weight", "bias"}


def hostile(name, value, aligned):
    """Matrices as the left part of wider rows full of NaN, what has to be contiguous between two fences of NaN."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return harness.nan_fenced(value) if aligned or name in CONTIGUOUS else harness.sliced(value)


def results(function, inputs, upstream):
    """What a function returns, by name; with `upstream`, the gradients too."""
    if upstream is not None:
        return harness.gradients(function, inputs, upstream)
    out = function(**inputs)
    return {f"out{at}": each for at, each in enumerate(out if isinstance(out, tuple) else (out,)) if each is not None}


def assert_right(variant, function, shape, dtype, aligned=False):
    inputs = {n: hostile(n, v, aligned) for n, v in variant.inputs(shape, dtype, harness.DEVICE).items()}
    doubles = {n: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for n, v in inputs.items()}
    upstream = torch.tensor(1.0, device=harness.DEVICE) if variant.differentiable else None
    with harness.unchanged(**{n: v for n, v in inputs.items() if torch.is_tensor(v)}), harness.fenced_allocations():
        actual = results(function, inputs, upstream)
    # On some processors PyTorch's own products of 16 bits take the NaN beside a slice along.
    packed = {n: v.contiguous() if torch.is_tensor(v) else v for n, v in inputs.items()}
    with sdpa_kernel(SDPBackend.MATH):  # attention is held to PyTorch's plain arithmetic, on a card too
        pytorch, exact = results(variant.eager, packed, upstream), results(variant.reference, doubles, upstream)
    assert actual.keys() == pytorch.keys()
    for name, value in actual.items():
        accuracy.check(name, value, pytorch[name].to(value.dtype), exact[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("name,rung", RUNGS, ids=rung_id)
def test_right(variants, name, rung, dtype):
    variant, aligned = variants[name], (name, rung.word) in ALIGNED
    if aligned and dtype == torch.float32:
        pytest.skip("for 16-bit matrices")
    for shape in SHAPES[name]:
        if not aligned or not any(size % 8 for size in shape):
            assert_right(variant, variant.ours[rung.word], shape, dtype, aligned)


#: Ladder -> a shape that all of its rungs take, and whose rows have a residue: no length that a prime divides.
DECIDED = {
    "cross_entropy": (5, 37),
    "flash_attention": (1, 2, 16, 16),
    "layernorm": (2, 37),
    "layernorm_backward": (2, 37),
    "matmul": (40, 24, 72),
    "matmul_backward": (37, 70, 19),
    "softmax": (5, 37),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", LADDERS)
def test_each_rung_is_the_same_function_as_the_one_before(variants, name):
    """Without rounding; and the first one is the reference's, so each of them is. What has a root is drawn until it is
    decided."""
    variant, torch_state = variants[name], torch.get_rng_state()
    for seed in range(8):
        torch.manual_seed(seed)
        inputs = variant.inputs(DECIDED[name], torch.bfloat16, harness.DEVICE)
        doubles = {n: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for n, v in inputs.items()}
        upstream = torch.tensor(1.0, device=harness.DEVICE) if variant.differentiable else None
        with without_rounding() as session, sdpa_kernel(SDPBackend.MATH):
            before, verdicts = results(variant.reference, doubles, upstream), []
            for rung in ladder.rungs(name, ROOT):
                now = results(variant.ours[rung.word], inputs, upstream)
                verdicts += [(rung.word, each, session.compare(now[each], before[each])) for each in now]
                before = now
        assert not session.lost
        assert not [found for *found, verdict in verdicts if verdict.same is False]
        if all(verdict.decided == verdict.elements for *_, verdict in verdicts):
            break
    else:
        pytest.fail("\n".join(f"{rung}: {each}: {verdict}" for rung, each, verdict in verdicts))
    torch.set_rng_state(torch_state)


@pytest.mark.parametrize("name", LADDERS)
def test_the_last_rung_is_the_fast_version(name):
    last = [rung for rung in ladder.rungs(name, ROOT) if rung.number][-1]
    module, _, function = FAST[name].partition(":")
    theirs = getattr(importlib.import_module(f"annotated_examples.{module}"), function)
    assert getattr(importlib.import_module(last.module), ladder.function_name(name, ROOT)) is theirs


@pytest.mark.parametrize("name,rung", RUNGS, ids=rung_id)
def test_a_rung_is_short_and_says_why(name, rung):
    text = (ROOT / rung.path).read_text("utf-8")
    for function in syntax.jitted_functions(text):
        first = function.body[0].lineno
        code = {n for n in range(first, function.end_lineno + 1) if text.split("\n")[n - 1].split("#")[0].strip()}
        assert len(code) <= MOST_LINES, f"{function.name} has {len(code)} lines"
    if rung.number > 1:
        assert "**What was slow?**" in rung.about and "**What changes?**" in rung.about
    if rung.number:
        assert "**Predict:**" in rung.about


def test_a_lesson_or_a_fast_file_knows_no_ladder():
    for path in [each for each in layout.kernels(ROOT) if layout.group(ROOT, each) != "ladders"]:
        imported = syntax.imported_kernels(path.read_text("utf-8"), ROOT)
        assert not [each for each in imported if each.is_relative_to(ROOT / ladder.FOLDER)], path


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("*/ladders/*.json")), ids=lambda p: p.stem)
def test_committed_results_are_those_of_the_rungs(path):
    """The same rungs in the same order, all measured. (A rung that has changed since is reported as stale.)"""
    record = json.loads(path.read_text("utf-8"))
    found = ladder.rungs(path.stem, ROOT)
    assert record["ladder"] == path.stem
    assert record["rungs"] == [rung.word for rung in found if rung.number]
    assert record["tried"] == [rung.word for rung in found if not rung.number]
    for case in record["cases"]:
        assert list(case["providers"]) == [*(rung.word for rung in found), "pytorch"], case["notes"]


def test_no_code_is_copied_from_the_fast_version():
    """What the fast version has is imported from it: no kernel of a ladder equals one of its fast file."""
    for name, rung in RUNGS:
        fast = layout.module_path(ROOT, FAST[name].partition(":")[0])
        theirs = {ast.dump(f) for f in ast.walk(syntax.bare(fast.read_text("utf-8"))) if isinstance(f, ast.FunctionDef)}
        mine = ast.walk(syntax.bare((ROOT / rung.path).read_text("utf-8")))
        assert not [f.name for f in mine if isinstance(f, ast.FunctionDef) and ast.dump(f) in theirs], rung.path


def assert_compiled(wanted, folder):
    """These rungs of these ladders compile for an H100, and what they need is there."""
    script = folder / "rungs.py"
    script.write_text(SCRIPT.format(root=str(ROOT), wanted=wanted), "utf-8")
    report = compiler.compile_file(script, arch=90)
    assert report.stopped is None and len(report.kernels) >= len(wanted)
    for kernel in report.kernels:
        assert not kernel.problems and kernel.fits, (kernel.name, kernel.constants, kernel.problems)


def own_kernels(name):
    """The rungs that have kernels of their own; those of lessons and fast files are compiled by their own tests."""
    found = [
        rung for rung in ladder.rungs(name, ROOT) if syntax.jitted_functions((ROOT / rung.path).read_text("utf-8"))
    ]
    return name, COMPILED[name], [rung.word for rung in found]


@pytest.mark.skipif(not compiler.available(), reason="needs Triton's compiler")
def test_own_kernels_compile_for_an_h100(tmp_path):
    """Of one ladder; at night all rungs of all of them, the next test."""
    assert_compiled([own_kernels(LADDERS[0])], tmp_path)


@pytest.mark.nightly
@pytest.mark.skipif(not compiler.available(), reason="needs Triton's compiler")
@pytest.mark.parametrize("name", LADDERS)
def test_every_rung_compiles_for_an_h100(name, tmp_path):
    assert_compiled([(name, COMPILED[name], [rung.word for rung in ladder.rungs(name, ROOT)])], tmp_path)


#: File of a ladder of the product's gradients, and faults of its own.
MUTANTS = [
    (file, harness.Mutant(*edit))
    for file, edits in {
        "rung_1_gate_in_the_loads": [
            ("gate does not move on", "gate_ptrs += BLOCK_K *", "gate_ptrs += 0 *"),
            ("gate's strides ignored", "* stride_gm + offs_k[None, :] * stride_gk", "* K + offs_k[None, :]"),
            ("gate forgotten", "tl.where(gate > 0, a, 0.0).to(b.dtype)", "a"),
        ],
        "tried_one_launch": [
            ("programs of db counted from 0", "tl.program_id(0) - programs_da", "tl.program_id(0)"),
            ("strides of b not exchanged", "1, stride_bn, stride_bk", "1, stride_bk, stride_bn"),
            ("strides of a not exchanged", "K, N, M, stride_ak, stride_am", "K, N, M, stride_am, stride_ak"),
        ],
    }.items()
    for edit in edits
]  # fmt: skip


@pytest.mark.parametrize(("file", "mutant"), MUTANTS, ids=str)
def test_mutant_of_a_gradient_is_caught(variants, file, mutant, tmp_path):
    variant = variants["matmul_backward"]
    module = importlib.import_module(f"annotated_examples.ladders.matmul_backward.{file}")
    check = lambda broken: assert_right(variant, broken.matmul_backward, (37, 70, 19), torch.float32)  # noqa: E731
    check(module)
    harness.assert_caught(module, mutant, check, tmp_path)
