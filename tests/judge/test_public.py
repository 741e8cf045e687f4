"""Every public function is said in operations/, and passes its own judge."""

import functools
import inspect

import pytest
import torch

from academy.runtime import device
from academy.book import facts, layout
from academy.book.syntax import public_functions
from academy.judge import elements, fences, verdict
from academy.judge import public as said
from academy.judge.process import Limits
from academy.judge.session import MEGABYTES, Given, Session
from academy.judge.trials import Plan, Trial

PUBLIC = said.functions()
#: What is tried of each function in `make test` and on a card: in this process, since one of its own costs more than
#: its trials. Nightly each is judged as by `academy judge`. The interpreter has one order of programs, so that a second
#: call differs only by what the first has left behind, which `calls` sees. Rows 2³⁰ elements apart take 6 GB on a card.
ALWAYS = ("sizes", "layouts", "magnitudes", "non-finite", "calls")
ALWAYS += () if device.INTERPRET else ("repeats", "offsets")
#: Of these one group in `make test`: the interpreter takes up to 18 s for one with 1037 tokens.
LONG = ("causal_attention", "flash_attention", "gated_delta_rule", "gated_delta_rule_varlen", "linear_attention")
LONG += ("decode_attention", "kda", "kda_varlen", "linear_attention_varlen", "mla_attention", "rope", "select_keys")
#: Of processor time for one trial: attention, with every access of 1037 tokens watched, takes more than a minute.
SECONDS = 600.0


def tried(public) -> list[str]:
    groups = ("layouts",) if device.INTERPRET and public.name in LONG else ALWAYS
    groups += ("batch",) if public.batch else ()
    return [each for each in public.groups if each in groups]


def chosen(trials: list[Trial], public) -> list[Trial]:
    """In `make test`: a sixth, another one of each function."""
    step = min(6, len(trials))
    return trials[PUBLIC.index(public) % step :: step]


@pytest.mark.parametrize("public", PUBLIC, ids=str)
def test_hostile_inputs(public, monkeypatch):
    if device.INTERPRET:
        every = Plan.trials
        monkeypatch.setattr(Plan, "trials", lambda plan, groups: chosen(every(plan, groups), public))
    report = Session(Given((public.subject(),), here=True), tried(public)).run()
    assert report.right, str(report)


@pytest.mark.skipif(not device.INTERPRET, reason="about the interpreter's time")
def test_of_the_longest_one_group_is_tried():
    """A name that is met nowhere would cost minutes in every run, and nobody would see it."""
    assert {public.name for public in PUBLIC if "sizes" not in tried(public)} >= set(LONG)


class Moved(torch.autograd.Function):
    """The same numbers elsewhere."""

    @staticmethod
    def forward(ctx, values, place):
        return place().copy_(values)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


#: Of one element of those that lie far apart, and whose memory is 12 GB for each of them.
BYTES = 4 if device.INTERPRET else 2


def with_far_rows(function):
    """Called with copies whose last third of rows begins 2³¹ elements behind the first one, or more: in 32 bits that
    wraps around, to zeros. All lie in one piece of memory: each has 256 kB of every 4 MB."""

    def call(*given, **named):
        given = inspect.signature(function).bind(*given, **named).arguments
        near = {name: x for name, x in given.items() if torch.is_tensor(x) and x.element_size() <= BYTES}
        near = {name: x for name, x in near.items() if max(x.shape[:-1], default=1) > 1}
        try:
            memory, far = fences.zeros(6 * 2**30 * BYTES, torch.uint8, device.DEVICE).untyped_storage(), {}
        except torch.OutOfMemoryError:
            pytest.skip("there is no room for it")
        for number, (name, x) in enumerate(near.items()):
            dim, strides = next(dim for dim, size in enumerate(x.shape) if size > 1), list(x.contiguous().stride())
            strides[dim] = -(-(2**31) // ((x.shape[dim] - 1) * 2 // 3 + 1) // 2**22) * 2**22
            at = 2**31 + number * 2**18 // x.element_size(), x.shape, strides
            place = functools.partial(torch.empty(0, dtype=x.dtype, device=x.device).set_, memory, *at)
            far[name] = Moved.apply(x, place) if elements.floating(x) else place().copy_(x)
        found = function(**given | far)
        for name, x in near.items() if function.__name__.endswith("_") else ():
            x.copy_(far[name])
        return found

    return call


#: The last call of each function of which the judge knows no tensor by name: it lays none of those out like that.
MADE = {str(call.public): call for call in said.calls(more=True) if call.public.subject().maker}


@pytest.mark.parametrize("call", MADE.values(), ids=str)
def test_offsets_beyond_32_bits(call):
    function, inputs = call.public.function(), call.inputs()
    upstreams, wanted = (verdict.ones, None) if call.differentiable else (None, ())
    near, far = (
        verdict.run(call.called(each), inputs, upstreams, wanted).values for each in (function, with_far_rows(function))
    )
    for name, value in near.items():
        loose = 0.01 * value.abs().max().item() if value.numel() else 0.0  # tiles may be laid out otherwise
        torch.testing.assert_close(far[name], value, rtol=0.01, atol=0 if device.INTERPRET else loose, equal_nan=True)
    torch.cuda.empty_cache()


@pytest.mark.nightly
@pytest.mark.skipif(not device.INTERPRET, reason="functions are judged by forks of this process")
@pytest.mark.parametrize("public", PUBLIC, ids=str)
def test_it_passes(public):
    report = Session(Given((public.subject(),)), public.groups, 0, limits=Limits(SECONDS, MEGABYTES)).run()
    assert report.right, str(report)


@pytest.mark.parametrize("public", PUBLIC, ids=str)
def test_its_inputs_are_understood(public):
    subject = public.subject()
    assert subject.dims and (subject.maker or subject.tensors)


def in_the_files(root):
    """What the API reference lists."""
    for path in layout.kernels(root):
        if layout.group(root, path) not in ("common", "integrations"):
            names = public_functions(path.read_text("utf-8"))
            yield from (f"{layout.module_name(root, path)}.{name}" for name in names)


def in_the_facts(root):
    """Those in `PUBLIC`, and those in `HELPERS`."""
    found = {str(each) for gluon in (False, True) for each in said.functions(root, gluon)}
    files = [facts.load(path) for path in layout.operations(root)]
    return found | {f"{each.LESSON}.{name}" for each in files for name in getattr(each, "HELPERS", ())}


def test_every_public_function_has_facts():
    missing = sorted(set(in_the_files(layout.ROOT)) - in_the_facts(layout.ROOT))
    assert not missing, f"say in PUBLIC of a file of operations/ what they take: {', '.join(missing)}"


def test_facts_are_about_functions_that_are_there():
    gone = sorted(in_the_facts(layout.ROOT) - set(in_the_files(layout.ROOT)))
    assert not gone, f"PUBLIC or HELPERS of a file of operations/ names {', '.join(gone)}: there is no such function"


#: Codes of few bits, their scales and their products have dtypes of their own.
OF_CODES = ("fp8.", "mx.", "fast.scaled_matmul", "fast.mx_matmul", "attention.quantized_cache")


def test_references_keep_float64():
    """What kernels are measured against is computed in float64, to the last result. (A call with an option that the
    reference doesn't have isn't made.)"""
    rounded, made = [], 0
    for call in said.calls(more=True):
        reference, wrap = call.public.reference_function(), call.said.get("wrap", call.public.wrap)
        if (
            call.public.module.startswith(OF_CODES)
            or not call.options.keys() <= inspect.signature(reference).parameters.keys()
        ):
            continue
        found = (wrap(reference) if wrap else reference)(**elements.in_float64(call.inputs()), **call.options)
        made += 1
        results = found if isinstance(found, (tuple, list)) else (found,)
        rounded += [str(call) for each in results if elements.floating(each) and each.dtype != torch.float64]
    assert made > 150 and not rounded
