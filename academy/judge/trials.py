"""Which inputs a function is tried with, in which order: plain data, so that a trial can be sent to a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from academy.judge.layouts import LAYOUTS
from academy.judge.subject import Subject

#: No multiple of a block; the rows come first.
ODD = (5, 37, 19, 11, 23, 13)
#: Longer than most blocks, and more than most numbers of rows that one program takes.
LONG, MANY = 1037, 131
#: group -> what it tries, for readers
GROUPS = {
    "sizes": "odd sizes, one element, no elements, whole blocks, more than one block",
    "options": "every combination of the other arguments",
    "layouts": "strided, transposed, sliced, shifted and expanded inputs; upstream gradients with zero and odd strides",
    "dtypes": "each dtype, also over long rows",
    "magnitudes": "values around ±10⁴, and around 10⁴ that differ by about 1",
    "lanes": "lanes behind a mask as NaN and as very large numbers",
    "programs": "programs in other orders; races, memory that nobody wrote, accesses outside of a tensor",
    "offsets": "rows 2³⁰ elements apart, whose offsets need 64 bits",
    "non-finite": "NaN and infinities in one input at a time",
    "repeats": "the same call twice gives the same bits",
    "derivatives": "second derivatives and forward mode raise or are right",
    "arguments": "arguments that don't fit are refused before anything is launched",
}
#: Groups that only the interpreter can show.
INTERPRETED = ("lanes", "programs")


@dataclass(frozen=True)
class Trial:
    """One call: its inputs, and what is asked of it.

    sizes: (dim, size) pairs. layout: of all tensors that are inputs. upstream: the gradient from above: random, sum
    (zero strides), transposed, strided. how: the procedure of `academy.judge.trying`, "compare" most of the time.
    detail: what that procedure needs to know.
    """

    group: str
    name: str
    sizes: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    layout: str = "nan_fenced"
    scale: float = 1.0
    offset: float = 0.0
    upstream: str = "random"
    how: str = "compare"
    detail: str = ""
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"

    def described(self) -> str:
        """`rows=5, cols=37, float32, strided, causal=True, seed 0`."""
        parts = [f"{dim}={size}" for dim, size in self.sizes]
        parts += [self.dtype, self.layout.replace("_", "-")] + [f"{name}={value!r}" for name, value in self.options]
        return ", ".join([*parts, f"seed {self.seed}"])


@dataclass
class Plan:
    """All trials of a subject."""

    subject: Subject
    seed: int = 0
    interpreted: bool = True
    differentiable: bool = True

    @property
    def dtype(self) -> str:
        """What most trials are made in."""
        return "float32" if "float32" in self.subject.dtypes else self.subject.dtypes[0]

    @property
    def narrow(self) -> str:
        """The dtype that takes least memory."""
        return next((dtype for dtype in ("float16", "bfloat16") if dtype in self.subject.dtypes), self.dtype)

    def trials(self, groups: list[str] | None = None) -> list[Trial]:
        made = [replace(trial, seed=self.seed) for group in groups or GROUPS for trial in self._group(group)]
        return list(dict.fromkeys(made))

    def _group(self, group: str) -> Iterator[Trial]:
        if group in INTERPRETED and not self.interpreted:
            return
        make = getattr(self, "_" + group.replace("-", "_"))
        first = tuple(self.subject.combinations()[0].items())
        for trial in make():
            yield replace(trial, group=group, options=trial.options or first)

    # ---------------------------------------------------------------- sizes
    def chosen(self, wanted: dict[str, int]) -> tuple[tuple[str, int], ...]:
        """These sizes, or the nearest that the subject allows."""
        found = []
        for dim, size in wanted.items():
            allowed = self.subject.sizes.get(dim)
            if allowed:
                size = min((one for one in allowed if one >= size), default=max(allowed))
            found.append((dim, size))
        return tuple(found)

    def odd(self, **other: int) -> tuple[tuple[str, int], ...]:
        numbers = [ODD[place % len(ODD)] for place in range(len(self.subject.dims))]
        return self.chosen(dict(zip(self.subject.dims, numbers)) | other)

    def small(self, **other: int) -> tuple[tuple[str, int], ...]:
        return self.chosen({dim: 3 for dim in self.subject.dims} | other)

    def trial(self, name: str, sizes: tuple[tuple[str, int], ...] | None = None, **options: Any) -> Trial:
        options.setdefault("dtype", self.dtype)
        return Trial("", name, self.odd() if sizes is None else sizes, **options)

    def longer(self, dim: str, size: int) -> tuple[tuple[str, int], ...]:
        """One long dim. Many rows of a matrix are short ones, but not so short that a sum over the rows has but three
        results: the error of three numbers is chance."""
        rows = len(self.subject.dims) == 2 and dim == self.subject.dims[0]
        return (self.odd if rows else self.small)(**{dim: size})

    def long(self) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
        """Sizes with one long dim each. The first of several is mostly that of programs, which take time."""
        for place, dim in enumerate(self.subject.dims):
            rows = len(self.subject.dims) > 1 and not place
            yield f"long {dim}", self.longer(dim, MANY if rows else LONG)

    # ---------------------------------------------------------------- groups
    def _sizes(self) -> Iterator[Trial]:
        dims = self.subject.dims
        yield self.trial("odd sizes")
        yield self.trial("one element", self.chosen(dict.fromkeys(dims, 1)))
        yield self.trial("whole blocks", self.chosen({dim: 64 if place else 16 for place, dim in enumerate(dims)}))
        for name, sizes in self.long():
            yield self.trial(name, sizes)
        for dim in dims:
            yield self.trial(f"129 {dim}", self.longer(dim, 129))
            yield self.trial(f"1 {dim}", self.odd(**{dim: 1}))
        for dim in dims:
            if dim not in self.subject.sizes:
                yield self.trial(f"0 {dim}", self.odd(**{dim: 0}))

    def _options(self) -> Iterator[Trial]:
        for combination in self.subject.combinations()[1:]:
            options = tuple(combination.items())
            name = ", ".join(f"{name}={value!r}" for name, value in options)
            yield self.trial(name, options=options)
            yield self.trial(f"{name}, strided", options=options, layout="strided", upstream="sum")

    def _layouts(self) -> Iterator[Trial]:
        for layout in [*LAYOUTS, "offset", "expanded"]:
            yield self.trial(f"{layout.replace('_', '-')} inputs", layout=layout)
        if self.differentiable:
            yield self.trial("upstream gradient of out.sum(), with zero strides", upstream="sum")
            yield self.trial("transposed upstream gradient", upstream="transposed")
            yield self.trial("strided upstream gradient", upstream="strided")

    def _dtypes(self) -> Iterator[Trial]:
        for dtype in self.subject.dtypes:
            if dtype != self.dtype:
                yield self.trial(dtype, dtype=dtype)
            for name, sizes in self.long():
                yield self.trial(f"{dtype}, {name}", sizes, dtype=dtype)

    def _magnitudes(self) -> Iterator[Trial]:
        yield self.trial("values around ±10⁴", scale=1e4)
        yield self.trial("values around 10⁴ that differ by about 1", offset=1e4)

    def _lanes(self) -> Iterator[Trial]:
        for value in ("1e30", "-1e30"):
            yield self.trial(f"masked lanes hold {value}", how="lanes", detail=value)

    def _programs(self) -> Iterator[Trial]:
        for order in ("reversed", "shuffled"):
            yield self.trial(f"programs {order}", self.odd(), how="order", detail=order)
            for name, sizes in self.long():
                yield self.trial(f"programs {order}, {name}", sizes, how="order", detail=order)
        yield self.trial("what each program touches", how="watch")
        for name, sizes in self.long():
            yield self.trial(f"what each program touches, {name}", sizes, how="watch")

    def _offsets(self) -> Iterator[Trial]:
        for name, tensor in self.subject.tensors.items():
            dim = tensor.dims[0] if tensor.dims else 0
            if len(tensor.dims) > 1 and isinstance(dim, tuple) and (not tensor.dtype or "float" in tensor.dtype):
                sizes = self.odd(**{dim[1]: 3})
                yield self.trial(
                    f"{name} with rows 2³⁰ elements apart", sizes, dtype=self.narrow, how="far", detail=name
                )

    def _non_finite(self) -> Iterator[Trial]:
        yield self.trial("NaN, inf and -inf in one input at a time", how="non_finite")

    def _repeats(self) -> Iterator[Trial]:
        yield self.trial("the same call twice", how="repeat")
        for name, sizes in self.long():
            yield self.trial(f"the same call twice, {name}", sizes, how="repeat")

    def _derivatives(self) -> Iterator[Trial]:
        if self.differentiable:
            yield self.trial("gradient penalty", how="penalty", detail="squares")
            yield self.trial("gradient penalty of a sum", how="penalty", detail="sum")
        yield self.trial("forward mode", how="forward_mode")

    def _arguments(self) -> Iterator[Trial]:
        for name, tensor in self.subject.tensors.items():
            for axis in range(len(tensor.dims)):
                yield self.trial(f"{name} too long in dim {axis}", how="misfit", detail=f"{name} {axis}")
            yield self.trial(f"{name} is a list", how="misfit", detail=f"{name} list")


#: What a mutant is tried with: quick, and each for another kind of mistake.
def quick(plan: Plan) -> list[Trial]:
    found = [plan.trial("odd sizes"), plan.trial("strided inputs", layout="strided", upstream="strided")]
    found += [plan.trial(name, sizes) for name, sizes in plan.long()]
    found += [plan.trial("transposed inputs", layout="transposed", upstream="transposed")]
    found += [plan.trial("bfloat16", dtype="bfloat16")] if "bfloat16" in plan.subject.dtypes else []
    found += [plan.trial("values around 10⁴", offset=1e4)]
    found += [plan.trial("masked lanes hold -1e30", how="lanes", detail="-1e30")] if plan.interpreted else []
    first, *others = plan.subject.combinations()
    found = [replace(one, group="mutants", options=tuple(first.items())) for one in found]
    found += [replace(found[0], options=tuple(one.items())) for one in others]
    return [replace(one, seed=plan.seed) for one in found]
