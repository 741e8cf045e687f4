"""academy/runtime/call_cache: what is remembered is what would be worked out again, whatever changes from one
call to the next.

What is replayed is compared with what is not in tests/kernels/test_launch.py.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from academy.runtime import call_cache, checks, launch


@pytest.fixture(autouse=True)
def remembering(monkeypatch):
    """Here nothing is compiled, and nothing would be remembered."""
    monkeypatch.setattr(launch, "COMPILED", True)
    monkeypatch.setattr(launch, "current_device", lambda: current["device"])
    yield
    launch.forget()
    current["device"] = -1


current = {"device": -1}


def facts(*arguments):
    """Everything that a check or a plan may look at."""
    found = [torch.is_grad_enabled(), launch.current_device()]
    for x in arguments:
        if isinstance(x, torch.Tensor):
            found += x.dtype, tuple(x.shape), x.stride(), x.requires_grad, x.data_ptr() % 16 == 0, x.device, x.is_neg()
        elif isinstance(x, tuple):
            found += type(x), len(x), facts(*x)
        else:
            found += type(x), x
    return tuple(found)


def exact(value):
    """Equal only to what has the same types, too: 1 equals True."""
    return tuple(map(exact, value)) if isinstance(value, tuple) else (type(value), value)


X = torch.randn(64, 64)
TENSORS = [X, X[1:], X[:, 1:], X[:, :63], X.T, X[:, 4:], X[4:], X[:1].expand(64, 64), X.half(), X.bfloat16(), X[:0]]
TENSORS += [X.clone().requires_grad_(), torch.nn.Parameter(X.clone()), X[None], X.to("meta"), None, X.to(torch.int32)]
TENSORS += [torch.complex(X, X).conj().imag, torch.complex(X, X).imag]
OPTIONS = [1, 1.0, True, 0, False, None, "a", (1, 0), (True, 0), (1, 0, 0), ((1,), 0), 2.5, -1, 2**40, torch.float16]


def wrong(seed, count=3000):
    """How many of these calls got another answer than they should, and how many were remembered."""
    launch.forget()
    choose, asked = random.Random(seed), []
    once = call_cache.remembered(lambda *arguments: asked.append(1) or facts(*arguments))
    recent, found = [], 0
    for _ in range(count):
        call = [choose.choice(TENSORS), choose.choice(TENSORS), choose.choice(OPTIONS), choose.choice(OPTIONS)]
        if recent and choose.random() < 0.9:  # mostly near relations of a call that was made before
            call = list(choose.choice(recent))
            place = choose.randrange(4)
            call[place] = choose.choice(TENSORS if place < 2 else OPTIONS)
        recent = [*recent[-10:], call]
        current["device"] = choose.choice([-1, -1, 0])
        with torch.set_grad_enabled(choose.random() < 0.8):
            found += exact(once(*call)) != exact(facts(*call))
    return found, count - len(asked)


def test_a_remembered_answer_is_the_answer():
    found, remembered = wrong(0)
    assert not found and remembered > 80


@pytest.mark.parametrize(
    "kind", [torch.dtype, torch.Size, tuple, torch.device, bool, type, int], ids=lambda kind: kind.__name__
)
def test_a_key_without_something_is_noticed(kind, monkeypatch):
    whole = call_cache._geometry
    monkeypatch.setattr(
        call_cache, "_geometry", lambda arguments, key: [x for x in whole(arguments, key) if type(x) is not kind]
    )
    assert wrong(1)[0]


class Subclass(torch.Tensor):
    pass


NEVER = {
    "subclass": lambda: torch.randn(2).as_subclass(Subclass),
    "list": lambda: [1, 2],
    "sparse": lambda: torch.eye(2).to_sparse(),
    "sparse rows": lambda: torch.eye(2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(2)),
    "negative view": lambda: torch.complex(X, X).conj().imag,
    "numpy's float": lambda: pytest.importorskip("numpy").float64(1),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("make", NEVER.values(), ids=NEVER.keys())
def test_what_is_not_understood_is_asked_each_time(make):
    asked = []
    once = call_cache.remembered(lambda x: asked.append(x))
    for _ in range(3):
        once(make())
    assert len(asked) == 3


def test_forward_mode_and_transforms_are_asked_each_time():
    asked = []
    once = call_cache.remembered(lambda x: asked.append(1))
    x = torch.ones(3)
    once(x), once(x)
    assert len(asked) == 1
    with forward_ad.dual_level():
        once(x), once(forward_ad.make_dual(x, x))
    assert len(asked) == 3
    torch.func.vmap(lambda y: (once(x), y)[1])(torch.ones(2))
    assert len(asked) == 4


def test_an_error_is_raised_again():
    def check(x):
        checks.dtypes(x=x)

    once = call_cache.remembered(check)
    for _ in range(2):
        with pytest.raises(TypeError, match="got int64"):
            once(torch.ones(2).long())
    once(torch.ones(2))


def test_values_are_looked_at_when_asked_for(monkeypatch):
    """The variable may be set between two calls."""

    def check(x):
        if os.environ.get("ACADEMY_DEBUG") == "1" and (x < 0).any():
            raise ValueError("negative")

    once = call_cache.remembered(check, values=True)
    monkeypatch.delenv("ACADEMY_DEBUG", raising=False)
    once(-torch.ones(2)), once(-torch.ones(2))
    monkeypatch.setenv("ACADEMY_DEBUG", "1")
    with pytest.raises(ValueError, match="negative"):
        once(-torch.ones(2))


def test_a_tensor_may_be_written_to():
    """Nothing depends on values."""
    asked, x = [], torch.ones(3)
    once = call_cache.remembered(lambda x: asked.append(1))
    once(x)
    x.add_(1), once(x)
    x.resize_(5), once(x)
    x.requires_grad_(), once(x)
    assert len(asked) == 3


def test_no_tensor_is_kept_alive_or_handed_to_the_next():
    once = call_cache.remembered(lambda x: (1, [x]))
    x, y = torch.ones(4), torch.ones(4)
    assert once(x)[1][0] is x and once(y)[1][0] is y
    plan = call_cache.remembered(lambda x: (x.shape, x.stride()))
    plan(x)
    reference = weakref.ref(x)
    del x
    gc.collect()
    assert reference() is None


def test_geometries_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(launch, "MOST", 5)
    asked, before = [], len(launch.CACHES)
    once = call_cache.remembered(lambda x: asked.append(1))
    for size in range(50):
        once(torch.ones(size))
    assert len(asked) == 50 and len(launch.CACHES) == before + 1 and len(launch.CACHES[-1]) <= 5
    launch.forget()
    once(torch.ones(49))
    assert len(asked) == 51


def test_two_threads():
    failed = []
    once = call_cache.remembered(facts)

    def work(seed):
        choose = random.Random(seed)
        for _ in range(500):
            call = choose.choice(TENSORS[:12]), choose.choice(OPTIONS)
            if exact(once(*call)) != exact(facts(*call)):
                failed.append(call)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed


def test_nothing_is_remembered_where_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(launch, "COMPILED", False)
    asked = []
    once = call_cache.remembered(lambda x: asked.append(1))
    once(X), once(X)
    assert len(asked) == 2
    monkeypatch.setattr(launch, "COMPILED", True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    once(X), once(X)
    assert len(asked) == 4
