"""Every public function passes its own judge."""

import pytest

from academy import device
from academy.judge.process import Limits
from academy.judge.session import MEGABYTES, Given, Session
from tests.judge.public import PUBLIC
from tests.kernels.public_functions import CASES

SAMPLE = ("tutorials.vector_add.vector_add", "fast.rmsnorm.rmsnorm")
#: Of processor time for one trial: attention, with every access of 1037 tokens watched, takes more than a minute.
SECONDS = 600.0


@pytest.mark.skipif(not device.INTERPRET, reason="functions are judged by forks of this process")
@pytest.mark.parametrize(
    "public",
    [pytest.param(each, marks=[] if str(each) in SAMPLE else pytest.mark.nightly) for each in PUBLIC],
    ids=str,
)
def test_it_passes(public):
    groups = ["layouts", "offsets"] if str(public) in SAMPLE else public.groups
    report = Session(Given((public.subject(),)), groups, 0, limits=Limits(SECONDS, MEGABYTES)).run()
    assert report.right, str(report)


def test_every_public_function_is_judged():
    assert {str(public) for public in PUBLIC} == {f"{case.module}.{case.function}" for case in CASES}


@pytest.mark.parametrize("public", PUBLIC, ids=str)
def test_its_inputs_are_understood(public):
    subject = public.subject()
    assert subject.dims and (subject.maker or subject.tensors)
