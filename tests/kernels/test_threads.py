"""Public functions called by several threads at once give each of them what a single thread gets."""

import threading

import pytest
import torch

from academy.judge import public
from tests.kernels.test_compile import leaves, results

THREADS = 8
QUICK = ("vector_add", "softmax", "layernorm", "cross_entropy_loss", "geglu", "swiglu")
CALLS = [case for case in public.calls() if case.function in QUICK]


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.nightly)])
def test_forward_and_backward_in_eight_threads(rounds):
    loaded = [(case, case.load(), case.inputs()) for case in CALLS]
    expected = [results(function, *leaves(inputs, case.differentiable)) for case, function, inputs in loaded]
    problems, start = [], threading.Barrier(THREADS)

    def work(number):
        start.wait()
        for i in range(rounds * len(loaded)):  # each thread begins with another function
            place = (i + number) % len(loaded)
            case, function, inputs = loaded[place]
            try:
                got = results(function, *leaves(inputs, case.differentiable))
                if not all(torch.equal(mine, theirs) for mine, theirs in zip(got, expected[place])):
                    problems.append(f"{case}: other numbers")
            except Exception as error:
                problems.append(f"{case}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, "\n".join(problems)
