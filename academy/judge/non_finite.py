"""A NaN or an infinity somewhere in one input: what may come out, and where.

`walk` calls a function with such inputs and compares each result and each gradient with references in plain PyTorch,
in the inputs' dtype and in float64. There may be several references, for what the formula leaves open: PyTorch's dense
products spread 0 · NaN where a reference that leaves masked terms out doesn't.

- **Never hidden.** An element that is NaN or infinite in every reference isn't finite here.
- **Never spread.** An element that is finite in every reference is finite here. If in float64 its bits are those that
  it has without the bad number, it has the bits here, too, that the function gives without it.
- **As PyTorch.** In the result, whether it is NaN, +∞ or -∞ is one of the references' answers. In a gradient, that
  holds for a NaN in the input; from an infinity may come a NaN for an infinity and the other way round, because ∞ - ∞
  depends on how a formula is written. Where both are infinite, the sign is theirs.

Nothing here knows a kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from academy.judge import elements, steps, verdict

BAD = {"NaN": float("nan"), "-NaN": float("-nan"), "+inf": float("inf"), "-inf": -float("inf")}
#: The gradient that comes from above is an input too.
UPSTREAM = "upstream"
KINDS = ("finite", "NaN", "+inf", "-inf")


@dataclass(frozen=True)
class Trial:
    """`value` (a key of BAD) at these places of the input `name`, counted as in `flatten()`."""

    name: str
    value: str
    places: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.value} in {self.name} at {', '.join(map(str, self.places))}"

    def spoil(self, tensor: torch.Tensor, number: float | None = None) -> torch.Tensor:
        """With the value, or another number, at the places."""
        bad = tensor.detach().clone(memory_format=torch.contiguous_format)
        bad.view(-1)[list(self.places)] = BAD[self.value] if number is None else number
        return torch.empty_strided(bad.shape, tensor.stride(), dtype=bad.dtype, device=bad.device).copy_(bad)


def trials(inputs: dict[str, torch.Tensor], seed: int, places: int = 2) -> Iterator[Trial]:
    """For each floating-point input and each value: `places` single places and once several (a NaN with its sign set:
    the latter). The first and the last element are among the places more often than chance has it."""
    draw = random.Random(seed)
    for name, tensor in inputs.items():
        if not elements.floating(tensor) or not tensor.numel():
            continue
        count = tensor.numel()
        for value in BAD:
            for _ in range(places if value != "-NaN" else 0):
                yield Trial(name, value, (draw.choice([0, count - 1, *(draw.randrange(count) for _ in range(4))]),))
            yield Trial(name, value, tuple(sorted({draw.randrange(count) for _ in range(3)})))


def kinds(values: torch.Tensor) -> torch.Tensor:
    """Per element an index into KINDS."""
    values = values if elements.floating(values) else values.float()
    return values.isnan().int() + 2 * values.isposinf().int() + 3 * values.isneginf().int()


def results(function: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor | None) -> dict:
    """`out`, and with an upstream gradient also `d<name>` for each floating-point input: zeros if the result doesn't
    depend on it."""
    if upstream is None:
        return verdict.run(function, inputs, wanted=()).outputs
    done = verdict.run(function, inputs, lambda outs: [upstream.expand(out.shape) for out in outs])
    zeros = {name: torch.zeros_like(value) for name, value in inputs.items() if elements.floating(value)}
    return done.outputs | {f"d{name}": done.gradients.get(name, zero) for name, zero in zeros.items()}


def walk(
    function: Callable,
    references: list[Callable],
    inputs: dict[str, torch.Tensor],
    upstream: torch.Tensor | None,
    tried: list[Trial],
    infinity_or_nan: bool = False,
    same_bits: bool = True,
    within_rows: bool = False,
    times_zero: bool = False,
) -> Iterator[tuple[Trial, str]]:
    """(trial, what is wrong) for every result that breaks a rule.

    Args:
        function, references: called with the inputs by name; the references in their dtype and in float64.
        inputs: finite; the trials say what is put where.
        upstream: of the shape of the result, or None for a function without gradients.
        tried: of `trials({**inputs, "upstream": upstream}, seed)`.
        infinity_or_nan: in the result, too, an infinity may become a NaN or the other way round.
        same_bits: the function promises the same bits in every call. If not, an element that mustn't depend on the bad
            number may still differ by its rounding.
        within_rows: in a row of a matrix where the bad number shows in a reference, it may show in other elements, too.
        times_zero: what the function gives without the bad number is right, too, where no finite number in its place
            changes what the references give. There they have multiplied it by zero.
    """
    clean = results(function, inputs, upstream)
    exact = [_wide(each, inputs, upstream, results(each, inputs, upstream)) for each in references]
    for trial in tried:
        given, above = dict(inputs), upstream
        if trial.name == UPSTREAM:
            above = trial.spoil(upstream)
        else:
            given[trial.name] = trial.spoil(inputs[trial.name])
        ours = results(function, given, above)
        small = [results(reference, given, above) for reference in references]
        large = [_wide(reference, given, above, own) for reference, own in zip(references, small)]
        for name, value in ours.items():
            loose = "inf" in trial.value and (infinity_or_nan or name != "out")
            of = lambda side: [result[name] for result in side]  # noqa: B023, E731
            told = clean[name], of(small), of(large), of(exact), loose, same_bits, within_rows
            message = wrong(value, *told)
            if message and times_zero:
                message = wrong(value, *told, untouched(references, inputs, upstream, trial, name, of(exact)))
            if message:
                yield trial, f"{name}: {message}"


def untouched(
    references: list[Callable],
    inputs: dict[str, torch.Tensor],
    upstream: torch.Tensor | None,
    trial: Trial,
    name: str,
    exact: list[torch.Tensor],
) -> torch.Tensor:
    """Which elements of a result hang on none of the numbers that the trial changes: large ones of both signs, and
    zero, leave them as they are, in float64. exact: the references' without a change."""
    same = torch.ones_like(exact[0], dtype=torch.bool)
    for number in (1e3, -1e3, 0.0):
        given, above = dict(inputs), upstream
        if trial.name == UPSTREAM:
            above = trial.spoil(upstream, number)
        else:
            given[trial.name] = trial.spoil(inputs[trial.name], number)
        for reference, before in zip(references, exact):
            own = results(reference, given, above)
            same &= elements.same(_wide(reference, given, above, own)[name], before)
    return same


def _wide(reference: Callable, inputs: dict[str, torch.Tensor], upstream: torch.Tensor | None, own: dict) -> dict:
    """The reference's results in float64, as far as it has any. own: in its own dtype."""
    return elements.in_float64_or_as(own, lambda: results(reference, elements.in_float64(inputs), upstream))


def wrong(
    ours,
    clean,
    small: list,
    large: list,
    exact: list,
    loose: bool,
    same_bits: bool = True,
    within_rows: bool = False,
    apart: torch.Tensor | None = None,
) -> str | None:
    """What is wrong with one result, in a sentence. `clean` is the function's result without the bad number; `small`
    and `large` are the references' in both dtypes, `exact` in float64 without the bad number. `loose`: a NaN is as good
    as an infinity. `apart`: elements that don't hang on the bad number, and may be as they are without it."""
    got, allowed = kinds(ours), torch.stack([kinds(result) for result in (*small, *large)])
    right = got == allowed
    if loose:  # but an infinity isn't the other one
        right |= got.bool() & allowed.bool() & ((got == 1) | (allowed == 1))
    off = ~right.any(0)
    if apart is not None:
        off &= ~(apart & ((ours == clean) | ((ours - clean).abs() <= 2 * torch.finfo(clean.dtype).eps * clean.abs())))
    spread = torch.zeros_like(off)
    if within_rows and off.dim() > 1:
        touched = torch.stack([kinds(bad) != kinds(good) for bad, good in zip(large, exact)]).any(0)
        spread = got.bool() & ~allowed.bool().any(0) & touched.any(-1, keepdim=True)
    if within_rows and off.dim() > 1 and not elements.floating(ours):  # codes of a row share a scale: one shows it
        spread |= allowed.bool().any(0) & ~got.bool() & got.bool().any(-1, keepdim=True)
    off &= ~spread
    if bool(off.any()):
        place = tuple(off.nonzero()[0].tolist())
        hidden = " hidden" * bool(((got == 0) & off).any())
        wanted = " or ".join(sorted({KINDS[kind] for kind in allowed[(slice(None), *place)].tolist()}))
        return f"{int(off.sum())} of {off.numel()}{hidden}, first {list(place)}: {KINDS[got[place]]}, not {wanted}"
    untouched = torch.stack([bad == good for bad, good in zip(large, exact)]).all(0) & ~allowed.any(0) & ~spread
    if same_bits or not clean.is_floating_point():
        moved = untouched & (ours != clean)
    else:
        rounding = 2 * torch.finfo(clean.dtype).eps
        moved = untouched & ((ours - clean).abs() > rounding * clean.abs().clamp_min(clean.abs().mean()))
    if bool(moved.any()):
        place = tuple(moved.nonzero()[0].tolist())
        return (
            f"{int(moved.sum())} of {moved.numel()} depend on it that must not, first {list(place)}: "
            f"{ours[place]:.6g} instead of {clean[place]:.6g}"
        )
    return None


def decomposed(function: Callable) -> Callable:
    """The same function of PyTorch, step by step."""

    def call(*args, **kwargs):
        with steps.Steps():
            return function(*args, **kwargs)

    return call
