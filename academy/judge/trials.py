"""Which inputs a function is tried with, in which order: plain data, so that a trial can be sent to a process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from math import prod
from typing import Any

from academy.command import grids
from academy.judge import layouts, special
from academy.judge.subject import ANY, Subject, Tensor

#: No multiple of a block; the rows come first.
ODD = (5, 37, 19, 11, 23, 13)
#: Longer than most blocks, and more than most numbers of rows that one program takes: one past 128.
LONG, MANY = 1037, 129
#: A multiple of 16, which a launch is specialised for, and of no larger power of two, which blocks are.
SIXTEENS = 48
#: More than a fixed number of programs may take: 100 of 1024 elements, for example.
MANY_ELEMENTS = 110_000
#: Truth values that are all true: a count of them in 8 bits, or in a dtype of few digits, is too small.
COUNTED = 4_111
#: Of inputs that a function of the reader's makes: what hangs on each other has rare cases, which no size brings about.
MORE_DRAWS = 12
#: More than axis 1 of a grid takes; and the sizes beside it that are tried, for a tensor of more than 2³¹ elements.
LONGEST = (70_001, 9_001)
OTHERS = tuple(2 * int(1.5 * 1.03**power) + 1 for power in range(340))
#: group -> what it tries, for readers
GROUPS = {
    "sizes": "odd sizes, one element, none, whole blocks, multiples of 16, equal sizes, more than 10⁵ elements",
    "options": "every combination of the other arguments",
    "configurations": "each configuration of an autotuned kernel, and the call that tunes it",
    "ranks": "a leading dim less, one more, two more: refused, or right",
    "layouts": "strided, transposed, sliced inputs and upstream gradients; each dim farther apart, or expanded",
    "dtypes": "each dtype, also over long rows; one input in another dtype than the rest",
    "values": "rows of zeros, one-hot and constant rows, ties, ±0, falling by decades; one input all 0, or all true",
    "magnitudes": "blocks of one size, from 2⁻³ to 2⁶; around ±10⁴, around 10⁴ and -10⁴, differing by 1; below 10⁻⁶",
    "lanes": "lanes behind a mask as NaN and as very large numbers",
    "programs": "other orders; races, of threads too; memory that nobody wrote; accesses outside of a tensor",
    "offsets": "rows 2³⁰ elements apart, in an input or the upstream gradient; more than 2³¹ elements; large grids",
    "non-finite": "NaN of both signs and infinities in one input at a time: they show where they do in your reference",
    "compiles": "what is launched, compiled for an A100, an H100 and an RTX 5090, which need not be there",
    "repeats": "the same call twice gives the same bits",
    "batch": "a row alone, at another place, with other neighbours, among many: the same bits, where they are promised",
    "calls": "one tensor as two arguments, each set of inputs that require gradients, a second backward pass",
    "derivatives": "second derivatives and forward mode raise or are right",
    "arguments": "arguments that don't fit are refused before anything is launched",
    "gsan": "on a card, with Triton 3.9: races between programs, in global memory",
    "consan": "the same: asynchronous copies and products inside of a program, in shared memory",
    "fpsan": "the same: other numbers of warps and stages give the same result, where sums have no order",
    "memcheck": "on a card, by compute-sanitizer: accesses outside of an allocation, or misaligned",
    "initcheck": "the same: reads of global memory that nobody wrote",
    "racecheck": "the same: races of the threads of a program, in shared memory",
    "synccheck": "the same: barriers that not all threads reach, or that are used in a wrong way",
    "exact": "without rounding: the same function as the reference, or where it isn't; only where it is asked for",
}
#: Groups that only the interpreter can show.
INTERPRETED = ("lanes", "programs", "compiles", "exact")
#: Groups that only a card can show.
ON_A_CARD = ("gsan", "consan", "fpsan", "memcheck", "initcheck", "racecheck", "synccheck")
#: Groups that ask about something else than how much there is.
OF_FEW = ("layouts", "magnitudes", "non-finite", "calls")
#: Groups that are tried where they are named: an approximation that was meant is no mistake.
NAMED = ("exact",)
USUAL = [group for group in GROUPS if group not in NAMED]


@dataclass(frozen=True)
class Trial:
    """One call: its inputs, and what is asked of it.

    sizes: (dim, size) pairs. rank: of the first tensor, if it isn't the one that INPUTS says. layout: of all tensors
    that are inputs, see `layouts.laid_out`. values: a kind of `academy.judge.special`, or the name of a tensor that
    is all zeros. sums: "exact", in any order, of halves; "growing", of positive numbers. upstream: the gradient from
    above: random, sum (zero strides), zero, or a layout. how: the procedure of `trying` or `calls`, "compare" most of
    the time. detail: what that procedure needs to know.
    """

    group: str
    name: str
    sizes: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    rank: int = 0
    layout: str = "nan_fenced"
    values: str = ""
    sums: str = ""
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
        parts += [f"rank {self.rank}"] if self.rank else []
        parts += [self.dtype, self.layout.replace("_", "-")] + [f"{name}={value!r}" for name, value in self.options]
        return ", ".join([*parts, f"seed {self.seed}"])


@dataclass
class Plan:
    """All trials of a subject."""

    subject: Subject
    seed: int = 0
    interpreted: bool = True
    differentiable: bool = True
    #: The most dims of an input, and of a result.
    ranks: tuple[int, int] = (2, 2)
    #: Those of autotuned kernels, in words. All trials but one group use the first.
    configurations: list[str] = field(default_factory=list)
    #: Dims of rows that the reference computes independently of each other, and another that is long, or "".
    batched: list[tuple[str, str]] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        """What most trials are made in."""
        return "float32" if "float32" in self.subject.dtypes else self.subject.dtypes[0]

    @property
    def narrow(self) -> str:
        """The dtype that takes least memory."""
        return next((dtype for dtype in ("float16", "bfloat16") if dtype in self.subject.dtypes), self.dtype)

    @property
    def coarse(self) -> str:
        """The dtype with fewest digits."""
        return "bfloat16" if "bfloat16" in self.subject.dtypes else self.narrow

    def trials(self, groups: list[str] | None = None) -> list[Trial]:
        made = [
            replace(trial, seed=self.seed + trial.seed) for group in groups or USUAL for trial in self._group(group)
        ]
        return list(dict.fromkeys(made))

    def _group(self, group: str) -> Iterator[Trial]:
        if group in (ON_A_CARD if self.interpreted else INTERPRETED):
            return
        make = self._on_a_card if group in ON_A_CARD else getattr(self, "_" + group.replace("-", "_"))
        first = tuple(self.subject.combinations()[0].items())
        for trial in make():
            sizes = self.few() if group in OF_FEW and trial.sizes == self.odd() else trial.sizes
            yield replace(trial, group=group, sizes=sizes, options=trial.options or first)

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

    def few(self, **other: int) -> tuple[tuple[str, int], ...]:
        """As `odd`, but of the first of three dims two: programs that differ in nothing but where they begin."""
        first, tensors = self.subject.dims[:1], self.subject.tensors.values()
        made = not tensors and len(self.subject.dims) > 2 and self.ranks[0] > 2  # by a function, which says no dims
        alike = made or any(len(tensor.dims) > 2 and tensor.names()[:1] == first for tensor in tensors)
        return self.odd(**(dict.fromkeys(first, 2) if alike else {}) | other)

    def declared(self) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
        """Where dims are confined to sizes, those that `odd` leaves: one of each dim after the other."""
        for number in range(max(map(len, self.subject.sizes.values()), default=0)):
            chosen = {dim: allowed[number % len(allowed)] for dim, allowed in self.subject.sizes.items()}
            if (sizes := self.odd(**chosen)) != self.odd():
                yield ", ".join(f"{size} {dim}" for dim, size in chosen.items()), sizes

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

    def beyond_int32(self) -> Iterator[tuple[tuple[str, int], ...]]:
        """Sizes with which a tensor of several dims has between 2³¹ and 2³² elements; each dim is the longest in turn.
        No dim has more than about 10⁵: vectors stay below."""
        tensors = list(self.subject.tensors.values())
        for pair in combinations(self.subject.dims, 2):  # the result may have them, or what a function makes
            if not any(set(pair) <= set(tensor.names()) for tensor in tensors):
                dims = tuple((1, dim, 1) for dim in pair)
                tensors += [Tensor(dims)] if self.subject.tensors else [Tensor(dims), Tensor((2, *dims))]
        for tensor in tensors:
            names = list(dict.fromkeys(tensor.names()))
            for longest in names if len(names) > 1 else ():
                tried = (
                    self.small(**dict.fromkeys(names, other) | {longest: long}) for long in LONGEST for other in OTHERS
                )
                yield from islice((one for one in tried if 5 << 29 <= prod(tensor.shape(dict(one))) < 2**32), 1)

    # ---------------------------------------------------------------- groups
    def _sizes(self) -> Iterator[Trial]:
        dims = self.subject.dims
        yield self.trial("odd sizes")
        yield self.trial("one element", self.chosen(dict.fromkeys(dims, 1)))
        yield self.trial("whole blocks", self.chosen({dim: 64 if place else 16 for place, dim in enumerate(dims)}))
        equal = {dim: SIXTEENS if dim in dims[-2:] else 16 for dim in dims}
        yield self.trial("equal multiples of 16", self.chosen(equal))
        for name, sizes in self.long():
            yield self.trial(name, sizes)
        for place, dim in enumerate(dims):
            for size in (129, 512) if place or len(dims) == 1 else ():  # so many rows are MANY
                yield self.trial(f"{size} {dim}", self.longer(dim, size))
            yield self.trial(f"1 {dim}", self.odd(**{dim: 1}))
        counted = {tensor.below for tensor in self.subject.tensors.values()}  # without elements there is no index
        for dim in dims:
            if dim not in self.subject.sizes and dim not in counted:
                yield self.trial(f"0 {dim}", self.odd(**{dim: 0}))
        for name, sizes in self.declared():
            yield self.trial(name, sizes)
        for draw in range(MORE_DRAWS if self.subject.maker else 0):
            yield self.trial(f"other inputs of these sizes, draw {draw + 1}", seed=draw + 1)
        yield from self._many_elements("", sums="exact")

    def _many_elements(self, prefix: str, **options: Any) -> Iterator[Trial]:
        """The largest tensor has so many. In the interpreter in the last dim, where a program is mostly as long as it
        likes; on a GPU in the first: many programs cost nothing there, and so long a block may compile for minutes."""
        tensors = list(self.subject.tensors.values())
        dim = tensors[0].dims[-1 if self.interpreted else 0] if tensors and tensors[0].dims else 0
        if isinstance(dim, tuple) and dim[1] not in self.subject.sizes:
            sizes = lambda size: self.small(**{dim[1]: size})  # noqa: E731
            largest = lambda size: max(prod(each.shape(dict(sizes(size)))) for each in tensors)  # noqa: E731
            size = bisect_right(range(MANY_ELEMENTS), MANY_ELEMENTS, key=largest) - 1
            yield self.trial(f"{prefix}more than 10⁵ elements", sizes(size), how="many", **options)

    def _exact(self) -> Iterator[Trial]:
        """No size that a prime of `academy.exact` divides, and none beyond 22: a softmax of n columns has a denominator
        that is n modulo each of them. Few rows: half of all numbers have no root modulo a prime, and a sum over rows is
        decided where each row's has one."""
        dims = self.subject.dims
        several = (2, 19, 17, 10, 13) if len(dims) > 1 else (19,)
        sizes = self.chosen({dim: several[place % 5] for place, dim in enumerate(dims)})
        for options in self.subject.combinations():
            said = ", ".join(f"{name}={value!r}" for name, value in options.items())
            yield self.trial(said or "as it is", sizes, options=tuple(options.items()), how="exactly")

    def _ranks(self) -> Iterator[Trial]:
        """Where INPUTS says "...", these are trials like others."""
        declared = ANY in self.subject.dims
        for rank in self.subject.ranks:
            trial = self.trial(f"rank {rank}", self.small(), rank=rank, how="compare" if declared else "rank")
            yield trial
            if self.differentiable and rank > 2:
                for layout in ["sliced", *(f"apart {axis}" for axis in range(rank))]:
                    name = f"{trial.name}, {layouts.in_words('upstream gradient', layout)}"
                    yield replace(trial, name=name, upstream=layout)

    def _options(self) -> Iterator[Trial]:
        """The first combination, with which all else is tried, is called before the others: what is kept of it from
        call to call is wrong for them."""
        all_of_them = self.subject.combinations()
        for number, combination in enumerate(all_of_them if len(all_of_them) > 1 else ()):
            options = tuple(combination.items())
            name = ", ".join(f"{name}={value!r}" for name, value in options)
            yield self.trial(name, options=options)
            if not number:
                continue
            values = "" if self.subject.maker else special.RUNS  # what a function makes may have bounds of its own
            yield self.trial(f"{name}, strided", options=options, layout="strided", upstream="sum", values=values)
            for said, sizes in self.declared():  # a block that is full at one size is not at another
                yield self.trial(f"{name}, {said}", sizes, options=options)
            if self.differentiable:
                yield self.trial(f"{name}, without a gradient", options=options, how="detached")

    def _configurations(self) -> Iterator[Trial]:
        for number, name in list(enumerate(self.configurations))[1:]:
            for combination in self.subject.combinations():
                options = tuple(combination.items())
                yield self.trial(name, options=options, how="configuration", detail=str(number))
            for long, sizes in self.long():
                yield self.trial(f"{name}, {long}", sizes, how="configuration", detail=str(number))
        if self.configurations:
            yield self.trial("the call that tunes", how="tuned")

    def _layouts(self) -> Iterator[Trial]:
        inputs, results = self.ranks
        along = lambda kind, rank: [f"{kind} {axis}" for axis in range(rank)]  # noqa: E731
        # Rows are repeated, not columns: those that a function makes may depend on each other, and of a row of one
        # number softmax and norms leave nothing but rounding.
        repeated = along("expanded", 1 if self.subject.maker else max(inputs - 1, 1))
        for layout in [*layouts.LAYOUTS, "offset", *along("apart", inputs), *repeated]:
            yield self.trial(layouts.in_words("inputs", layout), layout=layout)
        if self.differentiable:
            yield self.trial("upstream gradient of out.sum(), with zero strides", upstream="sum")
            yield self.trial("upstream gradient of zeros", upstream="zero")
            kept = along("apart", results) + along("expanded", results - 1)
            for layout in ["offset", "transposed", "strided", "sliced", *kept]:
                yield self.trial(layouts.in_words("upstream gradient", layout), upstream=layout)

    def _dtypes(self) -> Iterator[Trial]:
        """A sum of many numbers stops growing if it is kept in 16 bits. Many rows take time, so the first of them is
        large: such a sum loses all others. Along a row, what is lost shows once the large number is gone again."""
        for dtype in self.subject.dtypes:
            yield self.trial(dtype, dtype=dtype)
            long = zip(self.subject.dims, self.long()) if dtype != self.dtype else ()  # those are sizes like others
            for dim, (name, sizes) in long:
                kinds = [""] * (dtype != self.narrow or dtype == self.coarse)
                kinds += [special.TAKEN_AWAY] * (dtype == self.narrow)
                kinds = [*special.OUTWEIGHED.get(dtype, kinds)] if dict(sizes)[dim] == MANY else kinds
                for kind in kinds:
                    values = dict(values=kind, sums="growing") if kind else {}
                    yield self.trial(", ".join(filter(None, (dtype, name, kind))), sizes, dtype=dtype, **values)
            if dtype == self.coarse:
                yield from self._many_elements(f"{dtype}, ", dtype=dtype, sums="growing")
        free = [name for name, tensor in self.subject.tensors.items() if not tensor.dtype]
        if len(free) > 1 and self.narrow != self.dtype:
            for name in free:
                said = f"{name} in {self.narrow}, the rest in {self.dtype}"
                yield self.trial(said, how="mixed", detail=f"{name} {self.narrow}")

    def _values(self) -> Iterator[Trial]:
        for kind in [*special.KINDS, special.FALLING]:
            tall = self.chosen(dict.fromkeys(self.subject.dims, 9) | dict.fromkeys(self.subject.dims[:1], 65))
            yield self.trial(kind, tall if kind == special.MOSTLY_ZEROS else None, values=kind)
        for name, tensor in self.subject.tensors.items():
            if not tensor.dtype or "float" in tensor.dtype:
                yield self.trial(f"{name} all zeros", values=name)
            elif tensor.dtype == "bool" and tensor.names():
                many = self.small(**{tensor.names()[-1]: COUNTED})
                yield self.trial(f"{name} all true", many, values=f"{name} True")
                yield self.trial(f"{name} all false", values=f"{name} False")

    def _magnitudes(self) -> Iterator[Trial]:
        first, others = self.subject.dims[:1], self.subject.dims[1:]
        sizes = self.longer(first[0], 65 if others else COUNTED) if first else None
        yield self.trial(special.RUNS, sizes, values=special.RUNS)
        yield self.trial("values around ±10⁴", scale=1e4)
        yield self.trial("values around 10⁴ that differ by about 1", offset=1e4)
        yield self.trial("values around -10⁴ that differ by about 1", offset=-1e4)
        if self.dtype != "float16":
            yield self.trial("values below 10⁻⁶", scale=1e-8)
        if "float16" in self.subject.dtypes:
            yield self.trial("float16 below its normal numbers", scale=1e-5, dtype="float16")

    def _lanes(self) -> Iterator[Trial]:
        for value in ("1e30", "-1e30"):
            yield self.trial(f"masked lanes hold {value}", how="lanes", detail=value)

    def _programs(self) -> Iterator[Trial]:
        yield self.trial("what each program touches", how="watch")
        for name, sizes in self.long():
            yield self.trial(f"what each program touches, {name}", sizes, how="watch")
        for order in ("reversed", "shuffled"):
            yield self.trial(f"programs {order}", self.odd(), how="order", detail=order)
            for name, sizes in self.long():
                yield self.trial(f"programs {order}, {name}", sizes, how="order", detail=order)

    def _on_a_card(self) -> Iterator[Trial]:
        """Each tensor is a memory of its own: fences would hide from memcheck what lies outside."""
        told: dict[str, Any] = dict(layout="contiguous", how="sanitized")
        yield self.trial("odd sizes", **told)
        for combination in self.subject.combinations()[1:]:
            name = ", ".join(f"{name}={value!r}" for name, value in combination.items())
            yield self.trial(name, options=tuple(combination.items()), **told)
        for name, sizes in self.long():
            yield self.trial(name, sizes, **told)

    def _offsets(self) -> Iterator[Trial]:
        if self.interpreted:
            for longest in self.subject.dims:
                sizes = self.small(**{longest: LONGEST[0]})
                if dict(sizes)[longest] > grids.MOST[1]:
                    yield self.trial(f"{LONGEST[0]:,} {longest}", sizes, dtype=self.narrow, how="unbacked")
            for sizes in self.beyond_int32():
                long = " × ".join(f"{size:,} {dim}" for dim, size in sizes if size > 3)
                yield self.trial(f"more than 2³¹ elements: {long}", sizes, dtype=self.narrow, how="unbacked")
        for name, tensor in self.subject.tensors.items():
            dim = tensor.dims[0] if tensor.dims else 0
            if len(tensor.dims) > 1 and isinstance(dim, tuple) and (not tensor.dtype or "float" in tensor.dtype):
                sizes = self.odd(**{dim[1]: 3})
                yield self.trial(
                    f"{name} with rows 2³⁰ elements apart", sizes, dtype=self.narrow, how="far", detail=name
                )
        if self.differentiable and self.ranks[1] > 1 and self.subject.dims:
            sizes = self.odd(**{self.subject.dims[0]: 3})
            name = "upstream gradient with rows 2³⁰ elements apart"
            yield self.trial(name, sizes, dtype=self.narrow, how="far", detail="upstream")

    def _non_finite(self) -> Iterator[Trial]:
        yield self.trial("NaN, inf and -inf in one input at a time", how="non_finite")

    def _compiles(self) -> Iterator[Trial]:
        for dtype in self.subject.dtypes:
            yield self.trial(f"{dtype} inputs", dtype=dtype, how="compiles")
        for combination in self.subject.combinations()[1:]:
            name = ", ".join(f"{name}={value!r}" for name, value in combination.items())
            yield self.trial(name, options=tuple(combination.items()), how="compiles")

    def _repeats(self) -> Iterator[Trial]:
        """The interpreter has one order of programs: there a second call differs only by what the first has left."""
        yield self.trial("the same call twice", how="repeat")
        for name, sizes in self.long() if not self.interpreted else ():
            yield self.trial(f"the same call twice, {name}", sizes, how="repeat")

    def _batch(self) -> Iterator[Trial]:
        for dim, other in self.batched:
            if other:
                sizes = self.few(**{dim: dict(self.odd())[dim], other: LONG})
                yield self.trial(f"rows of {dim}, long {other}", sizes, how="batch", detail=dim)
            else:
                yield self.trial(f"rows of {dim}", how="batch", detail=dim)

    def _calls(self) -> Iterator[Trial]:
        tensors = self.subject.tensors
        for one, other in combinations(tensors, 2):
            if tensors[one] == tensors[other] and not tensors[one].below:
                yield self.trial(f"one tensor as {one} and {other}", how="aliased", detail=f"{one} {other}")
        if self.differentiable:
            yield self.trial("each set of inputs that require gradients", how="subsets")
            yield self.trial("a second backward pass", how="backward_twice")
        yield self.trial("the same tensors with other values", how="rewritten")
        yield self.trial("random state and memory afterwards", how="afterwards")

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
    found += [plan.trial("values around 10⁴", offset=1e4), plan.trial("ties", values="ties, and zeros of both signs")]
    found += [plan.trial("masked lanes hold -1e30", how="lanes", detail="-1e30")] if plan.interpreted else []
    first, *others = plan.subject.combinations()
    found = [replace(one, group="mutants", options=tuple(first.items())) for one in found]
    found += [replace(found[0], options=tuple(one.items())) for one in others]
    return [replace(one, seed=plan.seed) for one in found]
