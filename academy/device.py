"""Where kernels run: compiled on an NVIDIA GPU, or in Triton's interpreter on the CPU. Decided once, at import.

Every kernel file imports this module before it imports triton, because Triton reads `TRITON_INTERPRET` while its own
library is being imported. Without a GPU this module sets the variable; a value set by the reader is respected.

Names: `INTERPRET` (bool), `DEVICE` (`torch.device`), `describe()`, `autotune()`.
Source of the interpreter's rules: Triton's documentation, "Debugging Triton".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch

_TRUE = {"1", "true", "on", "yes", "y"}


def _choose_interpreter() -> bool:
    asked = os.environ.get("TRITON_INTERPRET")
    interpret = asked.lower() in _TRUE if asked is not None else not torch.cuda.is_available()
    if interpret and "triton.language" in sys.modules and not _triton_interprets():
        raise ImportError(
            "triton was imported before academy.device, and there is no GPU: by now Triton's own functions are set up "
            "for one. Import academy.device (or a module of annotated_examples) first, or set TRITON_INTERPRET=1."
        )
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    return interpret


def _triton_interprets() -> bool:
    """Whether the triton that is already imported was imported for the interpreter."""
    from triton.language import standard

    return type(standard.sum).__name__ == "InterpretedFunction"


#: Whether kernels run in Triton's interpreter (on CPU tensors) instead of being compiled for a GPU.
INTERPRET: bool = _choose_interpreter()
#: The device that inputs of kernels live on.
DEVICE: torch.device = torch.device("cpu" if INTERPRET else "cuda")

try:
    import triton
except ImportError as error:
    raise ImportError(
        "Kernels need triton, which has wheels for Linux only (Windows: use WSL; macOS: a Linux machine or Colab). "
        "The site can be built and read without it."
    ) from error

if INTERPRET:
    from academy import interpreter

    interpreter.install()


def describe() -> str:
    """One line for the top of a script: the device, the versions, and the reason if the interpreter is used."""
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    if not INTERPRET:
        return f"{torch.cuda.get_device_name()} (compiled), {versions}"
    reason = "TRITON_INTERPRET is set" if torch.cuda.is_available() else "no GPU found"
    return f"CPU, in Triton's interpreter ({reason}), {versions}"


def autotune(configs: list[triton.Config], key: list[str], **options):
    """`triton.autotune` with two differences.

    It also works without a GPU: nothing can be timed there, so the first config is used. And trials are timed like
    those of `academy bench`, so that the search for a small kernel doesn't compare how long Python took to launch it.

    Args: as `triton.autotune`; put the config that suits most shapes first.
    """
    if INTERPRET:
        configs = configs[:1]
    return triton.autotune(configs=configs, key=key, **{"do_bench": _trial, **options})


def _trial(kernel_call: Callable[[], object], quantiles: tuple[float, float, float]) -> list[float]:
    """Time of one config in ms, at the quantiles that the tuner asks for: the median, 20 % and 80 %."""
    from academy.bench.measure import Gpu

    timing = Gpu(warmup_ms=5, measure_ms=20).milliseconds(lambda _: kernel_call())
    return [timing.median, timing.low, timing.high]
