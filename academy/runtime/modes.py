"""Base classes of modes, which see each operation of PyTorch while they are entered.

PyTorch keeps its compiler away from a mode, and imports it for that: two seconds in each process, and something at each
operation. These say that it need not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
else:
    try:
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError:  # the playground's torch has no modes, and nothing enters one there
        TorchDispatchMode = TorchFunctionMode = object


class _BesideTheCompiler:
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class DispatchMode(_BesideTheCompiler, TorchDispatchMode):
    """Sees operations on their way to memory, in `__torch_dispatch__`."""


class FunctionMode(_BesideTheCompiler, TorchFunctionMode):
    """Sees calls of PyTorch's functions, in `__torch_function__`."""
