"""Tools for the kernel tests: hostile layouts of a tensor, memory with fences, mutants that must be caught.

The mutants are small edits of a kernel file's source. A mutated copy is imported as a module of its own, and the
kernel's own check has to raise `AssertionError` on it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from academy import accuracy, device, syntax

DEVICE = device.DEVICE
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
ROOT = Path(__file__).resolve().parents[2]

# A failure is the kernel's: pytest shows no function that says `__tracebackhide__`, but the test that called it. Where
# that is a context manager, contextlib calls its end.
contextlib.__tracebackhide__ = True


def modules(*files: ModuleType):
    """A fixture `module`: each test that takes it runs for the lesson and for the fast file."""
    ids = ["fast" if ".fast." in file.__name__ else "lesson" for file in files]
    return pytest.fixture(params=files, ids=ids, name="module")(lambda request: request.param)


def dtype_name(value: object) -> str:
    """For `pytest.mark.parametrize(ids=…)`."""
    return str(value).removeprefix("torch.")


def randn(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


# ---------------------------------------------------------------- layouts


def nan_fenced(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, in the middle of memory full of NaN: a read outside poisons the result."""
    fence = 64
    memory = torch.full((values.numel() + 2 * fence,), float("nan"), dtype=values.dtype, device=values.device)
    memory[fence : fence + values.numel()] = values.flatten()
    return memory[fence : fence + values.numel()].view(values.shape)


def transposed(values: torch.Tensor) -> torch.Tensor:
    """The same values, stored column-major."""
    return values.transpose(-1, -2).contiguous().transpose(-1, -2) if values.dim() > 1 else values


def strided(values: torch.Tensor) -> torch.Tensor:
    """The same values, every third element of memory that is NaN in between, with padded rows."""
    padded = (*values.shape[:-1], 3 * values.shape[-1] + 5) if values.dim() else (3,)
    memory = torch.full(padded, float("nan"), dtype=values.dtype, device=values.device)
    view = memory[..., 2 : 2 + 3 * values.shape[-1] : 3] if values.dim() else memory[2]
    view.copy_(values)
    return view


def sliced(values: torch.Tensor) -> torch.Tensor:
    """The same values as the left part of wider rows full of NaN."""
    memory = torch.full(
        (*values.shape[:-1], values.shape[-1] + 7), float("nan"), dtype=values.dtype, device=values.device
    )
    memory[..., : values.shape[-1]] = values
    return memory[..., : values.shape[-1]]


#: name -> function from a tensor to the same values in another layout
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan_fenced": nan_fenced,
    "transposed": transposed,
    "strided": strided,
    "sliced": sliced,
}


def expanded(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One row shown many times: stride 0 in every dimension but the last."""
    return randn(shape[-1], dtype=dtype).expand(shape)


@contextlib.contextmanager
def unchanged(**tensors: torch.Tensor) -> Iterator[None]:
    """Fail if a tensor's bits are not the same afterwards (NaN counts as itself)."""
    __tracebackhide__ = True
    before = {name: value.detach().clone() for name, value in tensors.items()}
    yield
    for name, value in tensors.items():
        now, then = value.detach(), before[name]
        same = (now == then) | ((now != now) & (then != then))
        assert bool(same.all()), f"{name} was written to"


_FENCE = 1 << 15


@contextlib.contextmanager
def fenced_allocations() -> Iterator[None]:
    """Inside, `torch.empty` and its relatives return NaN-filled memory between two fences; a write outside fails.

    Without this, a store past the end would quietly hit somebody else's memory, or bring the process down.
    """
    __tracebackhide__ = True
    real_empty, real_like, real_new = torch.empty, torch.empty_like, torch.Tensor.new_empty
    fences: list[tuple[torch.Tensor, int]] = []

    def poison(dtype: torch.dtype) -> float | int:
        return float("nan") if dtype.is_floating_point else (dtype != torch.bool and torch.iinfo(dtype).max)

    def allocate(like: torch.Tensor, device) -> torch.Tensor:  # `like` is a meta tensor: shape, strides and dtype
        extent = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride())) if like.numel() else 0
        memory = torch.full((extent + 2 * _FENCE,), poison(like.dtype), dtype=like.dtype, device=device)
        fences.append((memory, extent))
        # `set_` rather than a slice: the result must be no view, as what `torch.empty` returns is none.
        return real_empty(0, dtype=like.dtype, device=device).set_(
            memory.untyped_storage(), _FENCE, like.shape, like.stride()
        )

    def empty(*size, device=None, pin_memory=False, **options):
        return allocate(real_empty(*size, device="meta", **options), device or "cpu")

    def empty_like(tensor, device=None, **options):
        return allocate(real_like(tensor, device="meta", **options), device or tensor.device)

    def new_empty(tensor, *size, device=None, **options):
        return allocate(real_new(tensor, *size, device="meta", **options), device or tensor.device)

    torch.empty, torch.empty_like, torch.Tensor.new_empty = empty, empty_like, new_empty
    try:
        yield
    finally:
        torch.empty, torch.empty_like, torch.Tensor.new_empty = real_empty, real_like, real_new
    for memory, extent in fences:
        outside = torch.cat([memory[:_FENCE], memory[_FENCE + extent :]])
        intact = outside.isnan() if memory.dtype.is_floating_point else outside == poison(memory.dtype)
        assert bool(intact.all()), f"{(~intact).sum().item()} elements were written outside of an allocation"


# ---------------------------------------------------------------- judging


def leaf(values: torch.Tensor) -> torch.Tensor:
    """The same tensor (layout kept) as a leaf that wants a gradient."""
    return values.detach().requires_grad_()


def gradients(function: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor | None = None) -> dict:
    """`{"out": …, "d<name>": …}` per floating-point input, layouts kept; no upstream means `.sum().backward()`."""
    leaves = {n: leaf(v) if v.is_floating_point() else v for n, v in inputs.items()}
    out = function(**leaves)
    wanted = {n: v for n, v in leaves.items() if v.requires_grad}
    if upstream is None:
        grads = torch.autograd.grad(out.sum(), list(wanted.values()))
    else:
        grads = torch.autograd.grad(out, list(wanted.values()), upstream)
    return {"out": out.detach(), **{f"d{n}": g for n, g in zip(wanted, grads)}}


def assert_right(function: Callable, reference: Callable, inputs: dict[str, torch.Tensor], upstream=None) -> None:
    """Output and all gradients of `function` obey the 2x rule against `reference`, which is plain PyTorch.

    `reference` is run twice: in the inputs' dtype (PyTorch's own error) and in float64. Inputs must stay unchanged.
    """
    __tracebackhide__ = True
    doubles = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
    watched = {**inputs, **({} if upstream is None else {"upstream": upstream})}
    with unchanged(**watched), fenced_allocations():
        actual = gradients(function, inputs, upstream)
    pytorch = gradients(reference, inputs, upstream)
    exact = gradients(reference, doubles, None if upstream is None else upstream.double())
    for name, value in actual.items():
        accuracy.check(name, value, pytorch[name], exact[name])


def assert_bitwise_repeatable(function: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor) -> None:
    """The same call twice gives the same bits, forward and backward."""
    first, second = (gradients(function, inputs, upstream) for _ in range(2))
    for name in first:
        assert torch.equal(first[name], second[name]), f"{name} differs between two equal calls"


def assert_gradient_penalty_raises(function: Callable, inputs: dict[str, torch.Tensor], constant: bool = True) -> None:
    """Differentiating a gradient again must raise instead of silently losing its term.

    Once with an upstream gradient that depends on the inputs, and once with a `constant` one, unless `function` is
    linear: its gradient then is a constant too, and nothing can be lost.
    """
    losses = [lambda out: (out.float() ** 2).sum()] + [lambda out: out.float().sum()] * constant
    for loss in losses:
        leaves = {n: leaf(v) if v.is_floating_point() else v for n, v in inputs.items()}
        wanted = [v for v in leaves.values() if v.requires_grad]
        value = loss(function(**leaves))
        grads = torch.autograd.grad(value, wanted, create_graph=True)
        penalised = value + sum(g.float().pow(2).sum() for g in grads)
        for ask in (functools.partial(torch.autograd.grad, inputs=wanted, retain_graph=True), torch.Tensor.backward):
            try:
                ask(penalised)
            except RuntimeError as error:
                assert "once_differentiable" in str(error), error
            else:
                raise AssertionError("a gradient penalty silently lost its term")


def assert_reference_gradcheck(reference: Callable, *inputs: torch.Tensor) -> None:
    """The reference's own gradient agrees with finite differences in float64."""
    assert torch.autograd.gradcheck(reference, [v.double().requires_grad_() for v in inputs])


# ---------------------------------------------------------------- mutants


@dataclass(frozen=True)
class Mutant:
    """A small edit of a kernel's code that a test must catch.

    name: what the mistake is, as a trap is named. old, new: the edit. `old` is code, looked for where comments and
    docstrings are taken out, and must occur exactly `count` times.
    gpu: only compiled code shows it (the interpreter runs programs in order, pads masked lanes with zero …).
    interpreted: only the interpreter shows it, where tensors may lie 2³¹ elements apart without that much memory.
    """

    name: str
    old: str
    new: str
    count: int = 1
    gpu: bool = False
    interpreted: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


def code_of(text: str) -> str:
    """The source without comments, docstrings and the lines that held nothing else."""
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start[0] - 1, token.start[1]
            lines[row] = lines[row][:column].rstrip() + "\n"
    for node in [syntax.tree(text), *syntax.statements(syntax.tree(text))]:
        if isinstance(node, (ast.Module, *syntax.DEFINITION)) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            indent = " " * first.col_offset if len(node.body) > 1 or isinstance(node, ast.Module) else None
            if indent is not None:
                lines[first.lineno - 1 : first.end_lineno] = ["\n"] * (first.end_lineno - first.lineno + 1)
    return re.sub(r"\n\n+", "\n", "".join(line if line.strip() else "\n" for line in lines))


def mutated(module: ModuleType, mutant: Mutant, folder: Path) -> ModuleType:
    """Import a copy of `module` with the edit made."""
    code = code_of(Path(module.__file__).read_text("utf-8"))
    assert code.count(mutant.old) == mutant.count, (
        f"mutant {mutant.name!r}: {mutant.old!r} occurs {code.count(mutant.old)} times, not {mutant.count}. "
        f"This says nothing about the kernel's numbers: its code was changed, so the mutant has to follow"
    )
    return import_source(code.replace(mutant.old, mutant.new), folder, Path(module.__file__).stem)


def import_source(source: str, folder: Path, stem: str) -> ModuleType:
    """Import `source` from a file of its own: Triton reads a kernel's text back from its file."""
    name = f"{stem}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    path = Path(folder) / f"{name}.py"
    path.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop(name, None)
    return module


def upon(shared: ModuleType, broken: ModuleType, module: ModuleType, folder: Path) -> ModuleType:
    """`module`, imported once more, standing upon `broken` in place of `shared`, a file of `common`."""
    package, name = sys.modules[shared.__package__], shared.__name__.rpartition(".")[2]
    source = code_of(Path(module.__file__).read_text("utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, shared.__name__, broken)
        patch.setattr(package, name, broken)
        return import_source(source, folder, f"{Path(module.__file__).stem}_upon_{broken.__name__}")


def without_gpu(script: str, *arguments: str) -> object:
    """What a script of this folder prints last, read as JSON. In its process kernels are not interpreted."""
    command = [sys.executable, Path(__file__).with_name(script), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def mutant_parameters(mutants: list[Mutant]) -> list:
    """For `pytest.mark.parametrize("mutant", …)`: those that only a GPU shows are marked so, and skipped by name."""
    unseen = pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter shows it")
    marks = lambda m: [pytest.mark.gpu] * m.gpu + [unseen] * m.interpreted  # noqa: E731
    return [pytest.param(m, id=str(m), marks=marks(m)) for m in mutants]


def assert_caught(module: ModuleType, mutant: Mutant, check: Callable[[ModuleType], None], folder: Path) -> None:
    """`check(mutated module)` must raise; `check(module)` itself is a test of its own and must not."""
    broken = mutated(module, mutant, folder)
    try:
        check(broken)
    except (AssertionError, RuntimeError, ValueError, TypeError, IndexError):
        return
    raise AssertionError(f"nothing noticed the mutant {mutant.name!r}: {mutant.old!r} -> {mutant.new!r}")
