"""Every public function as the judge takes it: its reference, and its inputs as `INPUTS` says them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from academy.judge.subject import Subject, of_functions
from academy.judge.trials import GROUPS
from tests.kernels import references
from tests.kernels.public_functions import (
    ATTENTION,
    CROSS_ENTROPY,
    DELTA_RULE,
    EXPERTS,
    GROUPED,
    LAYERNORM,
    LINEAR_ATTENTION,
    LINEAR_CROSS_ENTROPY,
    LOW_BIT,
    MATMUL,
    MX_MATMUL,
    RMSNORM,
    SCALED_MATMUL,
    numbers_of_codes,
    under_older_scales,
    with_a_copied_state,
)


@dataclass(frozen=True)
class Public:
    """reference: if none is given, the module's function of that name with `_reference` appended. wrap: around both.
    without: groups that don't fit it."""

    module: str
    function: str
    inputs: Any
    sizes: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[Callable], Callable] = lambda function: function
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    #: PyTorch's dense products make NaN where terms of weight 0 are left out, and in a product plane by plane
    #: infinities meet that cancel; tests/kernels/test_non_finite.py knows.
    without: tuple[str, ...] = ()
    reference: str | Callable = ""

    @property
    def groups(self) -> list[str]:
        return [group for group in GROUPS if group not in self.without]

    def subject(self) -> Subject:
        function = getattr(importlib.import_module(f"annotated_examples.{self.module}"), self.function)
        reference: Any = self.reference or f"{self.module}.{self.function}_reference"
        if isinstance(reference, str):
            module, _, name = reference.rpartition(".")
            reference = getattr(importlib.import_module(f"annotated_examples.{module}"), name)
        pair = self.wrap(function), self.wrap(reference)
        return of_functions(*pair, self.inputs, name=self.function, sizes=self.sizes, dtypes=self.dtypes)

    def __str__(self) -> str:
        return f"{self.module}.{self.function}"


def both(modules: tuple[str, str], function: str, *rest: Any, **options: Any) -> list[Public]:
    usual = dict(reference=f"{modules[0]}.{function}_reference")
    return [Public(module, function, *rest, **usual | options) for module in modules]


def of_a_module(kind: type) -> Callable[[Callable], Callable]:
    """For `apply_…(module, x)`, with a module as wide as x."""

    def wrap(apply: Callable) -> Callable:
        return lambda x: apply(kind(x.shape[-1], device=x.device, dtype=x.dtype), x)

    return wrap


def norm_of_a_module(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x)


def on_a_copy(loss: Callable) -> Callable:
    return lambda logits, labels, **options: loss(logits * 1.0, labels, **options)


def sequences(tokens: int, width: int) -> dict[str, torch.Tensor]:
    """Three sequences in one, the second without tokens."""
    ends = torch.tensor([0, tokens // 3, tokens // 3, tokens], dtype=torch.int32)
    heads = {name: torch.randn(tokens, count, width) for name, count in (("q", 4), ("k", 2), ("v", 2))}
    return heads | dict(cu_seqlens_q=ends, cu_seqlens_k=ends.clone())


def packed_filter(tokens: int, width: int) -> dict[str, torch.Tensor]:
    given = packed_gates(tokens, width)
    return dict(x=given["x"], weight=torch.randn(width, 4), cu_seqlens=given["cu_seqlens"], bias=torch.randn(width))


def packed_gates(tokens: int, width: int) -> dict[str, torch.Tensor]:
    """Three sequences in one, the second without tokens."""
    ends = torch.tensor([0, tokens // 3, tokens // 3, tokens], dtype=torch.int32)
    return dict(a=torch.randn(tokens, width), x=torch.randn(tokens, width), cu_seqlens=ends)


def cache(sequences: int, keys: int, width: int) -> dict[str, torch.Tensor]:
    lengths = torch.arange(sequences, dtype=torch.int32) * keys // max(sequences - 1, 1)
    caches = {name: torch.randn(sequences, keys, 2, width) for name in ("k_cache", "v_cache")}
    return dict(q=torch.randn(sequences, 4, width), **caches, lengths=lengths)


def rows_of_experts(rows: int, width: int) -> dict[str, Any]:
    """Four experts, the second without rows, and a few rows of nobody."""
    ends = torch.tensor([rows // 3, rows // 3, rows // 2, rows - rows // 8], dtype=torch.int32)
    return dict(a=torch.randn(rows, width), b=torch.randn(4, width, 24), offsets=ends)


def gated_tokens(batch: int, tokens: int, width: int) -> dict[str, torch.Tensor]:
    """Two heads of values to one of queries and keys."""
    heads = {name: torch.randn(batch, tokens, count, width) / 4 for name, count in (("q", 1), ("k", 1), ("v", 2))}
    return heads | dict(g=-torch.randn(batch, tokens, 2).abs() / 8)


def gated_sequences(tokens: int, width: int) -> dict[str, torch.Tensor]:
    """Three sequences in one, the second without tokens."""
    ends = torch.tensor([0, tokens // 3, tokens // 3, tokens], dtype=torch.int32)
    return {name: x[0] for name, x in gated_tokens(1, tokens, width).items()} | dict(cu_seqlens=ends)


def short_keys(batch: int, tokens: int, width: int) -> dict[str, torch.Tensor]:
    made = gated_tokens(batch, tokens, width)
    return made | dict(k=made["k"] * 2 / width**0.5, beta=torch.rand(batch, tokens, 2))


def short_keys_of_sequences(tokens: int, width: int) -> dict[str, torch.Tensor]:
    made = {name: x[0] for name, x in short_keys(1, tokens, width).items()}
    return made | dict(cu_seqlens=gated_sequences(tokens, width)["cu_seqlens"])


def one_short_key(batch: int, width: int) -> dict[str, torch.Tensor]:
    made = {name: x[:, 0] for name, x in short_keys(batch, 1, width).items()}
    return dict(state=torch.randn(batch, 2, width, made["v"].shape[-1])) | made


def with_the_state(function: Callable) -> Callable:
    return functools.partial(function, return_final_state=True)


def tokens_of_experts(tokens: int, width: int) -> dict[str, Any]:
    """Four experts, the second without tokens, and a dropped slot."""
    experts = (torch.arange(2 * tokens).view(tokens, 2) * 2 % 4).int()
    experts[:1, 1] = -1
    tensors = dict(x=torch.randn(tokens, width), experts=experts, weights=torch.rand(tokens, 2))
    return tensors | dict(gate_up=torch.randn(4, 20, width) / 4, down=torch.randn(4, width, 10) / 4)


def packed(rows: int, columns: int) -> dict[str, Any]:
    from annotated_examples.gemlite import gemm

    words, scales, zeros = gemm.quantize(torch.randn(128, columns).half(), 4, 64)
    return dict(a=torch.randn(rows, 128), words=words, scales=scales, zeros=zeros)


def microscaled(rows: int, columns: int) -> dict[str, Any]:
    from annotated_examples.mx.microscaling import FP4, quantize_mx_reference

    q, scale = quantize_mx_reference(torch.randn(24, columns), FP4)
    return dict(a=torch.randn(rows, columns), b=q.view(torch.uint8), scale_b=scale.view(torch.uint8))


def decoded(quantize: Callable) -> Callable:
    """Codes times scales. A scale holds for whole groups, wherever they lie."""

    def call(x: torch.Tensor, granularity: str) -> torch.Tensor:
        from annotated_examples.fp8.quantize import dequantize_fp8_reference

        return dequantize_fp8_reference(*quantize(x, granularity))

    return call


def codes_and_largest(quantize: Callable) -> Callable:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, amax = quantize(x, torch.full((), 0.01, device=x.device))
        return q.float(), amax

    return call


def of_numbers(product: Callable) -> Callable:
    """Any numbers as codes, under scales of 1."""

    def call(x: torch.Tensor, y: torch.Tensor, recipe: str) -> torch.Tensor:
        a, b = (tensor.float().clamp(-448, 448).to(torch.float8_e4m3fn) for tensor in (x, y))
        (M, K), N = a.shape, b.shape[1]
        shapes = {"tensor": ((), ()), "row": ((M, 1), (1, N)), "block": ((M, -(-K // 128)), (-(-K // 128), N))}[recipe]
        scales = (torch.ones(shape, device=x.device) for shape in shapes)
        out_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        return product(a, b, *scales, recipe=recipe, out_dtype=out_dtype)

    return call


def four_bits(function: Callable) -> Callable:
    return functools.partial(function, W_nbits=4, group_size=64)


NORM = {"x": "rows cols", "weight": "cols", "bias": "cols"}
GATED = {"gate": "rows cols", "up": "rows cols"}
LOGITS = {"logits": "rows classes", "labels": "rows: int64 below classes"}
HIDDEN = {"x": "rows width", "weight": "classes width", "labels": "rows: int64 below classes"}
CAPPED = {"logit_softcapping": (0.0, 30.0), "logit_scaling": (0.0, 0.5)}
HEADS = {"q": "batch 4 queries width", "k": "batch 2 keys width", "v": "batch 2 keys width"}
WIDTH = {"width": (16, 40)}
HALVES = ("float16", "bfloat16")

PUBLIC = [
    Public("tutorials.vector_add", "vector_add", {"x": "n", "y": "n"}),
    *both(("tutorials.softmax", "fast.softmax"), "softmax", {"x": "rows cols"}),
    Public("tutorials.matmul_blocked", "matmul", {"x": "m k", "y": "k n"}),
    Public("tutorials.matmul_grouped", "matmul", {"x": "m k", "y": "k n", "activation": ("none", "relu")}),
    *both(MATMUL, "matmul", {"a": "m k", "b": "k n", "activation": (None, "leaky_relu", "gelu")}),
    Public("classics.matmul", "matmul", {"a": "m k", "b": "k n", "activation": (None, "silu")}),
    *both(LAYERNORM, "layernorm", NORM),
    *both(
        LAYERNORM, "apply_layernorm", {"x": "rows cols"}, reference=norm_of_a_module,
        wrap=of_a_module(torch.nn.LayerNorm),
    ),
    *both(RMSNORM, "rmsnorm", {"x": "rows cols", "weight": "cols", "offset": (0.0, 1.0)}),
    *both(RMSNORM, "add_rmsnorm", {"x": "rows cols", "residual": "rows cols", "weight": "cols"}),
    *both(RMSNORM, "apply_rmsnorm", {"x": "rows cols"}, reference=norm_of_a_module, wrap=of_a_module(torch.nn.RMSNorm)),
    *both(
        ("recurrences.cumsum", "fast.cumsum"), "cumsum",
        {"x": "rows cols", "dim": (-1, 0), "reverse": (False, True), "exclusive": (False, True)},
    ),
    *both(
        ("recurrences.causal_conv1d", "fast.causal_conv1d"), "causal_conv1d",
        {"x": "batch tokens width", "weight": "width 4", "bias": "width", "activation": (None, "silu")},
    ),
    *both(("recurrences.causal_conv1d", "fast.causal_conv1d"), "causal_conv1d_varlen", packed_filter),
    Public(
        "recurrences.causal_conv1d", "causal_conv1d_step_",
        {"state": "batch width 3", "x": "batch width", "weight": "width 4", "bias": "width"}
        | {"activation": (None, "silu")},
        reference=references.filter_of_one_token, wrap=with_a_copied_state,
    ),
    *both(
        ("recurrences.linear_recurrence", "fast.linear_recurrence"), "linear_recurrence",
        {"a": "batch tokens width", "x": "batch tokens width"},
        wrap=lambda recurrence: lambda a, x: recurrence(a.sin(), x),
    ),
    *both(
        ("recurrences.linear_recurrence", "fast.linear_recurrence"), "linear_recurrence_varlen", packed_gates,
        wrap=lambda recurrence: lambda a, x, cu_seqlens: recurrence(a.sin(), x, cu_seqlens),
    ),
    Public(
        "classics.rope", "rope",
        {"q": "batch 4 tokens width", "k": "batch 2 tokens width", "interleaved": (False, True)}, {"width": (16, 38)},
        wrap=lambda rope: lambda q, k, interleaved: rope(q, k, *angles(q), interleaved=interleaved),
    ),
    Public("classics.geglu", "geglu", GATED | {"approximate": ("none", "tanh")}),
    Public("classics.geglu", "geglu_packed", {"x": "rows 2*cols"}),
    Public("classics.swiglu", "swiglu", GATED),
    Public("classics.swiglu", "swiglu_packed", {"x": "rows 2*cols"}),
    Public("classics.dropout", "dropout", {"x": "rows n", "p": 0.3, "seed": 7}),
    *both(CROSS_ENTROPY, "cross_entropy_loss", LOGITS | CAPPED),
    *both(
        CROSS_ENTROPY, "cross_entropy_loss_", LOGITS, reference="classics.cross_entropy.cross_entropy_loss_reference",
        wrap=on_a_copy,
    ),
    *both(LINEAR_CROSS_ENTROPY, "linear_cross_entropy", HIDDEN | {"bias": "classes"} | CAPPED),
    Public(
        "fast.linear_cross_entropy", "linear_cross_entropy_lean", HIDDEN | {"n_items": 4},
        reference="classics.linear_cross_entropy.linear_cross_entropy_reference",
    ),
    Public(
        "distributed.vocab_parallel_cross_entropy", "vocab_parallel_cross_entropy",
        LOGITS | CAPPED | {"label_smoothing": 0.1, "z_loss": 0.01},
    ),
    Public(
        "distributed.vocab_parallel_cross_entropy", "vocab_parallel_linear_cross_entropy", HIDDEN,
        reference="classics.linear_cross_entropy.linear_cross_entropy_reference",
    ),
    Public(
        "distributed.vocab_parallel_entropy", "vocab_parallel_entropy",
        {"logits": "batch 3 classes"}, dtypes=("float32",),
        without=("magnitudes",),  # where one logit towers above all, PyTorch's gradient is float64's rounding, or 0
    ),
    Public("distributed.all_reduce", "all_reduce", {"x": "batch 3 classes"}),
    Public("distributed.all_gather_matmul", "all_gather_matmul", {"x": "M K", "w": "K N"}),
    Public(
        "attention.causal_attention", "causal_attention", {name: "batch 3 tokens width" for name in "qkv"},
        {"width": (16, 64)}, without=("non-finite",),
    ),
    *both(ATTENTION, "flash_attention", HEADS | {"causal": (False, True)}, WIDTH, without=("non-finite",)),
    *both(
        ATTENTION, "flash_attention_varlen", sequences, WIDTH, reference=references.attention_of_sequences,
        without=("non-finite",),
    ),
    *both(("attention.decode", "fast.decode"), "decode_attention", cache, WIDTH),
    *both(
        LINEAR_ATTENTION, "linear_attention", gated_tokens, WIDTH, wrap=with_the_state,
        without=("non-finite", "magnitudes"),
    ),
    *both(
        LINEAR_ATTENTION, "linear_attention_varlen", gated_sequences, WIDTH,
        reference=references.linear_attention_of_sequences, wrap=with_the_state, without=("non-finite", "magnitudes"),
    ),
    *both(DELTA_RULE, "gated_delta_rule", short_keys, WIDTH, wrap=with_the_state, without=("non-finite", "magnitudes")),
    *both(
        DELTA_RULE, "gated_delta_rule_varlen", short_keys_of_sequences, WIDTH,
        reference=references.delta_rule_of_sequences, wrap=with_the_state, without=("non-finite", "magnitudes"),
    ),
    Public(
        "recurrences.gated_delta_rule_step", "gated_delta_rule_step_", one_short_key, WIDTH,
        reference=references.delta_rule_step, wrap=with_a_copied_state, without=("non-finite", "magnitudes"),
    ),
    Public("recurrences.l2_normalize", "l2_normalize", {"x": "rows cols"}),
    Public(
        "fp8.quantize", "quantize_fp8", {"x": "rows cols", "granularity": ("tensor", "row", "1x128", "128x128")},
        wrap=decoded,
    ),
    Public("fp8.quantize", "quantize_fp8_delayed", {"x": "rows cols"}, wrap=codes_and_largest),
    Public(
        "fp8.linear", "float8_linear",
        {"x": "rows inner", "weight": "cols inner", "bias": "cols", "recipe": ("tensor", "row", "block")},
    ),
    Public(
        "mx.microscaling", "quantize_mx", {"x": "rows cols", "scaling": ("rceil", "floor", "even")}, {"cols": (32, 96)},
        wrap=numbers_of_codes,
    ),
    Public("mx.microscaling", "quantize_nvfp4", {"x": "rows cols"}, {"cols": (32, 96)}, wrap=numbers_of_codes),
    *both(
        MX_MATMUL, "mx_matmul", microscaled, {"columns": (32, 96)},
        lambda product: functools.partial(product, format="e2m1"), HALVES,
    ),
    Public(
        "fp8.linear", "float8_linear_delayed", {"x": "rows inner", "weight": "cols inner", "bias": "cols"},
        wrap=under_older_scales,
    ),
    *both(
        SCALED_MATMUL, "scaled_matmul", {"x": "rows inner", "y": "inner cols", "recipe": ("tensor", "row", "block")},
        wrap=of_numbers,
    ),
    Public(
        "moe.router", "route",
        {"logits": "tokens classes", "score": ("softmax", "sigmoid"), "renormalize": (True, False)},
        wrap=lambda route: lambda logits, **options: route(logits, 1, **options)[0],
    ),
    *[
        Public(
            module, "grouped_matmul", rows_of_experts,
            {"width": (16, 40)}, reference="moe.grouped_matmul.grouped_matmul_reference",
            without=("non-finite",),  # PyTorch's sum over rows multiplies zeros with them
        )
        for module in GROUPED
    ],
    *[
        Public(
            module, "moe_mlp", tokens_of_experts, {"width": (16, 40)}, reference="moe.moe_mlp.moe_mlp_reference",
            without=("non-finite",),  # PyTorch multiplies the zeros of dropped slots
        )
        for module in EXPERTS
    ],
    Public("moe.router", "router_z_loss", {"logits": "tokens classes"}),
    Public(
        "moe.router", "load_balancing_loss",
        {"logits": "tokens classes", "experts": "tokens 2: int32 below classes", "score": ("softmax", "sigmoid")},
    ),
    Public("choosing.sample", "filter_logits", {"logits": "rows classes", "top_k": (None, 3), "top_p": (None, 0.83)}),
    Public(
        "choosing.sample", "sample",
        {"logits": "rows classes", "seed": 7, "temperature": (0.7, 0.0), "top_k": (None, 3), "top_p": (None, 0.83)},
    ),
    *[
        Public(
            module, name, packed, {"columns": (32, 96)}, four_bits, HALVES, reference="gemlite.gemm.gemm_reference",
            without=("non-finite",) if module == "fast.low_bit" else (),
        )
        for module, name in (("gemlite.gemm", "gemm"), ("gemlite.gemm_splitK", "gemm_splitK"),
                             *((module, "low_bit_matmul") for module in LOW_BIT))
    ],
]  # fmt: skip


def angles(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, width = q.shape[-2:]
    table = torch.arange(tokens * (width // 2), device=q.device, dtype=torch.float32).view(tokens, width // 2) / 10
    table = table.double() if q.dtype == torch.float64 else table
    return table.cos(), table.sin()
