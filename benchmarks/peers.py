"""Other judges of kernels, each asked in its own words: adapters from a file of `tests/corpus` to what they publish.

Where a harness has a function that compares, that very function is called: it is imported from a checkout, which
`checkout` clones at the commit that stands in `CHECKOUTS`. Nothing of theirs is in this repository. They were written
for a GPU; here they run in the interpreter, with the stand-in that `academy judge` gives to any file that asks for one.
What an adapter has to choose, the shapes and the dtype, its docstring says.

A `Judge` gets a `Subject` and raises `Found`, or `NoVerdict` where it can't tell.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.judge import elements, subject, trying, verdict, writes
from academy.judge.trials import Plan

#: Name -> where it is cloned from, and the commit that is meant.
CHECKOUTS = {
    "KernelBench": ("ScalingIntelligence/KernelBench", "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"),
    "robust-kbench": ("SakanaAI/robust-kbench", "078f5bab29934a822268d59a4e707d449abf9b4e"),
    "reference-kernels": ("gpu-mode/reference-kernels", "f83cb92a534cc67fa98d7e9813e7f8238abdb4e0"),
    "Liger-Kernel": ("linkedin/Liger-Kernel", "ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c"),
    "triton-viz": ("Deep-Learning-Profiling-Tools/triton-viz", "203b0c7cbb35448d53f3cf5359db55e0d4fb3522"),
}
#: Folder of the checkouts, by name.
FOLDER = Path(os.environ.get("ACADEMY_PEERS", Path.home() / ".cache/academy-peers"))


class Found(Exception):
    """A judge says that a kernel is wrong."""


class NoVerdict(Exception):
    """A judge can't say anything of this kernel."""


@dataclass(frozen=True)
class Judge:
    """ask: raises Found or NoVerdict. gradients: whether it looks at any. version: of what, and which."""

    name: str
    ask: Callable[[subject.Subject], None]
    gradients: bool
    version: str


def checkout(name: str) -> Path:
    """The folder of a peer, cloned if it isn't there.

    Raises:
        RuntimeError: there is another commit, or it can't be cloned.
    """
    repository, commit = CHECKOUTS[name]
    folder = FOLDER / name
    git = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True, check=False)  # noqa: E731
    if not folder.is_dir():
        git("clone", "--quiet", f"https://github.com/{repository}", str(folder))
        git("-C", str(folder), "checkout", "--quiet", commit)
    found = git("-C", str(folder), "rev-parse", "HEAD").stdout.strip()
    if found != commit:
        raise RuntimeError(f"{folder} should be {repository} at {commit}, and is at {found or 'nothing'}")
    return folder


@contextlib.contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Modules are imported from these folders, before all others."""
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(str(folder))


# ---------------------------------------------------------------- a call
def round_sizes(one: subject.Subject) -> dict[str, int]:
    """The shape that people write first: powers of two."""
    return {dim: 64 if place else 16 for place, dim in enumerate(one.dims)}


def odd_sizes(one: subject.Subject) -> dict[str, int]:
    return {dim: (9, 41, 77)[min(place, 2)] for place, dim in enumerate(one.dims)}


def made(one: subject.Subject, sizes: dict[str, int], dtype: str, seed: int) -> dict[str, Any]:
    """All arguments, the first of each option among them."""
    inputs = one.make(dict(Plan(one).chosen(sizes)), getattr(torch, dtype), seed)
    return inputs | one.combinations()[0]


def in_one(result: Any, arguments: dict[str, Any]) -> torch.Tensor:
    """The result as one tensor: as it is, or several in one vector. Without a result, what is in the arguments now."""
    values = [value for value in verdict.named(result).values() if torch.is_tensor(value)]
    if result is None:
        values = [value for value in arguments.values() if torch.is_tensor(value)]
    if len(values) == 1:
        return values[0]
    return torch.cat([value.reshape(-1).to(torch.float32) for value in values])


def calling(function: Callable, names: list[str], others: dict[str, Any]) -> Callable[..., torch.Tensor]:
    """What takes the arguments of these names in this order, and gives one tensor."""

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        arguments = others | dict(zip(names, tensors, strict=True))
        return in_one(function(**arguments), arguments)

    return call


def differentiable(one: subject.Subject) -> frozenset[str]:
    """The inputs whose gradients the function gives: what it refuses is not asked by whoever tests it."""
    trial = Plan(one).trial("odd sizes", options=tuple(one.combinations()[0].items()))
    if trying.gradient_mode(one, trial) != "gradients":
        return frozenset()
    floats = {name for name, value in made(one, odd_sizes(one), one.dtypes[0], 0).items() if _floating(value)}
    return floats - trying.refusing(one)


def called(one: subject.Subject, sizes: dict[str, int], dtype: str, seed: int, backward: bool) -> list[tuple]:
    """(name, the function's, PyTorch's in the same dtype, PyTorch's in float64) of each result."""
    inputs = one.make(dict(Plan(one).chosen(sizes)), getattr(torch, dtype), seed)
    options, wanted = one.combinations()[0], differentiable(one) if backward else frozenset()
    generator = torch.Generator().manual_seed(seed + 1)
    draw = lambda outs: [torch.randn(out.shape, generator=generator).to(out) for out in outs]  # noqa: E731
    given = lambda function: lambda **tensors: function(**tensors, **options)  # noqa: E731
    function, reference = given(one.function), given(one.reference)
    return verdict.three(function, reference, reference, writes.copies(inputs), draw, wanted)


# ---------------------------------------------------------------- the judges
def assert_close(one: subject.Subject) -> None:
    """`torch.testing.assert_close` with its own tolerances, on one round shape, forward: what most people write."""
    for name, found, wanted, _ in called(one, round_sizes(one), one.dtypes[0], 0, backward=False):
        if torch.is_tensor(found):
            try:
                torch.testing.assert_close(found, wanted, equal_nan=True)
            except AssertionError as error:
                raise Found(f"{name}: {error}") from None


def _module(name: str, folder: Path) -> Any:
    """A module of a package there, without what its packages' own `__init__` imports: what trains models, and keys."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        package = ".".join(parts[:depth])
        sys.modules.setdefault(package, types.ModuleType(package)).__path__ = [str(folder.joinpath(*parts[:depth]))]
    return importlib.import_module(name)


@functools.cache
def _kernelbench() -> Any:
    return _module("kernelbench.eval", checkout("KernelBench") / "src")


def kernelbench(one: subject.Subject) -> None:
    """`kernelbench.eval.run_and_check_correctness`: five draws, forward, in the first dtype. Its tasks have one fixed
    shape each; it is a round one here. It turns all inputs into the task's dtype, so those of another go beside."""
    dtype = getattr(torch, one.dtypes[0])
    others: dict[str, Any] = {}

    def draw() -> list[torch.Tensor]:
        inputs = made(one, round_sizes(one), one.dtypes[0], int(torch.randint(2**31, ())))
        floats = {name: value for name, value in inputs.items() if _floating(value) and value.dtype == dtype}
        others.update({name: value for name, value in inputs.items() if name not in floats} | {"": list(floats)})
        return list(floats.values())

    class Model(torch.nn.Module):
        def __init__(self, function: Callable):
            super().__init__()
            self.function = function

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            given = {name: value for name, value in others.items() if name}
            return calling(self.function, others[""], writes.copies(given))(*map(torch.clone, tensors))

    said: dict[str, Any] = {}
    result = _kernelbench().run_and_check_correctness(
        Model(one.reference), Model(one.function), draw, said, num_correct_trials=5,
        device=torch.device("cpu"), backend="triton", precision=dtype,
    )  # fmt: skip
    if not result.correctness:
        raise Found(str(said.get("runtime_error", said.get("correctness_issue", said))))


@functools.cache
def _robust(name: str) -> Any:
    return _module(f"robust_kbench.sandbox.{name}", checkout("robust-kbench"))


def robust_kbench(one: subject.Subject) -> None:
    """`check_forward_correctness` of robust-kbench, and `check_backward_correctness` where the function has gradients:
    five draws each, in the first dtype, with its own tolerances. A task has one or several shapes; it is a round one
    here."""
    first = made(one, round_sizes(one), one.dtypes[0], 0)
    names = [name for name, value in first.items() if torch.is_tensor(value)]
    others = {name: value for name, value in first.items() if name not in names}
    backward = differentiable(one)

    def draw(requires: bool = False) -> list[torch.Tensor]:
        inputs = made(one, round_sizes(one), one.dtypes[0], int(torch.randint(2**31, ())))
        return [inputs[name].requires_grad_(requires and name in backward) for name in names]

    class Model(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor, fn: Callable) -> torch.Tensor:
            return fn(*tensors)

    def once(function: Callable, copied: bool = True) -> Callable:
        call = calling(function, names, others)
        return lambda *given: call(*(writes.copies(dict(enumerate(given))).values() if copied else given))

    same: dict[str, Any] = dict(get_inputs_fn=draw, input_settings={}, init_settings={})
    result = _robust("correct_forward_fn").check_forward_correctness(
        Model, once(one.reference), once(one.function), **same
    )
    if not result.correct:
        raise Found(f"forward: the largest difference is {result.max_diff:.2g}, allowed is {result.atol:g}")
    if backward:
        pair = types.SimpleNamespace(apply=once(one.function, copied=False))
        result = _robust("correct_backward_fn").check_backward_correctness(
            Model, once(one.reference, copied=False), pair, None, **same | dict(input_settings={"requires": True})
        )
        if not result.correct:
            raise Found(f"backward: the largest difference is {result.max_diff:.2g}, allowed is {result.atol:g}")


@functools.cache
def _gpu_mode() -> tuple[Any, Any]:
    """The evaluator and its `utils`. What it imports from a submission and a problem is put in afterwards."""
    folder = checkout("reference-kernels") / "problems/pmpp"
    submission, problem = types.ModuleType("submission"), types.ModuleType("reference")
    vars(submission)["custom_kernel"] = vars(problem)["check_implementation"] = vars(problem)["generate_input"] = None
    sys.modules |= {"submission": submission, "reference": problem}
    with on_path(folder):
        return importlib.import_module("eval"), importlib.import_module("utils")


def gpu_mode(one: subject.Subject) -> None:
    """`run_testing` of GPU MODE's evaluator, with `make_match_reference` at its problems' most usual tolerances, 1e-3.
    A problem lists several shapes; it is two round and two odd ones here, each with another seed. Forward. Where the
    reference writes to its arguments, the function gets copies, since the reference comes after it."""
    evaluator, utils = _gpu_mode()
    shown = made(one, round_sizes(one), one.dtypes[0], 0)
    kept = writes.copies(shown)
    one.reference(**shown)
    given = writes.copies if writes.changed(shown, kept) else lambda data: data

    def submission(data: dict[str, Any]) -> torch.Tensor:
        data = given(data)
        return in_one(one.function(**data), data)

    evaluator.custom_kernel = submission
    evaluator.generate_input = lambda seed, odd: made(
        one, odd_sizes(one) if odd else round_sizes(one), one.dtypes[0], seed
    )

    def reference(data: dict[str, Any]) -> torch.Tensor:
        data = writes.copies(data)
        return in_one(one.reference(**data), data)

    evaluator.check_implementation = utils.make_match_reference(reference, rtol=1e-3, atol=1e-3)
    said: dict[str, str] = {}
    tests = [evaluator.TestCase(spec="", args=dict(seed=seed, odd=seed % 2)) for seed in range(1, 5)]
    if evaluator.run_testing(types.SimpleNamespace(log=lambda key, value: said.setdefault(key, str(value))), tests):
        raise Found(next(value for key, value in said.items() if key.endswith(".error")))


@functools.cache
def _liger() -> Callable[..., None]:
    """`assert_verbose_allclose` of its tests, out of a module that imports `transformers` for other functions."""
    path = checkout("Liger-Kernel") / "test/utils.py"
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [each for each in tree.body if getattr(each, "name", "") == "assert_verbose_allclose"]
    space: dict[str, Any] = {"torch": torch}
    exec(compile(tree, str(path), "exec"), space)
    return space["assert_verbose_allclose"]


def liger(one: subject.Subject) -> None:
    """Liger-Kernel's `assert_verbose_allclose`, as its test of RMSNorm uses it: a round and an odd shape, float32 (1e-4
    and 1e-6) and bfloat16 (0.2 and 0.02), forward and backward."""
    for sizes in (round_sizes(one), odd_sizes(one)):
        for dtype, atol, rtol in (("float32", 1e-4, 1e-6), ("bfloat16", 2e-1, 2e-2)):
            for name, found, wanted, _ in called(one, sizes, dtype, 0, backward=True) if dtype in one.dtypes else ():
                if torch.is_tensor(found):
                    try:
                        _liger()(*_comparable(found, wanted), atol=atol, rtol=rtol)
                    except AssertionError as error:
                        raise Found(f"{name}: {error}") from None


def flash_attention(one: subject.Subject) -> None:
    """The rule of FlashAttention's tests, which is an `assert` in each of them: odd and round shapes, 16 bits, forward
    and backward; the largest error may be twice that of PyTorch in the same dtype, three times for gradients."""
    for place, sizes in enumerate((round_sizes(one), odd_sizes(one), dict.fromkeys(one.dims, 33))):
        for dtype in [each for each in ("float16", "bfloat16") if each in one.dtypes] or one.dtypes[:1]:
            for name, found, wanted, exact in called(one, sizes, dtype, place, backward=True):
                if _floating(found) and found.numel():
                    of = lambda value: (value.double() - exact.double()).abs().max().item()  # noqa: B023, E731
                    allowed = (3 if name.startswith("d") else 2) * of(wanted) + 1e-5
                    if not of(found) <= allowed:
                        raise Found(f"{name}: the largest error is {of(found):.2g}, allowed is {allowed:.2g}")


#: Runs in a process of its own: its interpreter and ours, which repairs Triton's, can't be in one.
_UNDER_VIZ = """
import importlib.util, pickle, sys
job, = sys.argv[1:]
file, name, calls = pickle.load(open(job, "rb"))
import torch
sys.path.insert(0, file.rpartition("/")[0])
spec = importlib.util.spec_from_file_location("judged", file)
module = importlib.util.module_from_spec(spec)
sys.modules["judged"] = module
spec.loader.exec_module(module)
for inputs, options, backward in calls:
    for each in backward:
        inputs[each].requires_grad_()
    out = getattr(module, name)(**inputs, **options)
    if backward:
        outs = [each for each in (out if isinstance(out, tuple) else (out,)) if each.requires_grad]
        torch.autograd.backward(outs, [torch.randn_like(each) for each in outs])
print("came to its end")
"""


def triton_viz(one: subject.Subject) -> None:
    """`triton-sanitizer` of triton-viz: a round and an odd shape, forward and backward. It looks for accesses outside
    of a tensor, and at no number."""
    backward = differentiable(one)
    calls = [
        (one.make(dict(Plan(one).chosen(sizes)), getattr(torch, one.dtypes[0]), 0), one.combinations()[0], backward)
        for sizes in (round_sizes(one), odd_sizes(one))
    ]
    with tempfile.TemporaryDirectory(prefix="academy-") as folder:
        script, job = Path(folder, "script.py"), Path(folder, "job")
        script.write_text(_UNDER_VIZ)
        job.write_bytes(pickle.dumps((str(Path(one.file).resolve()), one.name, calls)))
        start = (
            "import sys; sys.argv[0] = 'triton-sanitizer'; from triton_viz.wrapper import apply_sanitizer as go; go()"
        )
        ran = subprocess.run(
            [sys.executable, "-c", start, str(script), str(job)], capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(FOLDER / "site"), "TRITON_INTERPRET": "1"},
        )  # fmt: skip
    if "IMA Diagnostic Report" in ran.stdout + ran.stderr:
        raise Found("an illegal memory access")
    if "came to its end" not in ran.stdout:
        raise NoVerdict((ran.stderr or ran.stdout).strip().rpartition("\n")[2])


def _floating(value: Any) -> bool:
    return elements.floating(value) and value.element_size() > 1


def _comparable(found: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that can be subtracted: bits and codes in float32."""
    return (found, wanted) if _floating(found) else (found.float(), wanted.float())


def _at(name: str) -> str:
    return CHECKOUTS[name][1][:7]


JUDGES = [
    Judge("torch.testing.assert_close, one shape", assert_close, False, f"torch {torch.__version__}"),
    Judge("KernelBench", kernelbench, False, _at("KernelBench")),
    Judge("robust-kbench", robust_kbench, True, _at("robust-kbench")),
    Judge("GPU MODE, reference-kernels", gpu_mode, False, _at("reference-kernels")),
    Judge("Liger-Kernel, test style", liger, True, _at("Liger-Kernel")),
    Judge("FlashAttention, test style", flash_attention, True, "0251105"),
    Judge("triton-viz, sanitizer", triton_viz, True, _at("triton-viz")),
]
