"""Where kernels run: compiled on an NVIDIA GPU, or in Triton's interpreter on the CPU. Decided once, at import.

Every kernel file imports this module before it imports triton, because Triton reads `TRITON_INTERPRET` while its own
library is being imported. Without a GPU this module sets the variable; a value set by the reader is respected.

Names: `INTERPRET` (bool), `DEVICE` (`torch.device`), `has()`, `require()`, `shared_memory()`, `describe()`,
`tf32_allowed()`, `autotune()`.
Source of the interpreter's rules: Triton's documentation, "Debugging Triton".
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import torch

from academy.runtime.plugs import plugged

_TRUE = {"1", "true", "on", "yes", "y"}


def _choose_interpreter() -> bool:
    asked = os.environ.get("TRITON_INTERPRET")
    interpret = asked.lower() in _TRUE if asked is not None else not torch.cuda.is_available()
    if interpret and "triton.language" in sys.modules and not _triton_interprets():
        raise ImportError(
            "triton was imported before academy.runtime.device, and there is no GPU: by now Triton's own functions are "
            "set up for one. Import academy.runtime.device (or a kernel file) first, or set TRITON_INTERPRET=1."
        )
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    return interpret


def _triton_interprets() -> bool:
    """Whether the triton that is already imported was imported for the interpreter."""
    from triton.language import standard

    return type(standard.sum).__name__ == "InterpretedFunction"


def _without_triton() -> str:
    """What to do where triton can't be imported, in one sentence."""
    if (system := platform.system()) == "Linux":
        return "Kernels need triton, which is not installed: pip install triton."
    elsewhere = "WSL or a Linux machine" if system == "Windows" else "a Linux machine"
    page = "the editor on each kernel's page (make serve), which brings its own"
    return f"Triton has no wheel for {system}, so this kernel runs in {page}, or on {elsewhere}."


#: Whether kernels run in Triton's interpreter (on CPU tensors) instead of being compiled for a GPU.
INTERPRET: bool = _choose_interpreter()
#: The device that inputs of kernels live on.
DEVICE: torch.device = torch.device("cpu" if INTERPRET else "cuda")

try:
    import triton
except ImportError as error:
    raise ImportError(_without_triton()) from error

if INTERPRET:
    from academy import interpreter

    interpreter.install()

    def _simulated(kernel, *args, **kwargs):
        """What a Gluon kernel does without a GPU. Only these get here: other kernels are `InterpretedFunction`s."""
        return plugged("simulate")(kernel, *args, **kwargs)

    triton.JITFunction.run = _simulated


def _device_of(values: Any) -> int | None:
    """The GPU of the first tensor among a launch's arguments."""
    for value in values:
        if isinstance(value, tuple):
            found = _device_of(value)
            if found is not None:
                return found
            continue
        value = getattr(value, "base", value)  # of a tensor descriptor
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return value.get_device()
    return None


def on_the_tensors_device(run: Callable) -> Callable:
    """Around `JITFunction.run`: launch on the GPU that the tensors are on, as PyTorch's operations do.

    Triton launches on the current GPU, and there the addresses of another one mean nothing.
    """

    @functools.wraps(run)
    def method(kernel, *args, **kwargs):
        index = _device_of((*args, *kwargs.values()))
        if index is None or index == torch.cuda.current_device():
            return run(kernel, *args, **kwargs)
        with torch.cuda.device(index):
            return run(kernel, *args, **kwargs)

    return method


if not INTERPRET and torch.cuda.device_count() > 1:  # with a single GPU a launch need not pay for it
    for _owner in (triton.JITFunction, triton.runtime.Autotuner):
        _owner.run = on_the_tensors_device(_owner.run)


#: What not every card has -> the least and the greatest compute capability, and what to say.
FEATURES: dict[str, tuple[tuple[int, int], tuple[int, int], str]] = {
    "fp8": ((8, 9), (99, 0), "tensor cores that multiply 8-bit floats: compute capability 8.9 or newer"),
    "gluon": ((9, 0), (9, 0), "Hopper's wgmma and TMA: compute capability 9.0"),
    "descriptors": ((9, 0), (99, 0), "a TMA for tensor descriptors: compute capability 9.0 or newer"),
}


def has(feature: str, index: int | None = None) -> bool:
    """Whether a GPU has one of `FEATURES`. The interpreter has all of them.

    index: of the GPU, as in `tensor.device.index`; None: the current one.
    """
    least, most, _ = FEATURES[feature]
    return INTERPRET or least <= torch.cuda.get_device_capability(index) <= most


def require(feature: str, what: str, index: int | None = None) -> None:
    """Raise RuntimeError, before anything is launched, if a GPU lacks one of `FEATURES`.

    what: the function that needs it, as the error names it. index: as in `has`.
    """
    if not has(feature, index):
        major, minor = torch.cuda.get_device_capability(index)
        name = torch.cuda.get_device_name(index)
        raise RuntimeError(f"{what} needs {FEATURES[feature][2]}; {name} has {major}.{minor}")


def eps_of_eight_bit_sums() -> float:
    """The relative precision of a sum of products of eight-bit floats: on Hopper the accumulator keeps 14 bits."""
    hopper = not INTERPRET and torch.cuda.get_device_capability()[0] == 9
    return 2.0**-13 if hopper else torch.finfo(torch.float32).eps


@functools.cache
def shared_memory(index: int | None) -> int:
    """Bytes of shared memory that a program may use on a GPU: 101,376 on many, up to 232,448 on the largest.

    index: as in `tensor.device.index`. In the interpreter there is no limit, and this is the largest.
    """
    if INTERPRET or index is None:
        return 227 << 10
    return torch.cuda.get_device_properties(index).shared_memory_per_block_optin


def describe() -> str:
    """One line for the top of a script: the device, the versions, and the reason if the interpreter is used."""
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    if not INTERPRET:
        return f"{torch.cuda.get_device_name()} (compiled), {versions}"
    reason = "TRITON_INTERPRET is set" if torch.cuda.is_available() else "no GPU found"
    return f"CPU, in Triton's interpreter ({reason}), {versions}"


#: Settings that were asked for, as functions: `academy.runtime.replay` asks again before it replays a call.
ASKED: set[Callable[[], object]] = set()


def tf32_allowed() -> bool:
    """Whether PyTorch may round float32 factors of a matrix product to tf32.

    Reads `torch.backends.cuda.matmul.fp32_precision`, which follows every way of setting it. `allow_tf32`, the older
    name, raises an error once the newer one has been set.
    """
    ASKED.add(tf32_allowed)
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


# Dynamo can't follow the setting itself, and compiles again when it changes. This is all that the decorator
# `torch.compiler.assume_constant_result` does, but that imports Dynamo: two seconds for every process.
tf32_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


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
    from academy.runtime.timing import Gpu

    timing = Gpu(warmup_ms=5, measure_ms=20).milliseconds(lambda _: kernel_call())
    return [timing.median, timing.low, timing.high]
