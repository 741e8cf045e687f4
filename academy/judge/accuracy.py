"""How accurate is accurate enough: one rule for every kernel and every dtype, in tests and in the scripts.

The reference is computed in float64 from the very same (already rounded) inputs. Two numbers measure a result against
it: the relative RMS error ‖actual − reference‖ / ‖reference‖, and the largest error over the largest reference value.
Neither may be more than **twice** that of PyTorch's own operation in the kernel's dtype. Where PyTorch happens to be
exact, a floor still allows ordinary rounding: 4 eps for the RMS, 8 eps for the largest. Infinities and NaNs must be at
the same positions as PyTorch's. Integers, such as the bytes of a code, must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

RMS_FLOOR = 4
MAX_FLOOR = 8
#: A result of at most so many elements may be wrong by chance.
FEW = 8


@dataclass(frozen=True)
class Errors:
    """Errors of a result against float64, both relative (dimensionless)."""

    rms: float
    largest: float


def errors(actual: torch.Tensor, reference: torch.Tensor, where: torch.Tensor | None = None) -> Errors:
    """Relative RMS and largest error of `actual` (any dtype) against `reference` (float64), over the elements `where`.

    If the reference is all zeros, the errors are absolute.
    """
    actual, reference = actual.detach().double(), reference.detach().double()
    if where is not None:
        actual, reference = actual[where], reference[where]
    if reference.numel() == 0:
        return Errors(0.0, 0.0)
    difference = (actual - reference).abs()
    scale = reference.abs().max().item()
    norm = (reference / scale).norm().item() * scale if scale else 0.0
    return Errors(difference.norm().item() / (norm or 1.0), difference.max().item() / (scale or 1.0))


def problem(
    actual: torch.Tensor,
    pytorch: torch.Tensor,
    reference: torch.Tensor,
    factor: int = 2,
    depth: int = 1,
    eps: float = 0.0,
) -> str | None:
    """What is wrong with `actual`, in a sentence, or None.

    Args:
        actual: the kernel's result.
        pytorch: PyTorch's own result in the kernel's dtype, from the same inputs.
        reference: the same in float64.
        factor: how many times PyTorch's error is allowed; 3 for attention with soft-capped scores.
        depth: how many layers of a model the result has come through. Their rounding errors are independent, so the
            floors grow with its square root.
        eps: relative precision of the sums, where the hardware's is coarser than that of the dtype: 2⁻¹³ for products
            of eight-bit floats on Hopper, whose accumulator keeps 14 bits.
    """
    times = {2: "twice", 3: "three times"}[factor]
    if actual.shape != reference.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(reference.shape)}"
    if actual.dtype != pytorch.dtype:
        return f"dtype {actual.dtype} instead of {pytorch.dtype}"
    if not actual.is_floating_point():
        wrong = (actual != pytorch).flatten().nonzero().flatten()
        if not len(wrong):
            return None
        first = wrong[0].item()
        ours, theirs = actual.flatten()[first].item(), pytorch.flatten()[first].item()
        return f"{len(wrong)} of {actual.numel()} integers differ; first: element {first}: {ours} instead of {theirs}"
    finite = pytorch.isfinite()
    if not torch.equal(_kinds(actual), _kinds(pytorch)):
        wrong = (_kinds(actual) != _kinds(pytorch)).flatten().nonzero().flatten()
        first = wrong[0].item()
        ours, theirs = actual.flatten()[first].item(), pytorch.flatten()[first].item()
        return (
            f"{len(wrong)} of {actual.numel()} elements are finite, infinite or NaN where PyTorch's are not; first: "
            f"element {first}: {ours:.4g} instead of {theirs:.4g}"
        )
    eps = max(eps, torch.finfo(actual.dtype).eps) * depth**0.5
    ours, theirs = errors(actual, reference, finite), errors(pytorch, reference, finite)
    if ours.rms > max(factor * theirs.rms, RMS_FLOOR * eps):
        return f"RMS error {ours.rms:.3g} is more than {times} PyTorch's {theirs.rms:.3g} (floor {RMS_FLOOR * eps:.3g})"
    if ours.largest > max(factor * theirs.largest, MAX_FLOOR * eps):
        return (
            f"largest error {ours.largest:.3g} is more than {times} PyTorch's {theirs.largest:.3g} "
            f"(floor {MAX_FLOOR * eps:.3g})"
        )
    return None


def _kinds(values: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 inf, 3 -inf, per element."""
    return values.isnan().int() + 2 * values.isposinf().int() + 3 * values.isneginf().int()


def check(
    name: str, actual: torch.Tensor, pytorch: torch.Tensor, reference: torch.Tensor, factor: int = 2, **options
) -> None:
    """Raise `AssertionError` naming `name` when `problem` finds one. options: its `depth` and `eps`."""
    __tracebackhide__ = True  # pytest shows the line that calls this
    message = problem(actual, pytorch, reference, factor, **options)
    if message:
        raise AssertionError(f"{name}: {message}")


@dataclass
class Report:
    """The table that a kernel script prints, and the exit status that goes with it."""

    rows: list[tuple[str, str, str, Errors, Errors, str | None]] = field(default_factory=list)

    def compare(
        self,
        what: str,
        case: str,
        actual: torch.Tensor,
        pytorch: torch.Tensor,
        reference: torch.Tensor,
        eps: float = 0.0,
        again: Callable[[], Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = tuple,
    ) -> None:
        """Add a row: `what` (output or gradient), `case` (shape and options), judged by the rule above.

        again: the three results of other inputs. How far off a few numbers are is luck, and so is how far off PyTorch's
            are: if they break the rule, they are judged together with these.
        """
        if actual.numel() <= FEW and problem(actual, pytorch, reference, eps=eps):
            draws = [(actual, pytorch, reference), *again()]
            actual, pytorch, reference = map(torch.stack, zip(*draws))
        finite = pytorch.isfinite()
        self.rows.append(
            (
                what,
                case,
                str(actual.dtype).removeprefix("torch."),
                errors(actual, reference, finite),
                errors(pytorch, reference, finite),
                problem(actual, pytorch, reference, eps=eps),
            )
        )

    @property
    def exit_status(self) -> int:
        """0 if every row is right, else 1 (also when nothing was compared)."""
        return 0 if self.rows and not any(row[-1] for row in self.rows) else 1

    def print(self) -> int:
        """Print the table, then what is wrong, one line each, and return the exit status."""
        from rich.console import Console
        from rich.table import Table

        table = Table(title="Relative RMS error against float64", title_justify="left")
        for heading in ("", "case", "dtype"):
            table.add_column(heading)
        for heading in ("ours", "PyTorch"):
            table.add_column(heading, justify="right")
        table.add_column("")
        wrong = []
        for what, case, dtype, ours, theirs, message in self.rows:
            verdict = "[red]wrong" if message else "[green]right"
            table.add_row(what, case, dtype, f"{ours.rms:.1e}", f"{theirs.rms:.1e}", verdict)
            wrong += [f"{what}, {case}, {dtype}: {message}"] if message else []
        Console().print(table)
        print(*wrong, f"{len(self.rows)} comparisons, {len(wrong) or 'none'} wrong", sep="\n")
        return self.exit_status
