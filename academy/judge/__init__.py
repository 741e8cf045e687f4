"""One judge for every kernel: this project's tests, the equation checker, the exercises, and the reader's own files.

- `layouts`: the same values in hostile places (strided, transposed, sliced, in the middle of NaN)
- `fences`: memory that shows a write outside of a tensor, and an element that nobody wrote
- `elements`: the first wrong element of a result, in words
- `accuracy`: how accurate is accurate enough
- `compare`: output and gradients under that rule, inputs unchanged, second derivatives
- `mutants`: small edits of a kernel's source, that a test must catch; `kernel_mutants`: those that are made
- `process`: work that may die
- `subject`, `trials`, `trying`, `session`, `report`: `academy judge`, and `judge` below

`layouts` and `elements` run in a browser too, where the exercises use them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from academy.judge.session import Report


def judge(
    function: Callable | str | Path,
    reference: Callable | None = None,
    inputs: dict[str, Any] | Callable[..., dict] | None = None,
    *,
    sizes: dict[str, Any] | None = None,
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16"),
    groups: list[str] | None = None,
    mutants: int | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    megabytes: int = 4096,
) -> Report:
    """What `academy judge` does, from Python: `assert judge(softmax, torch_softmax, {"x": "rows cols"}).right`.

    Args:
        function: a function that launches kernels, or the path of a file with functions and their references.
        reference, inputs, sizes, dtypes: of that function, as a file says them (see `academy.judge.subject`).
        groups: names in `academy.judge.trials.GROUPS`; None: all.
        mutants: how many changes of a file's kernels are tried; by default 24, and none where `groups` are given.
        seconds, megabytes: processor time for one trial, and memory for one process. A function (not a file) on a
            machine with a GPU runs in this process, without limits.

    Raises:
        ValueError: there is no reference, or `inputs` can't be understood.
    """
    from academy.judge import session, subject
    from academy.judge.process import Limits

    source: session.Source
    if isinstance(function, (str, Path)):
        source = session.File(Path(function))
    elif reference is None:
        raise ValueError("reference is missing: the same function in plain PyTorch")
    else:
        made = subject.of_functions(function, reference, inputs, sizes=sizes, dtypes=dtypes)
        source = session.Given((made,))
    return session.Session(source, groups, mutants, seed, Limits(seconds, megabytes)).run()
