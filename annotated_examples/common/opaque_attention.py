r"""
# Attention inside `torch.compile`

The compiler can't trace a launch with tuples of tensors. So inside `torch.compile` both launchers are custom operators,
of which the compiler knows only the shapes of the results. Elsewhere they are called directly.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.runtime.replay import replayed

import functools

import torch

from annotated_examples.common.attention import Options, lse_dtype


def opaque_decode(launch_forward):
    """Decorate a launcher of decode: inside `torch.compile` it is a custom operator. A compiled call ignores
    `tiles`."""
    launch_forward = replayed(launch_forward)
    name = f"{launch_forward.__module__.replace('.', '_')}::{launch_forward.__name__}"

    @torch.library.custom_op(name, mutates_args=())
    def operator(
        q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lengths: torch.Tensor,
        block_table: torch.Tensor | None, scale: float, left: int, softcap: float, sinks: torch.Tensor | None,
        num_splits: int | None = None,
    ) -> torch.Tensor:  # fmt: skip
        return launch_forward(q, k_cache, v_cache, lengths, block_table, scale, left, softcap, sinks, num_splits)

    @operator.register_fake
    def _(q, *rest):
        return q.new_empty(q.shape)

    @functools.wraps(launch_forward)
    def launcher(*tensors_and_options, **tiles):
        if torch.compiler.is_compiling():
            return operator(*tensors_and_options)
        return launch_forward(*tensors_and_options, **tiles)

    return launcher


def opaque_causal_attention(launch_forward, launch_backward):
    """The two launchers of causal attention, as functions that call custom operators inside `torch.compile`. A compiled
    call ignores `tiles`."""
    launch_forward, launch_backward = replayed(launch_forward), replayed(launch_backward)
    namespace = launch_forward.__module__.replace(".", "_")

    @torch.library.custom_op(f"{namespace}::{launch_forward.__name__}", mutates_args=())
    def forward_operator(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        return launch_forward(q, k, v, scale)

    @forward_operator.register_fake
    def _(q, *rest):
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=lse_dtype(q.dtype))

    @torch.library.custom_op(f"{namespace}::{launch_backward.__name__}", mutates_args=())
    def backward_operator(
        do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        return launch_backward(do, q, k, v, o, lse, scale)

    @backward_operator.register_fake
    def _(do, q, k, v, *rest):
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    @functools.wraps(launch_forward)
    def forward(*tensors_and_scale, **tiles):
        if torch.compiler.is_compiling():
            return forward_operator(*tensors_and_scale)
        return launch_forward(*tensors_and_scale, **tiles)

    @functools.wraps(launch_backward)
    def backward(*tensors_and_scale, **tiles):
        if torch.compiler.is_compiling():
            return backward_operator(*tensors_and_scale)
        return launch_backward(*tensors_and_scale, **tiles)

    return forward, backward


def opaque_attention(launch_forward, launch_backward):
    """The two launchers of attention, as functions that call custom operators inside `torch.compile`."""
    launch_forward, launch_backward = replayed(launch_forward), replayed(launch_backward)
    namespace = launch_forward.__module__.replace(".", "_")

    @torch.library.custom_op(f"{namespace}::{launch_forward.__name__}", mutates_args=())
    def forward_operator(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None,
        cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None,
        scale: float, left: int, right: int, softcap: float, max_seqlen_q: int, max_seqlen_k: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        options = Options(scale, left, right, softcap, max_seqlen_q, max_seqlen_k)
        return launch_forward(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, options)

    @forward_operator.register_fake
    def _(q, k, v, sinks, *rest):
        return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=lse_dtype(q.dtype))

    @torch.library.custom_op(f"{namespace}::{launch_backward.__name__}", mutates_args=())
    def backward_operator(
        do: torch.Tensor | None, dlse: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        sinks: torch.Tensor | None, cu_seqlens_q: torch.Tensor | None, cu_seqlens_k: torch.Tensor | None,
        o: torch.Tensor, lse: torch.Tensor,
        scale: float, left: int, right: int, softcap: float, max_seqlen_q: int, max_seqlen_k: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        options = Options(scale, left, right, softcap, max_seqlen_q, max_seqlen_k)
        *gradients, dsinks = launch_backward(do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, lse, options)
        return *gradients, q.new_empty(0) if dsinks is None else dsinks

    @backward_operator.register_fake
    def _(do, dlse, q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, o, *rest):
        dsinks = q.new_empty(0) if sinks is None else torch.empty_like(sinks)
        return torch.empty_like(o), torch.empty_like(k), torch.empty_like(k), dsinks

    @functools.wraps(launch_forward)
    def forward(*tensors_and_options):
        *tensors, options = tensors_and_options
        if torch.compiler.is_compiling():
            return forward_operator(*tensors, *options)
        return launch_forward(*tensors, options)

    @functools.wraps(launch_backward)
    def backward(*tensors_and_options):
        *tensors, options = tensors_and_options
        if not torch.compiler.is_compiling():
            return launch_backward(*tensors, options)
        *gradients, dsinks = backward_operator(*tensors, *options)
        return *gradients, None if tensors[5] is None else dsinks  # tensors[5]: sinks

    return forward, backward
