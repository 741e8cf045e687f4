"""Make one trial of a subject, in this process: `attempt`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.autograd import forward_ad

from academy.runtime import device
from academy.command import trouble
from academy.command.grids import GridTooLarge
from academy.compiler import tuning
from academy.judge import (
    accuracy,
    batch,
    calls,
    causes,
    compiled,
    configurations,
    elements,
    exactly,
    fences,
    interpreted,
    layouts,
    non_finite,
    sanitizers,
    special,
    steps,
    unbacked,
    verdict,
    writes,
)
from academy.judge.findings import Remark, Skipped, Wrong
from academy.judge.subject import Subject
from academy.judge.trials import Plan, Trial
from academy.traces.observer import OutOfBounds, jitted_files

_PROCEDURES = calls.PROCEDURES | configurations.PROCEDURES | exactly.PROCEDURES | batch.PROCEDURES
#: A result that may be wrong by chance only is judged over so many draws of the inputs.
DRAWS = 16
#: So many times the error of a reference, or of rounding its steps, where that leaves no digit.
NO_DIGIT = 16
#: A result, PyTorch's, and the one in float64.
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
#: Of a tensor, what is compared by itself; the rest is 0.
Part = Callable[[torch.Tensor], torch.Tensor]
#: What to do about a derivative of a derivative; and where PyTorch's own decorator is there already.
_TWICE = "raise an error there (academy.runtime.autograd.once_differentiable does), or make it right"
_ONCE = (
    "PyTorch's once_differentiable is passed by where gradients are asked for by name, as here, or the upstream one is "
    "a constant (academy.runtime.autograd.once_differentiable raises there, too)"
)
_OWN = "the second derivative that its backward pass applies is another than the reference's"
_FORWARD = ": raise an error if an input carries a tangent, or make it right"
STATES = ("right", "refused", "remark", "skipped", "wrong", "died")


@dataclass
class Outcome:
    """What became of a trial. state: one of STATES; refused: the function says in words that it doesn't take such
    inputs. message: empty where it is right. line: of the file, where the trial ended at one."""

    trial: Trial
    state: str
    message: str = ""
    line: int | None = None
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        return self.state in ("wrong", "died")

    def as_json(self, why: causes.Cause | None) -> dict[str, Any]:
        """why: its likely cause, if it is wrong."""
        trial = asdict(self.trial) | {"sizes": dict(self.trial.sizes), "options": dict(self.trial.options)}
        trial["options"] = {name: repr(value) for name, value in trial["options"].items()}
        return {**asdict(self), "trial": trial, **({"cause": why.sentence, "page": why.page} if why else {})}


def attempt(subject: Subject, trial: Trial) -> Outcome:
    """Make the trial. Whatever the function raises becomes an outcome."""
    start = time.perf_counter()
    state, message, line = "right", "", None
    try:
        Attempt(subject, trial).make()
    except Wrong as found:
        state, message, line = "wrong", str(found), found.line
    except Remark as found:
        state, message = "remark", str(found)
    except Skipped as found:
        state, message = "skipped", str(found)
    except Exception as error:
        trouble.let_through(error)
        state = "refused" if is_refusal(error) else "wrong"
        message, line = _in_words(error, file_of(subject))
    return Outcome(trial, state, " ".join(message.split()), line, round(time.perf_counter() - start, 3))


def call_of(subject: Subject, trial: Trial) -> None:
    """The call of a trial alone, forward and backward, and nothing compared."""
    attempt = Attempt(subject, trial)
    attempt.results(subject.function, attempt.inputs())


def file_of(subject: Subject) -> str:
    try:
        return inspect.getfile(inspect.unwrap(subject.function))
    except TypeError:
        return subject.file


def _text(subject: Subject) -> str:
    return "".join(linecache.getlines(file_of(subject)))


def is_refusal(error: BaseException) -> bool:
    """Whether Python code (and no kernel, no library) raised it on purpose: `raise ValueError(…)` or an `assert`."""
    if not isinstance(error, (ValueError, TypeError, NotImplementedError, AssertionError)):
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    library = any(f"/site-packages/{name}/" in frame.filename for name in ("torch", "triton", "numpy"))
    return not library and linecache.getline(frame.filename, frame.lineno or 0).strip().startswith(("raise", "assert"))


def _in_words(error: BaseException, file: str) -> tuple[str, int | None]:
    """What went wrong first, without what the interpreter puts around it, and the line of `file` where it did."""
    first, line = trouble.first_cause(error, file)
    if getattr(first, "file", "") == file:
        line = getattr(first, "line", None)
    return f"{type(first).__name__}: {first}", line


class Attempt:
    def __init__(self, subject: Subject, trial: Trial):
        self.subject, self.trial = subject, trial
        self.sizes, self.options = dict(trial.sizes), dict(trial.options)
        self.dtype = getattr(torch, trial.dtype)
        #: How often results were compared, and what is compared, where it isn't judged yet.
        self.compared = 0
        self.drawn: dict[tuple[int, str], list[Three]] | None = None
        self.wide = False
        #: Arguments that the last call changed and gave back -> the result that each was.
        self.handed_back: dict[str, str] = {}
        #: Results of a function that are its arguments, changed or not.
        self.echoed: dict[Callable, set[str]] = {}
        #: And those that lie in the memory of some, in any dtype -> their names.
        self.lent: dict[Callable, dict[str, set[str]]] = {}

    def varied(self, **changes: Any) -> Attempt:
        """The same but for these fields of the trial."""
        return Attempt(self.subject, replace(self.trial, **changes))

    def make(self, how: str = "") -> None:
        how, procedures = how or self.trial.how, _PROCEDURES
        if how in procedures:
            procedures[how](self)
        else:
            getattr(self, "_" + how)()

    # ---------------------------------------------------------------- inputs
    def inputs(self) -> dict[str, Any]:
        trial = self.trial
        subject = self.subject.with_rank(trial.rank) if trial.rank else self.subject
        made = subject.make(self.sizes, self.dtype, trial.seed, trial.scale, trial.offset)
        return {
            name: self.changed(name, value, place) if torch.is_tensor(value) else value
            for place, (name, value) in enumerate(made.items())
        }

    def changed(self, name: str, value: torch.Tensor, place: int) -> torch.Tensor:
        """With the trial's special values, in its layout. Integers may be sorted offsets, so none is repeated."""
        floating, layout = elements.floating(value), self.trial.layout
        ascends = bool(self.subject.maker) and floating and value.shape[-1:] > (2,) and bool((value.diff() >= 0).all())
        if floating and self.trial.sums == "growing" and bool((value > 0).any()):  # what may not be positive stays so
            value = value.abs()
        if floating and self.trial.sums == "exact" and not bool((value > 0).all()):
            value = value.floor() + 0.5
        if floating and self.trial.values and not (place and self.trial.values == special.TAKEN_AWAY):
            kind = self.trial.values in special.ALL
            value = special.like(value, self.trial.values) if kind else value * (name != self.trial.values)
            value = value.sort().values if ascends else value  # bounds, which a function may take for granted
        if value.dtype == torch.bool and self.trial.values in (f"{name} True", f"{name} False"):
            return torch.full_like(value, self.trial.values.endswith("True"))
        if value.dtype == torch.bool or not value.dim() or not floating and layout.startswith("expanded"):
            return value
        return layouts.laid_out(value, layout, place)

    def upstream(self, out: torch.Tensor) -> torch.Tensor:
        kind = self.trial.upstream
        if kind == "sum":
            return verdict.ones([out])[0]
        if kind == "zero":
            return torch.zeros_like(out)
        generator = torch.Generator().manual_seed(self.trial.seed + 1)
        values = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        values = values.abs() if self.trial.sums == "growing" else values
        if self.trial.values in special.WHOLE and self.trial.values != special.TAKEN_AWAY:
            values = special.like(values, self.trial.values)
        values = values.to(out.device, out.dtype)
        return layouts.laid_out(values, kind) if kind != "random" else values

    def call(self, function: Callable, **inputs: Any) -> Any:
        return function(**inputs, **self.options)

    # ---------------------------------------------------------------- running
    def results(
        self,
        function: Callable,
        inputs: dict[str, Any],
        upstreams: list[torch.Tensor] | None = None,
        wanted: tuple[str, ...] | None = None,
    ) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """Outputs and gradients by name, and the upstream gradients: those given, else new ones. wanted: the inputs
        that require gradients; None: all that can."""
        given = writes.copies(inputs)
        above = upstreams if upstreams is not None else lambda outs: [self.upstream(out) for out in outs]
        done = verdict.run(functools.partial(self.call, function), given, above, self.takers(inputs, wanted))
        found = done.outputs | {f"the gradient of {name}": grad for name, grad in done.gradients.items()}
        tensors = {name: value for name, value in given.items() if torch.is_tensor(value)}
        both = [(n, out, name, one) for n, out in done.outputs.items() for name, one in tensors.items()]
        self.echoed[function] = {n for n, out, _, one in both if writes.is_argument(out, one)}
        lent = self.lent.setdefault(function, {})
        for n, out, name, one in both:
            if writes.shared(out, one):
                lent.setdefault(n, set()).add(name)
        handed_back = self.with_writes(found, writes.changed(given, inputs))
        if function is self.subject.function:
            self.handed_back = handed_back
        return found, done.upstreams

    def with_writes(self, found: dict[str, Any], changed: dict[str, torch.Tensor]) -> dict[str, str]:
        """Changed arguments become results. One that is handed back is no second result: which was it?"""
        handed_back = {}
        for name, value in changed.items():
            for result in [each for each, out in found.items() if writes.is_argument(out, value)]:
                handed_back[name] = result
                del found[result]
            found[name + writes.AFTERWARDS] = value
        return handed_back

    @property
    def differentiable(self) -> bool:
        """Whether the function gives gradients, found out once."""
        known = vars(self.subject)
        if "differentiable" not in known:
            known["differentiable"] = gradient_mode(self.subject, self.trial) == "gradients"
        return known["differentiable"]

    def takers(self, inputs: dict[str, Any], wanted: Collection[str] | None = None) -> tuple[str, ...]:
        """The inputs, of those that are `wanted`, for which the function gives a gradient."""
        if not self.differentiable:
            return ()
        names = [n for n, v in inputs.items() if elements.floating(v) and n not in refusing(self.subject)]
        return tuple(names if wanted is None else (n for n in names if n in wanted))

    def ours(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """The function's results, with fences around what it allocates."""
        with fences.Fences() as fenced:
            found, upstreams = self.results(self.subject.function, inputs)
            synchronize()
        if count := fenced.broken():
            if device.INTERPRET:  # which names the line
                self._watch()
            raise Wrong(f"{count} elements outside of a tensor that it allocated were written to: is a mask missing?")
        return found, upstreams

    def written_in_one_place(self, inputs: dict[str, Any]) -> bool:
        """Whether the reference writes to an argument that is expanded here, to which PyTorch copies nothing."""
        usual = self.varied(layout="contiguous")
        written = usual.expected(usual.inputs(), None)[0]
        return any(
            f"{name}{writes.AFTERWARDS}" in written and 0 in value.stride()
            for name, value in inputs.items()
            if torch.is_tensor(value)
        )

    def works_in_place(self, name: str) -> bool:
        """Whether the function writes to an argument and hands it back, whatever its layout, as those of PyTorch do
        whose names end in `_`. (Where a gradient is asked for, that would change what others have saved.)"""
        known = vars(self.subject).setdefault("in_place", {})
        if name not in known:
            known[name] = not self.differentiable
            for layout in layouts.LAYOUTS if known[name] else ():
                other = self.varied(layout=layout)
                with contextlib.suppress(Exception):  # it may refuse a layout
                    other.results(self.subject.function, other.inputs())
                    known[name] = known[name] and name in other.handed_back
        return known[name]

    def compare(
        self,
        found: dict[str, Any],
        inputs: dict[str, Any],
        upstreams: list[torch.Tensor] | None,
        *,
        wanted: tuple[str, ...] | None = None,
        whole: bool = True,
        dtypes: Collection[torch.dtype] = (),
        eps: float = 0.0,
    ) -> None:
        """With the reference's results. Raises Wrong.

        Args:
            wanted: as `results` takes it.
            whole: nothing that the reference gives may be missing.
            dtypes: those that a result may have, whatever the reference's has.
            eps: of the coarsest dtype among the inputs, if they have several.
        """
        pytorch, exact = self.expected(inputs, upstreams, wanted)
        if self.subject.codes or any(map(elements.eight_bits, inputs.values())):
            eps = max(eps, device.eps_of_eight_bit_sums())
        self.compared += 1
        found = dict(found)
        for name, result in self.handed_back.items():
            key = name + writes.AFTERWARDS
            if key in found and key not in pytorch and self.works_in_place(name):
                found[result] = found.pop(key)
                if any(size > 1 and not step for size, step in zip(inputs[name].shape, inputs[name].stride())):
                    raise Skipped(f"{name} shows one element in several places, so nothing can be written to it")
        writes.compare(found, pytorch, exact, inputs)
        lost, infinite = "", set()
        if self.trial.values:
            usual = self.varied(values="")
            results = usual.expected(usual.inputs(), None, wanted)[1]
            infinite = {
                name for name, value in results.items() if elements.floating(value) and bool(value.isinf().any())
            }
        ours, theirs = (self.echoed.get(each, set()) for each in (self.subject.function, self.subject.reference))
        if missing := [name for name in pytorch if name not in found and whole and name not in theirs]:
            raise Wrong(f"it gives {len(found)} results, and {missing[0]} is missing")
        lent = self.lent.get(self.subject.function, {})
        for name in (lent.keys() & pytorch.keys()) - self.lent.get(self.subject.reference, {}).keys():
            if not any(each + writes.AFTERWARDS in found or self.works_in_place(each) for each in lent[name]):
                raise Wrong(f"{name} lies in the memory of {min(lent[name])}, and the reference's doesn't: whoever "
                            "writes to one changes the other. Return a copy")  # fmt: skip
        for name, value in found.items():
            if name not in pytorch:
                if torch.is_tensor(value) and bool((value != 0).any()) and name not in ours:
                    raise Wrong(f"it gives {name}, and the reference gives none")
                continue
            if not torch.is_tensor(value) or not torch.is_tensor(pytorch[name]):
                if value != pytorch[name]:
                    raise Wrong(f"{name} is {elements.shown(value)}, should be {elements.shown(pytorch[name])}")
                continue
            three = self.comparable(value, pytorch[name], exact[name], dtypes=dtypes, infinite=name in infinite)
            if self.drawn is not None:
                three = self.throughout(name, three, inputs, upstreams, wanted) if self.wide else three
                self.drawn.setdefault((self.compared, name), []).append(three)
                continue
            for part in self.parts(three):
                given, peer, precise = map(part, three)
                message = elements.difference(name, given, peer, precise, eps=eps)
                by_chance = bool(message) and elements.perhaps_by_chance(given, peer, precise)
                wide = self.throughout(name, three, inputs, upstreams, wanted) if message else three
                known, precise = wide is not three, part(wide[2])
                if known and self.near_float64(name, given, peer, precise, eps, by_chance):
                    continue
                # beside a reference that computes in float32, that of a few numbers seems to have no error
                few = known and given.numel() <= accuracy.FEW and elements.perhaps_by_chance(given, peer, precise)
                if message and not ((by_chance or few) and self.unlucky(name, part, few and not by_chance)):
                    equal = self.trial.values or self.trial.layout.startswith("expanded")  # which repeats what there is
                    near = self.trial.offset or self.trial.values in special.WHOLE or equal and by_chance
                    if not (near or self.trial.scale > 1) or not self.as_if_rounded(
                        name, part, three, inputs, upstreams, digits=bool(near)
                    ):
                        raise Wrong(message)
                    lost = lost or message
        if lost:
            raise Remark(f"digits are lost that PyTorch keeps, no more than by rounding its steps: {lost}")

    def comparable(self, *three: torch.Tensor, dtypes: Collection[torch.dtype], infinite: bool) -> Three:
        """A result, PyTorch's and the one in float64, as they are compared. infinite: infinities are results like
        others."""
        given, pytorch, precise = (one.detach().cpu() for one in three)
        if given.dtype in dtypes:
            pytorch = pytorch.to(given.dtype)
        if elements.floating(given) and given.shape == pytorch.shape:
            # where a step of the reference overflows in this dtype, or divides by 0, a number is held to float64 alone
            odd = ~pytorch.isfinite() & precise.isfinite() & given.isfinite()
            pytorch = torch.where(odd, precise.to(pytorch.dtype), pytorch)
            if self.trial.offset or self.trial.scale > 1:  # too large for it: ∞ - ∞ depends on how it is written
                given = torch.where(given.isfinite() | pytorch.isfinite() | precise.isfinite(), given, pytorch)
        if self.trial.values and elements.floating(given) and given.shape == pytorch.shape:
            # log(0), 0/0: of special values the reference says nothing where it has no number for them
            known = ~pytorch.isnan() & ~precise.isnan() if infinite else pytorch.isfinite() & precise.isfinite()
            given, precise = torch.where(known, given, pytorch), torch.where(known, precise, pytorch.double())
        return given, pytorch, precise

    def parts(self, three: Three) -> list[Part]:
        """What the rule is asked of by itself: the whole result; where numbers fall off, or a large one is gone again,
        thirds of its last two dims, so that the large ones don't count for the small ones."""
        shape = three[0].shape
        apart = self.trial.values in (special.FALLING, special.TAKEN_AWAY)
        if not apart or shape != three[2].shape or not elements.floating(three[0]):
            return [lambda whole: whole]
        last = torch.zeros(shape[-2:], dtype=torch.int64)
        for axis, size in enumerate(last.shape):
            third = torch.arange(size) * 3 // max(size, 1)
            last = 3 * last + (third if axis + 1 == last.dim() else third[:, None])
        return [functools.partial(torch.where, last == number, other=0) for number in last.unique()]

    def throughout(
        self,
        name: str,
        three: Three,
        inputs: dict[str, Any],
        upstreams: list[torch.Tensor] | None,
        wanted: tuple[str, ...] | None,
    ) -> Three:
        """A result, PyTorch's, and that of a reference that computes in float64 throughout. One that says `x.float()`
        computes in float32 whatever it is given: its own error, twice of which is allowed, seems to be none."""
        if elements.floating(three[0]):
            with contextlib.suppress(Exception), steps.in_float64_throughout():  # of bits, for example, it can't
                exact, _ = self.results(self.subject.reference, elements.in_float64(inputs), upstreams, wanted)
                precise = exact[name].detach().cpu()
                return *three[:2], torch.where(precise.isfinite(), precise, three[2])
        return three

    def near_float64(
        self, name: str, found: torch.Tensor, peer: torch.Tensor, precise: torch.Tensor, eps: float, by_chance: bool
    ) -> bool:
        """Whether a result that is a little too far off, or is 0 but for rounding, keeps the rule beside that."""
        with contextlib.suppress(Exception):
            ours, theirs = (accuracy.errors(one, precise, peer.isfinite()) for one in (found, peer))
            no_digit = theirs.rms >= 1 or not bool(precise.any())
            if no_digit and torch.equal(non_finite.kinds(found), non_finite.kinds(peer)):
                return ours.rms <= NO_DIGIT * theirs.rms and ours.largest <= NO_DIGIT * theirs.largest
            return by_chance and elements.difference(name, found, peer, precise, eps=eps) is None
        return False

    def unlucky(self, name: str, part: Part, wide: bool) -> bool:
        """Whether a result that is a little too far off keeps the rule over several draws of the inputs.

        The error of a single number is a matter of luck, and so is PyTorch's, which it is held against; that of a mean,
        which all numbers of a row share, is no less so.

        wide: beside a reference that computes in float64 throughout.
        """
        drawn: dict[tuple[int, str], list[Three]] = {}
        for number in range(DRAWS):
            again = self.varied(seed=self.trial.seed + number)
            again.drawn, again.wide = drawn, wide
            again.make()
        draws = list(zip(*drawn.get((self.compared, name), [])))
        return bool(draws) and elements.difference(name, *(part(torch.stack(each)) for each in draws)) is None

    def as_if_rounded(
        self,
        name: str,
        part: Part,
        three: Three,
        inputs: dict[str, Any],
        upstreams: list[torch.Tensor] | None,
        digits: bool,
    ) -> bool:
        """Whether a result is as far off as the exact one is after the last bits of the inputs, and of each step of the
        reference, have changed. Twice as much is allowed, of several such changes; more where they leave no digit: how
        large what is left may be is less sure than how many digits are. A NaN or an infinity is no lost digit.

        digits: if not, that is asked only where they leave none, as of a gradient that is 0 but for rounding.
        """
        found, peer, precise = map(part, three)
        if not torch.equal(non_finite.kinds(found), non_finite.kinds(peer)):
            return False
        ours, allowed = accuracy.errors(found, precise, peer.isfinite()), []
        dtypes = [value.dtype for value in inputs.values() if elements.floating(value)]
        dtypes = [torch.float32] if self.trial.values == special.TAKEN_AWAY else dtypes  # whose digits are asked for
        eps = max(torch.finfo(dtype).eps for dtype in dtypes)
        for number in range(DRAWS // 2):
            with steps.Steps(eps, self.trial.seed + number):
                moved = {name: value * 1 for name, value in elements.in_float64(inputs).items()}
                results, _ = self.results(self.subject.reference, moved, upstreams)
            allowed.append(accuracy.errors(part(results[name].cpu()), precise, peer.isfinite()))
        rms, largest = (max(getattr(each, which) for each in allowed) for which in ("rms", "largest"))
        times = NO_DIGIT if rms >= 1 else 2 if digits else 0
        return ours.rms <= times * rms and ours.largest <= times * largest

    def expected(
        self,
        inputs: dict[str, Any],
        upstreams: list[torch.Tensor] | None,
        wanted: tuple[str, ...] | None = None,
    ) -> tuple[dict, dict]:
        """Of the reference, in the inputs' dtype and in float64."""
        try:
            pytorch, _ = self.results(self.subject.reference, inputs, upstreams, wanted)
            exact = elements.in_float64_or_as(
                pytorch,
                lambda: self.results(self.subject.reference, elements.in_float64(inputs), upstreams, wanted)[0],
            )
        except Exception as error:
            raise Skipped(f"the reference takes no such inputs: {type(error).__name__}: {error}") from error
        return pytorch, exact

    def near(self, what: str, found: torch.Tensor, wanted: torch.Tensor, advice: str = "") -> None:
        """Within a thousandth (a hundredth in 16 bits): a lost term is larger, and nothing finer is asked for."""
        limit = 1e-3 if found.dtype == torch.float32 else 2e-2
        error = (found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30)
        if not error <= limit:
            much = f"{float(error):.2g} of" if error < 10 else "more than ten times"
            advice = advice or f": {elements.farthest('its element ', found.detach(), wanted.detach())}"
            raise Wrong(f"{what} is wrong in silence, by {much} its norm{advice}")

    # ---------------------------------------------------------------- procedures
    def _compare(self) -> None:
        """What the function gives is what the reference gives."""
        inputs = self.inputs()
        if empty := 0 in self.sizes.values():  # an index into nothing would be the function's end, but not its fault
            self.expected({n: v.cpu() if torch.is_tensor(v) else v for n, v in inputs.items()}, None)
        try:
            found, upstreams = self.ours(inputs)
        except Wrong:
            raise
        except Exception as error:
            if "written-to tensor refers to a single memory location" in str(error) and self.written_in_one_place(
                inputs
            ):
                raise Skipped("the argument that it writes to shows one element in several places") from error
            if not empty or not self.differentiable or is_refusal(error):
                raise
            message, _ = _in_words(error, "")  # nobody is handed a wrong number
            raise Remark(f"it fails where the reference gives empty results: {message}") from error
        # beside so large a number a sum in float32 has not all its digits either
        # and the sum of 10⁵ others has not those of PyTorch, which adds in float64 on a CPU
        growing = self.trial.sums == "growing"
        self.compare(found, inputs, upstreams, eps=torch.finfo(self.dtype).eps if growing else 0.0)

    def _many(self) -> None:
        """As `_compare`; in float32 with ±0.5, ±1.5, …, whose sum is the same in any order: that so long a sum has an
        error is no fault. A block as long as such a row need not fit a GPU, and then it says so itself."""
        compared = replace(self.trial, how="compare")
        try:
            try:
                Attempt(self.subject, compared).make()
            except Wrong:
                if compared.sums != "exact":
                    raise
                Attempt(self.subject, replace(compared, sums="")).make()
        except tuning.DOES_NOT_FIT as error:
            raise Remark(f"a block for so many elements doesn't fit this GPU: {type(error).__name__}") from error

    def _lanes(self) -> None:
        with interpreted.masked_lanes(float(self.trial.detail)):
            inputs = self.inputs()
            found, upstreams = self.ours(inputs)
        self.compare(found, inputs, upstreams)

    def _order(self) -> None:
        inputs = self.inputs()
        first, upstreams = self.results(self.subject.function, inputs)
        with interpreted.programs_in_order(self.trial.detail) as used:
            found, _ = self.results(self.subject.function, inputs, upstreams or None)
        try:
            self.compare(found, inputs, upstreams)
        except Wrong as wrong:
            self.compare(first, inputs, upstreams)  # wrong in order too: no race
            raise Wrong(f"with the programs {self.trial.detail}, which a GPU may do, {wrong}") from None
        for name, value in first.items():
            if torch.is_tensor(value) and not used["atomic"]:
                place = elements.first(~elements.same(value, found[name]))
                if place is not None:
                    message = elements.at(name, place, found[name], value)
                    raise Wrong(f"the programs {self.trial.detail} give other bits: {message}. Do two of them race?")

    def _watch(self) -> None:
        inputs = self.inputs()
        found = interpreted.findings(self._files(), lambda: self.results(self.subject.function, inputs)[0])
        own = file_of(self.subject)
        for finding in sorted(found, key=lambda one: (one.harmless, one.file != own)):
            place = f" ({finding.file}:{finding.line})"
            if finding.harmless:
                raise Remark(f"{finding.message}{place}, but both store the same number")
            if finding.file == own:
                raise Wrong(finding.message, finding.line)
            raise Wrong(finding.message + place)

    def _far(self) -> None:
        inputs, upstreams = self.inputs(), None
        far, name = dict(inputs), self.trial.detail
        near = self.results(self.subject.function, inputs)[1] if name == "upstream" else []
        try:
            if near:
                upstreams = [fences.far_apart(each) if each.dim() > 1 else each for each in near]
            else:
                far[name] = fences.far_apart(inputs[name])
        except (OSError, MemoryError, RuntimeError) as error:
            raise Skipped(f"there is no room for it here: {error}") from error
        found, upstreams = self.results(self.subject.function, far, upstreams)
        synchronize()
        if name in far and not bool(elements.same(far[name], inputs[name]).all()):  # too large for a copy
            self.handed_back |= self.with_writes(found, {name: far[name]})
        self.compare(found, inputs, upstreams)

    def _sanitized(self) -> None:
        sanitizers.check(self.trial.group, self.subject.origin, file_of(self.subject), [self.trial])

    def _compiles(self) -> None:
        inputs = self.inputs()
        compiled.check(self.subject.function, lambda: self.results(self.subject.function, inputs))

    def _unbacked(self) -> None:
        known = vars(self.subject)
        if "differentiable" not in known:  # a call, so of a size that there is memory for
            trial = replace(self.trial, sizes=Plan(self.subject).odd())
            known["differentiable"] = gradient_mode(self.subject, trial) == "gradients"
        with unbacked.launches() as seen:
            try:
                inputs = self.subject.make(self.sizes, self.dtype, self.trial.seed)
                for name, tensor in self.subject.tensors.items():
                    if tensor.below and torch.is_tensor(inputs[name]):
                        below = int(tensor.below) if tensor.below.isdigit() else self.sizes.get(tensor.below, 1)
                        seen.hold(inputs[name], below - 1)
                self.results(self.subject.function, inputs)
            except GridTooLarge:
                raise
            except Exception as error:
                if not seen.wrapped and not is_refusal(error):
                    raise Skipped(f"sizes alone are not enough for it: {type(error).__name__}: {error}") from error
                if not seen.wrapped:
                    raise
        for each in sorted(seen.wrapped, key=lambda each: each.tile):
            here = each.file == file_of(self.subject)
            if each.tile:
                raise Remark(f"{each.message} (line {each.line})" if here else each.message)
            raise Wrong(each.message, each.line if here else None)
        if seen.untried or not seen.launches:
            raise Skipped(f"sizes alone are not enough for it: {seen.untried or 'it launches no kernel'}")

    def _repeat(self) -> None:
        inputs = self.inputs()
        first, upstreams = self.results(self.subject.function, inputs)
        for _ in range(1 if device.INTERPRET else 99):
            again, _ = self.results(self.subject.function, inputs, upstreams or None)
            for name, value in first.items():
                if torch.is_tensor(value):
                    place = elements.first(~elements.same(value, again[name]))
                    if place is not None:
                        message = elements.at(name, place, again[name].cpu(), value.cpu())
                        raise Wrong(f"the second call gives other bits: {message}")

    def _non_finite(self) -> None:
        inputs = {n: v for n, v in self.inputs().items() if torch.is_tensor(v)}
        if len(inputs) < len(self.inputs()):
            raise Skipped("some arguments are no tensors")

        def single(function: Callable) -> Callable[..., torch.Tensor]:
            def call(**given: Any) -> torch.Tensor:
                own = given if self.differentiable else writes.copies(given)
                attached = {n: v.detach() if n in refusing(self.subject) else v for n, v in own.items()}
                result = self.call(function, **attached)
                return _first_tensor(result if self.differentiable else (result, *writes.changed(own, given).values()))

            return call

        out = single(self.subject.function)(**inputs)
        upstream = self.upstream(out) if self.differentiable else None
        spoilt = inputs if upstream is None else {**inputs, "upstream": upstream}
        tried = list(non_finite.trials(spoilt, self.trial.seed))
        ours, theirs = single(self.subject.function), single(self.subject.reference)
        remark = ""
        for trial, message in non_finite.walk(ours, [theirs], inputs, upstream, tried):
            again = functools.partial(
                non_finite.walk,
                ours,
                inputs=inputs,
                upstream=upstream,
                tried=[trial],
                infinity_or_nan=True,
                within_rows=True,
                times_zero=True,
            )
            if any(again([theirs])):
                if any(again([theirs, non_finite.decomposed(theirs)])):
                    raise Wrong(f"{trial}: {message}")
                message += ". Put together from sums and products, the reference gives that, too: it is the odd one"
            elif " hidden" in message:
                message += ". No finite number in its place changes that: the reference multiplies it by zero"
            remark = remark or f"{trial}: {message}"
        if remark:
            raise Remark(remark)

    def _penalty(self) -> None:
        loss = torch.sum if self.trial.detail == "sum" else lambda out: (out * out).sum()
        inputs = self.inputs()
        try:
            found, on_purpose = self._penalised(self.subject.function, inputs, loss)
        except RuntimeError:
            return
        wanted, _ = self._penalised(self.subject.reference, inputs, loss)
        advice = f": {_OWN if on_purpose else _ONCE if 'once_differentiable' in _text(self.subject) else _TWICE}"
        for name, gradient in found.items():
            try:
                self.near(f"the gradient of {name} through a gradient penalty", gradient, wanted[name], advice)
            except Wrong as wrong:
                if on_purpose:
                    raise
                raise Remark(str(wrong)) from None

    def _penalised(
        self, function: Callable, inputs: dict[str, Any], loss: Callable
    ) -> tuple[dict[str, torch.Tensor], bool]:
        """The gradients of the loss and of the squares of its gradients; and whether a second derivative is there on
        purpose: a Function that a backward pass applies."""
        wanted = {n: inputs[n].detach().clone().requires_grad_() for n in self.takers(inputs)}
        leaves = inputs | wanted
        value = loss(_first_tensor(self.call(function, **leaves)))
        grads = torch.autograd.grad(value, list(wanted.values()), create_graph=True, allow_unused=True)
        penalty = sum((grad.float().pow(2).sum() for grad in grads if grad is not None), torch.zeros(()))
        on_purpose = bool(_applied(*grads) - _applied(value))
        found = torch.autograd.grad(value + penalty.to(value.device), list(wanted.values()), allow_unused=True)
        return {n: g if g is not None else torch.zeros_like(v) for (n, v), g in zip(wanted.items(), found)}, on_purpose

    def _forward_mode(self) -> None:
        inputs = self.inputs()
        floats = [n for n, v in inputs.items() if elements.floating(v)]
        if not floats:
            raise Skipped("no argument is a floating tensor")

        def tangent(function: Callable) -> torch.Tensor:
            with forward_ad.dual_level():
                own = writes.copies(inputs)
                duals = {n: forward_ad.make_dual(own[n], torch.ones_like(own[n])) for n in floats}
                out = _first_tensor(self.call(function, **own | duals))
                found = forward_ad.unpack_dual(out).tangent
                return torch.zeros_like(out) if found is None else found.clone()

        try:
            found = tangent(self.subject.function)
        except Exception:
            return
        try:
            wanted = tangent(self.subject.reference)
        except Exception as error:
            raise Skipped(f"the reference has no forward mode: {error}") from error
        try:
            self.near("the forward-mode derivative", found, wanted, _FORWARD)
        except Wrong as wrong:
            if self.differentiable and not self.by_an_operator():
                raise
            raise Remark(str(wrong)) from None

    def by_an_operator(self) -> bool:
        """Whether the gradient comes from an operator of `torch.library`: PyTorch drops the tangents of each."""
        inputs = self.inputs()
        wanted = {n: inputs[n].detach().clone().requires_grad_() for n in self.takers(inputs)}
        out = _first_tensor(self.call(self.subject.function, **inputs | wanted))
        return any(node.name().startswith("GeneratedBackwardFor") for node in _behind(out))

    def _misfit(self) -> None:
        """An argument that doesn't fit may be refused, in whatever words. To take it is worth a remark. It is a fault
        where it does harm: memory outside of a tensor is touched, or the reference takes it, too, and gives something
        else. And where it is said to be refused: the reference has a `raise` for it, or the file is `STRICT`."""
        name, change = self.trial.detail.split()
        inputs = self.inputs()
        value = inputs[name]
        if change == "list":
            inputs[name] = value.tolist()
            what = f"{name} is a list"
        else:
            inputs[name] = layouts.longer(value, int(change))
            what = f"{name} has shape {tuple(inputs[name].shape)}, not {tuple(value.shape)}"
        refused = self.subject.strict and "as STRICT says"
        try:
            self.call(self.subject.reference, **writes.copies(inputs))
        except Exception as error:
            refused = refused or is_refusal(error) and "as the reference is"
        else:
            return self._taken(what, inputs)
        call = functools.partial(self.call, self.subject.function, **inputs)
        with interpreted.counted_launches() as launched, fences.Fences():
            try:
                found = interpreted.watched(self._files(), call)[1] if device.INTERPRET else call()
            except Exception as error:
                message, line = _in_words(error, file_of(self.subject))
                if isinstance(trouble.first_cause(error, "")[0], OutOfBounds):
                    raise Wrong(f"{what}: it is taken, and {message}", line) from error
                if launched:
                    raise Remark(f"{what}: it is noticed only inside of {launched[0]}: {message}") from error
                return
        if any(elements.floating(one) and bool(one.isnan().any()) for one in verdict.named(found).values()):
            raise Wrong(f"{what}: it is taken, and the result is made of memory outside of a tensor")
        if refused:
            raise Wrong(f"{what}: it is taken, and should be refused, {refused}")
        raise Remark(f"{what}: it is taken, where the reference fails. No memory outside is touched")

    def _taken(self, what: str, inputs: dict[str, Any]) -> None:
        """What fits the reference, though INPUTS doesn't say so."""
        try:
            found, upstreams = self.ours(inputs)
        except Wrong:
            raise
        except Exception:
            return
        try:
            self.compare(found, inputs, upstreams)
        except Wrong as wrong:
            raise Wrong(f"{what}, which the reference takes: {wrong}") from None

    def _files(self) -> list[str]:
        """Those whose kernels are watched."""
        module = inspect.getmodule(inspect.unwrap(self.subject.function))
        return jitted_files(module) if module else [file_of(self.subject)]


def gradient_mode(subject: Subject, trial: Trial, call: bool = True) -> str:
    """gradients: results carry them, if not of every input (see `refusing`). refuses: an input that requires one is
    refused. none: results have none, in silence. reference: the reference gives none either. in place: it writes to an
    argument. unknown: without a call of the function."""

    def attached(function: Callable, wanted: Collection[str] | None = None) -> bool:
        with fences.Fences():  # what writes beside a tensor must not end the process
            inputs = subject.make(dict(trial.sizes), getattr(torch, trial.dtype), trial.seed)
            for name, value in inputs.items():
                if elements.floating(value) and (wanted is None or name in wanted):
                    value.requires_grad_()
            outputs = verdict.named(function(**inputs, **dict(trial.options))).values()
        return any(torch.is_tensor(out) and out.requires_grad for out in outputs)

    try:
        if not attached(subject.reference):
            return "reference"
    except RuntimeError as error:
        if "a leaf Variable that requires grad" not in str(error):
            raise
        return "in place"
    try:
        return "unknown" if not call else "gradients" if attached(subject.function) else "none"
    except Exception as error:
        if not is_refusal(error) and not isinstance(error, RuntimeError):
            return "none"
    inputs = subject.make(dict(trial.sizes), getattr(torch, trial.dtype), trial.seed)
    floating, taken = {name for name, value in inputs.items() if elements.floating(value)}, set()
    for name in floating:  # each by itself: a function may give the gradients of some
        with contextlib.suppress(Exception):
            attached(subject.function, {name})
            taken.add(name)
    with contextlib.suppress(Exception):
        if taken and attached(subject.function, taken):
            vars(subject)["refusing"] = frozenset(floating - taken)
            return "gradients"
    return "refuses"


def refusing(subject: Subject) -> frozenset[str]:
    """The inputs that may not require a gradient, of a function that gives those of others."""
    return vars(subject).get("refusing", frozenset())


def ranks(subject: Subject, trial: Trial) -> tuple[int, int]:
    """The most dims of an input, and of a result."""
    inputs = subject.make(dict(trial.sizes), getattr(torch, trial.dtype), trial.seed)
    results = verdict.named(subject.reference(**inputs, **dict(trial.options)))
    most = lambda values: max((value.dim() for value in values if torch.is_tensor(value)), default=0)  # noqa: E731
    return most(inputs.values()), most(results.values())


def _first_tensor(result: Any) -> torch.Tensor:
    found = next((value for value in verdict.named(result).values() if torch.is_tensor(value)), None)
    if found is None:
        raise Skipped("it gives no tensor")
    return found


def _applied(*results: torch.Tensor | None) -> set[Any]:
    """Calls of a `torch.autograd.Function` that results come of."""
    return {node for node in _behind(*results) if isinstance(node, torch.autograd.function.BackwardCFunction)}


def _behind(*results: torch.Tensor | None) -> set[Any]:
    """Everything in autograd's graph that results come of."""
    known, left = set(), [result.grad_fn for result in results if result is not None]
    while left:
        node = left.pop()
        if node is not None and node not in known:
            known.add(node)
            left += [before for before, _ in node.next_functions]
    return known


def synchronize() -> None:
    """Until the card has done what it was asked for."""
    if not device.INTERPRET:
        torch.cuda.synchronize()
