"""Lesson, fast version, Gluon and each rung of each ladder, compiled: do they give the same bits under Triton's FpSan?

`python benchmarks/fpsan.py` writes `benchmarks/results/<device>/experiments/fpsan.json`, a row at a time, and goes on
where it was stopped. It needs a GPU and Triton 3.9.

FpSan replaces floats of w bits in compiled kernels by integers modulo 2^w, whose sums have no order. There, what
is the same function by the rules of rings, and by exp(a + b) = exp(a) exp(b), has the same bits, whatever its tiles.
That ring has no −∞, no logarithm and no ½: padded lanes of a softmax are not 0, and divisors must be odd. So each pair
is tried with odd sizes, and with whole ones, which no lane of a block is outside of. Where bits differ, the row says
what the kernels do that the ring doesn't have. Where they do nothing of the kind, it is a finding.

What PyTorch does between two launches is not instrumented: a gradient that PyTorch adds up may differ for that.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from academy.runtime import device  # before anything imports triton
from academy.bench import experiment, ladder_run
from academy.book import syntax
from academy.compiler import tuning
from academy.judge import public, sanitizers, verdict
from academy.judge.sanitized import bits
from academy.judge.subject import Subject
from academy.judge.trials import Plan, Trial
from academy.judge.trying import Attempt
from academy.results import ladder

ROOT = Path(__file__).resolve().parents[1]

NAME = "fpsan"
#: Ladder -> odd sizes and whole ones, as far as all of its rungs take them.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "cross_entropy": ((5, 1031), (4, 8192)),
    "flash_attention": ((1, 2, 72, 64), (1, 2, 256, 64)),
    "layernorm": ((5, 1031), (4, 4096)),
    "layernorm_backward": ((5, 1031), (4, 4096)),
    "matmul": ((40, 24, 72), (256, 256, 256)),
    "matmul_backward": ((37, 70, 19), (256, 256, 256)),
    "softmax": ((5, 1031), (4, 8192)),
}
#: Words in the source of kernels -> what they do that the ring doesn't have.
NOT_THERE = {
    r"-float\('inf'\)|MINUS_INFINITY": "−∞",
    r"\blog2?\(": "a logarithm",
    r"\b(arg)?(max|min|sort|maximum|minimum)\(": "a choice by order",
    r"\b(sqrt|rsqrt|sqrt_rn|erf|tanh|rint|round|floor)\(": "a function without identities",
    r" / |div_rn\(|fdiv\(": "a division",
}
Results = dict[str, torch.Tensor]


# ---------------------------------------------------------------- what is compared
def pairs() -> Iterator[tuple[str, str]]:
    """Names of two functions that should be one: `lesson = other`, a rung and the one before, and, to see that a
    difference shows, a pair that differs by 1/1000 of an eps."""
    found = [each for gluon in (False, True) for each in public.functions(gluon=gluon)]
    lessons: dict[str, str] = {}
    for each in found:
        first = lessons.setdefault(each.name, str(each))
        if first != str(each):
            yield first, str(each)
    for name in ladder.names(ROOT):
        words = [rung.word for rung in ladder.rungs(name, ROOT) if rung.number]
        yield from ((f"{name}/{one}", f"{name}/{two}") for one, two in zip(words, words[1:]))
    yield "planted/rmsnorm", "classics.rmsnorm.rmsnorm"


def calls(one: str, two: str) -> Iterator[tuple[str, Callable[[], tuple[Results, Results]]]]:
    """The sizes, in words, and what gives both results at them, with gradients, of the same inputs."""
    if "/" in one and one.partition("/")[0] in SHAPES:
        yield from _rungs(*one.split("/"), two.partition("/")[2])
        return
    known = {str(each): each for gluon in (False, True) for each in public.functions(gluon=gluon)}
    subject = known[two].subject()
    lesson = _renamed(known[one], subject) if one in known else _planted(subject.function)
    plan = Plan(subject, interpreted=False)
    whole = plan.chosen(dict.fromkeys(subject.dims, 128))
    for words, sizes in (("odd", plan.odd()), ("whole", whole)):
        options = tuple(subject.combinations()[0].items())
        attempt = Attempt(subject, Trial(NAME, words, sizes, options, plan.dtype, layout="contiguous"))

        def both(attempt: Attempt = attempt) -> tuple[Results, Results]:
            inputs = attempt.inputs()
            first, upstreams = attempt.results(lesson, inputs)
            return first, attempt.results(attempt.subject.function, inputs, upstreams or None)[0]

        yield f"{words}: {attempt.trial.described()}", both


def _rungs(name: str, one: str, two: str) -> Iterator[tuple[str, Callable[[], tuple[Results, Results]]]]:
    variant = ladder_run.variant(name)
    for words, shape in zip(("odd", "whole"), SHAPES[name]):

        def both(shape: tuple[int, ...] = shape) -> tuple[Results, Results]:
            torch.manual_seed(0)
            inputs = variant.inputs(shape, variant.dtypes[0], device.DEVICE)
            wanted = tuple(variant.differentiable)
            made = [verdict.run(variant.ours[word], dict(inputs), verdict.ones, wanted) for word in (one, two)]
            return made[0].outputs | made[0].gradients, made[1].outputs | made[1].gradients

        yield f"{words}: {', '.join(map(str, shape))}", both


def _renamed(lesson: public.Public, other: Subject) -> Callable:
    """The lesson's function, with the other one's names for its tensors."""
    subject = lesson.subject()
    names = dict(zip(other.tensors, subject.tensors))
    return lambda **inputs: subject.function(**{names.get(name, name): value for name, value in inputs.items()})


def _planted(rmsnorm: Callable) -> Callable:
    return lambda x, weight=None, **options: rmsnorm(x, weight, **{**options, "eps": 1.001e-6})


def outside_of_the_ring(one: str, two: str) -> list[str]:
    """What the kernels of the two do that FpSan's numbers don't have, as far as their text says."""
    kernels: dict[str, str] = {}
    left, seen = [path for name in (one, two) if (path := _file(name))], set[Path]()
    names = [word for path in left for word in re.findall(r"\w+", path.read_text("utf-8"))]
    while left:
        if (path := left.pop()) not in seen:
            seen.add(path)
            text = path.read_text("utf-8")
            kernels |= {each.name: _body(each) for each in syntax.jitted_functions(text)}
            left += syntax.imported_kernels(text, ROOT)
    reached: dict[str, str] = {}
    while names:
        if (name := names.pop()) in kernels and name not in reached:
            reached[name] = kernels[name]
            names += re.findall(r"\w+", kernels[name])
    bodies = "\n".join(reached.values())
    return [said for words, said in NOT_THERE.items() if re.search(words, bodies)]


def _file(name: str) -> Path | None:
    """The file of a function, or of a rung."""
    if "/" not in name:
        return syntax.kernel_file(f"annotated_examples.{name.rpartition('.')[0]}", ROOT)
    ladder_name, word = name.split("/")
    found = (
        [rung.path for rung in ladder.rungs(ladder_name, ROOT) if rung.word == word] if ladder_name in SHAPES else []
    )
    return ROOT / found[0] if found else None


def _body(function: ast.FunctionDef) -> str:
    """Without comments, docstring and decorators."""
    return "\n".join(map(ast.unparse, function.body[1 if ast.get_docstring(function) else 0 :]))


# ---------------------------------------------------------------- a row
def compared(first: Results, second: Results) -> dict[str, float]:
    """Of each floating result, the share of elements whose bits differ."""
    shares = {}
    for name in first.keys() & second.keys():
        a, b = first[name], second[name]
        if torch.is_tensor(a) and torch.is_tensor(b) and a.is_floating_point() and a.shape == b.shape and a.numel():
            shares[name] = round(float((bits(a) != bits(b)).double().mean()), 4) if a.dtype == b.dtype else 1.0
    return dict(sorted(shares.items()))


def row(one: str, two: str) -> dict[str, Any]:
    """Run in a process of its own. sizes: what differs at which sizes, or the error that stopped it."""
    found: dict[str, Any] = {}
    with tuning.chosen():
        for words, both in calls(one, two):
            try:
                found[words] = compared(*both())
                torch.cuda.synchronize() if not device.INTERPRET else None
            except Exception as error:
                found[words] = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"[:300]
    return judged(one, two, found)


def judged(one: str, two: str, found: dict[str, Any]) -> dict[str, Any]:
    """verdict: same; same at whole sizes; differs; skipped, where nothing could be compared."""
    values = {words.partition(":")[0]: each for words, each in found.items()}
    same = {words for words, each in values.items() if isinstance(each, dict) and each and not any(each.values())}
    said = "same" if same == set(values) and same else "same at whole sizes" if "whole" in same else "differs"
    said = said if any(isinstance(each, dict) and each for each in values.values()) else "skipped"
    why = outside_of_the_ring(one, two) if said != "same" else []
    return {"one": one, "two": two, "verdict": said, "sizes": found, "not in the ring": why}


# ---------------------------------------------------------------- the command
def in_a_process(one: str, two: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), "--pair", one, two]
    environment = {**os.environ, "TRITON_INSTRUMENTATION_MODE": "fpsan", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    try:
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
        lines = [line for line in ran.stdout.splitlines() if line.startswith('{"one"')]
        last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        made = (
            json.loads(lines[-1]) if lines else judged(one, two, {"all": f"ended with {ran.returncode}: {last}"[:300]})
        )
    except subprocess.TimeoutExpired:
        made = judged(one, two, {"all": f"it did not end within {seconds:g} s"})
    return {**made, "seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    parser = experiment.parser(__doc__.split("\n\n")[0])
    parser.add_argument("--pair", nargs=2, metavar="NAME", help="only these two, in this process: prints the row")
    parser.add_argument("--only", default="", help="pairs whose names have this in them")
    parser.add_argument("--minutes", type=float, default=6.0, help="begin nothing afterwards (default: 6)")
    parser.add_argument("--seconds", type=float, default=90.0, help="for one pair (default: 90)")
    parser.add_argument("--processes", type=int, default=12, help="pairs at once (default: 12)")
    options = parser.parse_args()
    if options.pair:
        print(json.dumps(row(*options.pair), ensure_ascii=False))
        return
    if left_out := sanitizers.missing([NAME]):
        raise SystemExit(sanitizers.in_words(left_out))
    rows = {(each["one"], each["two"]): each for each in experiment.kept(NAME, options.results, "rows")["rows"] or []}
    wanted = [pair for pair in pairs() if pair not in rows and options.only in " = ".join(pair)]
    end = time.monotonic() + 60 * options.minutes
    print(f"{len(rows)} rows are there, {len(wanted)} to go")

    def one(pair: tuple[str, str]) -> dict[str, Any] | None:
        return in_a_process(*pair, options.seconds) if time.monotonic() < end else None

    with ThreadPoolExecutor(options.processes) as pool:
        for future in as_completed([pool.submit(one, pair) for pair in wanted]):
            if made := future.result():
                rows[made["one"], made["two"]] = made
                experiment.write_experiment(NAME, options.results, {"rows": [rows[key] for key in sorted(rows)]})
                print(f"{made['seconds']:6.1f} s  {made['verdict']:19} {made['one']} = {made['two']}", flush=True)
    print(f"{len(rows)} rows, {sum(each['verdict'] == 'same' for each in rows.values())} the same in every bit")


if __name__ == "__main__":
    main()
