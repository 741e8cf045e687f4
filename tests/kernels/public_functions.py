"""Every public function with inputs for it: what tests that walk all of them go through."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.kernels.harness import DEVICE, randn

BF16, FP16 = torch.bfloat16, torch.float16


def labels(rows: int, vocabulary: int) -> torch.Tensor:
    values = torch.randint(0, vocabulary, (rows,), device=DEVICE)
    values[1] = -100
    return values


def quantized(M: int, N: int = 256, K: int = 256) -> dict:
    from annotated_examples.gemlite import gemm

    words, scales, zeros = gemm.quantize(randn(K, N, dtype=FP16), 4, 128)
    return dict(a=randn(M, K, dtype=FP16), words=words, scales=scales, zeros=zeros)


@dataclass(frozen=True)
class Case:
    """A public function: where it is, a function that makes inputs for it, its options.

    `wrap(function)` is called instead, where something has to be around the function.
    """

    module: str
    function: str
    inputs: Callable[[], dict]
    options: dict
    wrap: Callable[[Callable], Callable]

    @property
    def differentiable(self) -> bool:
        return not {self.module, f"{self.module}.{self.function}"} & FORWARD_ONLY

    def load(self) -> Callable:
        """The function with its options."""
        module = importlib.import_module(f"annotated_examples.{self.module}")
        function = self.wrap(getattr(module, self.function))
        return lambda **inputs: function(**inputs, **self.options)

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return f"{self.module}.{self.function}({options})"


def as_it_is(function: Callable) -> Callable:
    return function


def case(module: str, function: str, inputs: Callable[[], dict], wrap=as_it_is, **options) -> Case:
    return Case(module, function, inputs, options, wrap)


def matrices(first: str, second: str) -> Callable[[], dict]:
    return lambda: {first: randn(96, 160, dtype=BF16), second: randn(160, 64, dtype=BF16)}


def gate_and_up() -> dict:
    return dict(gate=randn(5, 300, dtype=BF16), up=randn(5, 300, dtype=BF16))


def scaled_rows() -> dict:
    return dict(x=randn(6, 1000, dtype=BF16), weight=randn(1000, dtype=BF16))


def heads() -> dict:
    return dict(q=randn(2, 4, 6, 32, dtype=BF16), k=randn(2, 2, 6, 32, dtype=BF16))


def with_angles(rope: Callable) -> Callable:
    """Queries and keys turned by fixed tables, which get no gradient, side by side."""
    angles = torch.arange(6 * 12, device=DEVICE).view(6, 12) / 10
    return lambda q, k, **options: torch.cat(rope(q, k, angles.cos(), angles.sin(), **options), dim=1)


def logits() -> dict:
    return dict(logits=randn(6, 1000, dtype=BF16), labels=labels(6, 1000))


def queries_keys_values(tokens: int = 40) -> dict:
    return dict(zip("qkv", (randn(1, count, tokens, 64, dtype=BF16) for count in (4, 2, 2))))


def one_head_each() -> dict:
    return {name: randn(1, 2, 40, 64, dtype=BF16) for name in "qkv"}


def sequences() -> dict:
    """Two sequences, of 30 and 10 tokens."""
    ends = torch.tensor([0, 30, 40], dtype=torch.int32, device=DEVICE)
    tokens = {name: x[0].transpose(0, 1) for name, x in queries_keys_values().items()}
    return tokens | dict(cu_seqlens_q=ends, cu_seqlens_k=ends.clone())


def with_sinks() -> dict:
    return queries_keys_values() | dict(sinks=randn(4, dtype=BF16))


def cache() -> dict:
    """Two sequences, of 300 and 20 keys."""
    lengths = torch.tensor([300, 20], dtype=torch.int32, device=DEVICE)
    caches = {name: randn(2, 300, 2, 64, dtype=BF16) for name in ("k_cache", "v_cache")}
    return dict(q=randn(2, 4, 64, dtype=BF16), **caches, lengths=lengths)


def gated_tokens() -> dict:
    """Forty tokens, two heads of values to one of queries and keys."""
    tokens = {name: randn(1, 40, heads, 64, dtype=BF16) / 4 for name, heads in (("q", 1), ("k", 1), ("v", 2))}
    return tokens | dict(g=-randn(1, 40, 2).abs() / 8)


def with_a_state() -> dict:
    return gated_tokens() | dict(initial_state=randn(1, 2, 64, 64))


def packed_tokens() -> dict:
    """Two sequences, of 30 and 10 tokens."""
    ends = torch.tensor([0, 30, 40], dtype=torch.int32, device=DEVICE)
    tokens = {name: x[0] for name, x in gated_tokens().items()}
    return tokens | dict(cu_seqlens=ends, initial_state=randn(2, 2, 64, 64))


def short_keys() -> dict:
    tokens = gated_tokens()
    keys = torch.nn.functional.normalize(tokens["k"].float(), dim=-1).to(BF16)
    return tokens | dict(k=keys, beta=torch.rand(1, 40, 2, device=DEVICE))


def packed_short_keys() -> dict:
    return packed_tokens() | {name: x[0] for name, x in short_keys().items()}


def one_short_key() -> dict:
    tokens = {name: x[:, 0] for name, x in short_keys().items()}
    return dict(state=randn(1, 2, tokens["q"].shape[-1], tokens["v"].shape[-1])) | tokens


def first(function: Callable) -> Callable:
    """Of several results the first."""
    return lambda **arguments: function(**arguments)[0]


def of_a_module(kind: type) -> Callable[[Callable], Callable]:
    return lambda apply: functools.partial(apply, kind(1000, device=DEVICE, dtype=BF16))


def stacked(function: Callable) -> Callable:
    """Several results of one shape in one tensor."""
    return lambda *tensors, **options: torch.stack(function(*tensors, **options))


def in_one(function: Callable) -> Callable:
    """All results in one vector of numbers."""
    return lambda *tensors, **options: torch.cat([out.float().flatten() for out in function(*tensors, **options)])


def gates_and_values() -> dict:
    gates = randn(2, 20, 40, dtype=BF16).sigmoid()
    return dict(a=gates, x=randn(2, 20, 40, dtype=BF16), initial_state=randn(2, 40))


def packed_gates_and_values() -> dict:
    """Two sequences, of 12 and 8 tokens."""
    rows = {name: value[0] for name, value in gates_and_values().items() if name != "initial_state"}
    ends = torch.tensor([0, 12, 20], dtype=torch.int32, device=DEVICE)
    return rows | dict(cu_seqlens=ends, initial_state=randn(2, 40))


def packed_and_long_gates() -> dict:
    """Sequences of 16 tokens and more, as the fast version wants them."""
    ends = torch.tensor([0, 24, 40], dtype=torch.int32, device=DEVICE)
    rows = dict(a=randn(40, 40, dtype=BF16).sigmoid(), x=randn(40, 40, dtype=BF16))
    return rows | dict(cu_seqlens=ends, initial_state=randn(2, 40))


def filtered() -> dict:
    taps = dict(weight=randn(40, 4, dtype=BF16), bias=randn(40, dtype=BF16))
    return dict(x=randn(2, 20, 40, dtype=BF16), **taps, initial_state=randn(2, 40, 3, dtype=BF16))


def packed_filtered() -> dict:
    ends = torch.tensor([0, 12, 20], dtype=torch.int32, device=DEVICE)
    given = filtered()
    return given | dict(x=given["x"][0], cu_seqlens=ends)


def packed_and_long() -> dict:
    """Sequences of 16 tokens and more, as the fast version wants them."""
    ends = torch.tensor([0, 24, 40], dtype=torch.int32, device=DEVICE)
    return filtered() | dict(x=randn(40, 40, dtype=BF16), cu_seqlens=ends)


def one_token() -> dict:
    given = filtered()
    return dict(state=given.pop("initial_state")) | given | dict(x=given["x"][:, 0])


def with_a_copied_state(step: Callable) -> Callable:
    return lambda state, **rest: step(state.clone() if isinstance(state, torch.Tensor) else state, **rest)


def codes(quantize: Callable) -> Callable:
    """The numbers that codes of eight bits stand for, under a scale of 1."""
    return lambda *tensors, **options: quantize(*tensors, **options)[0].float()


def with_a_scale() -> dict:
    return dict(x=randn(6, 300, dtype=BF16), scale=torch.full((), 0.01, device=DEVICE))


def of_a_linear_layer() -> dict:
    return dict(x=randn(6, 160, dtype=BF16), weight=randn(12, 160, dtype=BF16), bias=randn(12, dtype=BF16))


def under_older_scales(linear: Callable) -> Callable:
    """A layer that has seen one step."""
    from annotated_examples.fp8.linear import DelayedScaling

    state = DelayedScaling.of_a_layer(4)
    for scaling in state:
        scaling.scale()
        scaling.record(torch.full((), 3.0, device=DEVICE))
        scaling.step()
    return functools.partial(linear, state=state)


def numbers_of_codes(quantize: Callable) -> Callable:
    """The numbers that codes of a microscaling format stand for, under the scales that were found."""

    def call(x, *arguments, **options):
        from annotated_examples.mx import microscaling

        found = quantize(x, *arguments, **options)
        decode = microscaling.dequantize_mx_reference if len(found) == 2 else microscaling.dequantize_nvfp4_reference
        return decode(*found, torch.float32)

    return call


def microscaled_weights() -> dict:
    """Codes and scales of 12 x 160 weights, in bytes."""
    from annotated_examples.mx.microscaling import FP4, quantize_mx_reference

    q, scale = quantize_mx_reference(randn(12, 160), FP4)
    codes = dict(b=q.view(torch.uint8), scale_b=scale.view(torch.uint8))
    return dict(a=randn(20, 160, dtype=BF16)) | codes | dict(bias=randn(12, dtype=BF16))


def scaled_codes(recipe: str) -> Callable[[], dict]:
    """Codes of 20 x 160 and 160 x 12, their scales, and a bias."""
    shapes = {"tensor": ((), ()), "row": ((20, 1), (1, 12)), "block": ((20, 2), (2, 1))}[recipe]

    def inputs():
        scales = (torch.rand(shape, device=DEVICE) + 0.5 for shape in shapes)
        codes = randn(20, 160).to(torch.float8_e4m3fn), randn(12, 160).to(torch.float8_e4m3fn).t()
        return dict(zip(("a", "b", "scale_a", "scale_b", "bias"), (*codes, *scales, randn(12))))

    return inputs


def numbers_of_tokens(sample: Callable) -> Callable:
    """The tokens that are drawn, as floats."""
    return lambda logits, **options: sample(logits, **options).float()


def weights_alone(route: Callable) -> Callable:
    """A router's weights, without its experts."""
    return lambda logits, **options: route(logits, **options)[0]


def weights_by_row(route: Callable) -> Callable:
    """A router's weights in the order of experts."""

    def call(logits, **options):
        from annotated_examples.moe.router import sort_by_expert

        weights, experts = route(logits, **options)
        return weights.flatten()[sort_by_expert(experts, logits.shape[1]).order.long()]

    return call


def routed() -> dict:
    """Experts of 5 tokens, one slot dropped."""
    experts = torch.arange(10, dtype=torch.int32, device=DEVICE).view(5, 2) * 7 % 12
    experts[3, 1] = -1
    return dict(experts=experts)


def rows_of_experts() -> dict:
    """Experts of 9, no and 20 rows, and three rows of nobody."""
    ends = torch.tensor([9, 9, 29], dtype=torch.int32, device=DEVICE)
    factors = dict(a=randn(32, 40, dtype=BF16), b=randn(3, 40, 24, dtype=BF16), bias=randn(3, 24, dtype=BF16))
    return factors | dict(offsets=ends)


def columns_of_experts() -> dict:
    ends = torch.tensor([9, 9, 29], dtype=torch.int32, device=DEVICE)
    return dict(a=randn(40, 32, dtype=BF16), b=randn(32, 24, dtype=BF16), offsets=ends)


def tokens_of_experts() -> dict:
    tensors = dict(x=randn(5, 40, dtype=BF16), weights=randn(5, 2))
    return tensors | routed() | dict(gate_up=randn(12, 48, 40, dtype=BF16), down=randn(12, 40, 24, dtype=BF16))


def hidden_states(bias: bool = False) -> Callable[[], dict]:
    def inputs():
        tensors = dict(x=randn(6, 64, dtype=BF16), weight=randn(1000, 64, dtype=BF16) / 8, labels=labels(6, 1000))
        return tensors | (dict(bias=randn(1000, dtype=BF16)) if bias else {})

    return inputs


def on_a_copy(loss: Callable) -> Callable:
    """The loss may overwrite its logits, and a leaf must not be overwritten."""
    return lambda logits, labels: loss(logits * 1.0, labels)


def both(lesson: str, fast: str, function: str, inputs, wrap=as_it_is, **options) -> list[Case]:
    """The lesson's function and the fast file's."""
    return [case(module, function, inputs, wrap, **options) for module in (lesson, fast)]


LAYERNORM = ("classics.layernorm", "fast.layernorm")
RMSNORM = ("classics.rmsnorm", "fast.rmsnorm")
ATTENTION = ("attention.flash_attention", "fast.flash_attention")
CROSS_ENTROPY = ("classics.cross_entropy", "fast.cross_entropy")
MATMUL = ("tutorials.matmul_autotuned", "fast.matmul")
LINEAR_CROSS_ENTROPY = ("classics.linear_cross_entropy", "fast.linear_cross_entropy")
LINEAR_ATTENTION = ("recurrences.linear_attention", "fast.linear_attention")
DELTA_RULE = ("recurrences.gated_delta_rule", "fast.gated_delta_rule")
LOW_BIT = ("gemlite.gemm_splitK", "fast.low_bit")
EXPERTS = ("moe.moe_mlp", "fast.moe_mlp")
GROUPED = ("moe.grouped_matmul", "fast.grouped_matmul")
SCALED_MATMUL = ("fp8.scaled_matmul", "fast.scaled_matmul")
MX_MATMUL = ("mx.mx_matmul", "fast.mx_matmul")

CASES = [
    case("tutorials.vector_add", "vector_add", lambda: dict(x=randn(1000, dtype=BF16), y=randn(1000, dtype=BF16))),
    *both("tutorials.softmax", "fast.softmax", "softmax", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    case("tutorials.matmul_blocked", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y")),
    case("tutorials.matmul_grouped", "matmul", matrices("x", "y"), activation="relu"),
    *both(*MATMUL, "matmul", matrices("a", "b")),
    *both(*MATMUL, "matmul", matrices("a", "b"), activation="leaky_relu"),
    case("classics.matmul", "matmul", matrices("a", "b")),
    case("classics.matmul", "matmul", matrices("a", "b"), activation="gelu"),
    *both(
        *LAYERNORM,
        "layernorm",
        lambda: dict(x=randn(6, 1000, dtype=BF16), weight=randn(1000, dtype=BF16), bias=randn(1000, dtype=BF16)),
    ),
    *both(*LAYERNORM, "layernorm", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    *both(*LAYERNORM, "apply_layernorm", lambda: dict(x=randn(6, 1000, dtype=BF16)), of_a_module(torch.nn.LayerNorm)),
    *both(*RMSNORM, "rmsnorm", scaled_rows),
    *both(*RMSNORM, "rmsnorm", scaled_rows, offset=1.0),
    *both(*RMSNORM, "add_rmsnorm", lambda: scaled_rows() | dict(residual=randn(6, 1000, dtype=BF16)), stacked),
    *both(*RMSNORM, "apply_rmsnorm", lambda: dict(x=randn(6, 1000, dtype=BF16)), of_a_module(torch.nn.RMSNorm)),
    case("classics.rope", "rope", heads, with_angles),
    case("classics.rope", "rope", heads, with_angles, interleaved=True),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits, logit_softcapping=30.0, logit_scaling=0.5),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", logits, n_items=4),
    *both(*CROSS_ENTROPY, "cross_entropy_loss_", logits, on_a_copy),
    *both(*LINEAR_CROSS_ENTROPY, "linear_cross_entropy", hidden_states()),
    *both(
        *LINEAR_CROSS_ENTROPY, "linear_cross_entropy", hidden_states(True), logit_softcapping=30.0, logit_scaling=0.5
    ),
    case("fast.linear_cross_entropy", "linear_cross_entropy_lean", hidden_states(), n_items=4),
    case("distributed.vocab_parallel_cross_entropy", "vocab_parallel_cross_entropy", logits),
    case(
        "distributed.vocab_parallel_cross_entropy",
        "vocab_parallel_cross_entropy",
        logits,
        label_smoothing=0.1,
        z_loss=0.01,
        logit_softcapping=30.0,
    ),
    case("distributed.vocab_parallel_cross_entropy", "vocab_parallel_linear_cross_entropy", hidden_states()),
    case(
        "distributed.vocab_parallel_entropy", "vocab_parallel_entropy", lambda: dict(logits=randn(6, 1000, dtype=BF16))
    ),
    case("distributed.all_reduce", "all_reduce", lambda: dict(x=randn(5, 300, dtype=BF16))),
    case("distributed.all_gather_matmul", "all_gather_matmul", matrices("x", "w")),
    case("classics.geglu", "geglu", gate_and_up),
    case("classics.geglu", "geglu", gate_and_up, approximate="tanh"),
    case("classics.geglu", "geglu_packed", lambda: dict(x=randn(5, 600, dtype=BF16))),
    case("classics.swiglu", "swiglu", gate_and_up),
    case("classics.swiglu", "swiglu_packed", lambda: dict(x=randn(5, 600, dtype=BF16))),
    case("classics.dropout", "dropout", lambda: dict(x=randn(5, 300, dtype=BF16)), p=0.3, seed=7),
    case("attention.causal_attention", "causal_attention", one_head_each),
    *both(*ATTENTION, "flash_attention", queries_keys_values, causal=True),
    *both(*ATTENTION, "flash_attention", with_sinks, causal=True, window=9, softcap=5.0),
    *both(*ATTENTION, "flash_attention_varlen", sequences, causal=True),
    *both("attention.decode", "fast.decode", "decode_attention", cache),
    case("recurrences.cumsum", "cumsum", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    case(
        "recurrences.cumsum", "cumsum", lambda: dict(x=randn(3, 50, 4, dtype=BF16)), dim=1, reverse=True, exclusive=True
    ),
    case("recurrences.causal_conv1d", "causal_conv1d", filtered, activation="silu"),
    case("recurrences.causal_conv1d", "causal_conv1d", filtered, in_one, return_final_state=True),
    case("recurrences.causal_conv1d", "causal_conv1d_varlen", packed_filtered, activation="silu"),
    case("recurrences.causal_conv1d", "causal_conv1d_step_", one_token, with_a_copied_state, activation="silu"),
    case("recurrences.linear_recurrence", "linear_recurrence", gates_and_values),
    case("recurrences.linear_recurrence", "linear_recurrence", gates_and_values, in_one, return_final_state=True),
    case("recurrences.linear_recurrence", "linear_recurrence_varlen", packed_gates_and_values),
    case("recurrences.linear_attention", "linear_attention", gated_tokens),
    case(
        "recurrences.linear_attention", "linear_attention", with_a_state, scale=0.5, return_final_state=True, wrap=first
    ),
    case("recurrences.linear_attention", "linear_attention_varlen", packed_tokens),
    case("recurrences.gated_delta_rule", "gated_delta_rule", short_keys),
    case("recurrences.gated_delta_rule", "gated_delta_rule_varlen", packed_short_keys),
    case("recurrences.gated_delta_rule_step", "gated_delta_rule_step_", one_short_key, with_a_copied_state),
    case("recurrences.l2_normalize", "l2_normalize", lambda: dict(x=randn(6, 100, dtype=BF16))),
    case("gemlite.gemm", "gemm", lambda: quantized(24), W_nbits=4, group_size=128),
    case("gemlite.gemm_splitK", "gemm_splitK", lambda: quantized(4), W_nbits=4, group_size=128),
    *both(*LOW_BIT, "low_bit_matmul", lambda: quantized(1), W_nbits=4, group_size=128),
    *both(*LOW_BIT, "low_bit_matmul", lambda: quantized(64), W_nbits=4, group_size=128),
    *[
        case("fp8.quantize", "quantize_fp8", lambda: dict(x=randn(6, 300, dtype=BF16)), codes, granularity=granularity)
        for granularity in ("tensor", "row", "1x128", "128x128")
    ],
    case("fp8.quantize", "quantize_fp8_delayed", with_a_scale, codes),
    *[
        case(module, "scaled_matmul", scaled_codes(recipe), recipe=recipe)
        for module in SCALED_MATMUL
        for recipe in ("tensor", "row", "block")
    ],
    *[case("fp8.linear", "float8_linear", of_a_linear_layer, recipe=recipe) for recipe in ("tensor", "row", "block")],
    case("fp8.linear", "float8_linear_delayed", of_a_linear_layer, under_older_scales),
    *[
        case(
            "mx.microscaling",
            "quantize_mx",
            lambda: dict(x=randn(6, 320, dtype=BF16)),
            numbers_of_codes,
            elem_dtype=elem_dtype,
        )
        for elem_dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2)
    ],
    case("mx.microscaling", "quantize_nvfp4", lambda: dict(x=randn(6, 320, dtype=BF16)), numbers_of_codes),
    *both(*MX_MATMUL, "mx_matmul", microscaled_weights, format="e2m1"),
    case("moe.router", "route", lambda: dict(logits=randn(5, 12, dtype=BF16)), weights_by_row, top_k=2),
    case("moe.router", "route", lambda: dict(logits=randn(5, 12, dtype=BF16)), weights_alone, top_k=2, score="sigmoid"),
    case("moe.router", "load_balancing_loss", lambda: dict(logits=randn(5, 12, dtype=BF16)) | routed()),
    *both(*GROUPED, "grouped_matmul", rows_of_experts),
    *both(*GROUPED, "grouped_matmul", columns_of_experts),
    *both(*EXPERTS, "moe_mlp", tokens_of_experts),
    case("moe.router", "router_z_loss", lambda: dict(logits=randn(5, 12, dtype=BF16))),
    case("choosing.sample", "filter_logits", lambda: dict(logits=randn(5, 300, dtype=BF16)), top_k=20),
    case("choosing.sample", "filter_logits", lambda: dict(logits=randn(5, 300, dtype=BF16)), top_k=200, top_p=0.9),
    case(
        "choosing.sample",
        "sample",
        lambda: dict(logits=randn(5, 300, dtype=BF16)),
        numbers_of_tokens,
        seed=7,
        top_k=20,
        top_p=0.9,
    ),
    case("fast.cumsum", "cumsum", lambda: dict(x=randn(6, 1000, dtype=BF16))),
    case("fast.cumsum", "cumsum", lambda: dict(x=randn(2, 9000, 2, dtype=BF16)), dim=1, reverse=True, exclusive=True),
    case("fast.causal_conv1d", "causal_conv1d", filtered, activation="silu"),
    case("fast.causal_conv1d", "causal_conv1d", filtered, in_one, return_final_state=True),
    case("fast.causal_conv1d", "causal_conv1d_varlen", packed_and_long, activation="silu"),
    case("fast.linear_attention", "linear_attention", gated_tokens),
    case("fast.linear_attention", "linear_attention_varlen", packed_tokens),
    case("fast.gated_delta_rule", "gated_delta_rule", short_keys),
    case("fast.gated_delta_rule", "gated_delta_rule_varlen", packed_short_keys),
    case("fast.linear_recurrence", "linear_recurrence", gates_and_values),
    case("fast.linear_recurrence", "linear_recurrence", gates_and_values, in_one, return_final_state=True),
    case("fast.linear_recurrence", "linear_recurrence_varlen", packed_and_long_gates),
]


def counted(grouped: Callable) -> Callable:
    """The rows of each expert are counted inside the function."""

    def call(a, b, offsets, **options):
        of_row = torch.bucketize(torch.arange(32, device=offsets.device), offsets, right=True)
        return grouped(a, b, torch.bincount(of_row, minlength=4)[:3].cumsum(0).int(), **options)

    return call


def with_a_plan(mlp: Callable) -> Callable:
    """Sorted once, beforehand."""

    def call(experts, **tensors):
        from annotated_examples.moe.router import sort_by_expert

        return mlp(experts=experts, plan=sort_by_expert(experts, len(tensors["down"])), **tensors)

    return call


def of_a_size(bounds: str, length: int) -> Callable[[Callable], Callable]:
    """Sequences whose ends are made inside the function."""
    ends = dict.fromkeys(bounds.split(), length)
    return lambda function: (
        lambda **given: function(
            **given | {name: torch.tensor([0, 30, end], dtype=torch.int32, device=DEVICE) for name, end in ends.items()}
        )
    )


def and_all_of_it(bounds: str, length: int) -> Callable[[Callable], Callable]:
    return lambda function: in_one(of_a_size(bounds, length)(function))


def without(inputs: Callable[[], dict], *names: str, **more: Callable) -> Callable[[], dict]:
    """Inputs less some, and with others."""
    return lambda: {k: v for k, v in inputs().items() if k not in names} | {k: make() for k, make in more.items()}


def pages() -> dict:
    """Two sequences of 30 and 20 keys, in pages of 16."""
    lengths = torch.tensor([30, 20], dtype=torch.int32, device=DEVICE)
    table = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32, device=DEVICE)
    caches = {name: randn(4, 16, 2, 64, dtype=BF16) for name in ("k_cache", "v_cache")}
    return dict(q=randn(2, 4, 64, dtype=BF16), **caches, lengths=lengths, block_table=table, sinks=randn(4))


def bytes_of(quantize: Callable) -> Callable:
    """Codes and scales, as numbers."""
    return lambda *tensors, **options: torch.cat(
        [part.flatten().view(torch.uint8).float() for part in quantize(*tensors, **options)]
    )


def third_ignored() -> dict:
    """Every label is a column; the fourth one is ignored where `ignore_index` is 3."""
    return logits() | dict(labels=torch.arange(6, device=DEVICE))


def hidden_of_third_ignored() -> dict:
    return hidden_states(True)() | dict(labels=torch.arange(6, device=DEVICE))


def under_a_bias(route: Callable) -> Callable:
    """A router's weights, its experts chosen under a bias, which gets no gradient."""
    return lambda logits, **options: route(logits, bias=torch.arange(12.0, device=DEVICE) / 10, **options)[0]


def under_a_tensors_scale() -> dict:
    return dict(x=randn(6, 320, dtype=BF16), per_tensor_scale=torch.full((), 0.01, device=DEVICE))


#: What the functions of `CASES` can do besides.
OPTIONS = [
    *both(*LAYERNORM, "layernorm", lambda: dict(x=randn(6, 1000, dtype=BF16)), eps=1e-3),
    *both(*RMSNORM, "rmsnorm", lambda: dict(x=randn(6, 1000, dtype=BF16)), eps=1e-3),
    *both(*RMSNORM, "add_rmsnorm", lambda: scaled_rows() | dict(residual=randn(6, 1000, dtype=BF16)), stacked,
          eps=1e-3, offset=1.0),
    case("recurrences.l2_normalize", "l2_normalize", lambda: dict(x=randn(6, 100, dtype=BF16)), eps=1e-3),
    case("classics.geglu", "geglu_packed", lambda: dict(x=randn(5, 600, dtype=BF16)), approximate="tanh"),
    *both(*CROSS_ENTROPY, "cross_entropy_loss", without(third_ignored, n_items=lambda: torch.tensor(4, device=DEVICE)),
          ignore_index=3),
    case("fast.cross_entropy", "cross_entropy_loss_", third_ignored,
         lambda loss: lambda logits, labels: loss(logits * 1.0, labels, 30.0, 0.5, 4, 3)),
    *both(*LINEAR_CROSS_ENTROPY, "linear_cross_entropy", hidden_of_third_ignored, n_items=4, ignore_index=3),
    case("fast.linear_cross_entropy", "linear_cross_entropy_lean", hidden_of_third_ignored, logit_softcapping=30.0,
         logit_scaling=0.5, ignore_index=3),
    case("distributed.vocab_parallel_cross_entropy", "vocab_parallel_cross_entropy", third_ignored, reduction="none",
         logit_scaling=0.5, ignore_index=3),
    case("distributed.vocab_parallel_cross_entropy", "vocab_parallel_cross_entropy", logits, n_items=4),
    case("distributed.vocab_parallel_cross_entropy", "vocab_parallel_linear_cross_entropy", hidden_states(),
         z_loss=0.01, label_smoothing=0.1),
    case("distributed.vocab_parallel_entropy", "vocab_parallel_entropy",
         lambda: dict(logits=randn(6, 1000, dtype=BF16)), logit_scaling=0.5),
    case("attention.causal_attention", "causal_attention", one_head_each, scale=0.2),
    *both(*ATTENTION, "flash_attention", queries_keys_values, in_one, scale=0.2, window=(3, 2), return_lse=True),
    *both(*ATTENTION, "flash_attention_varlen", without(sequences, sinks=lambda: randn(4, dtype=BF16)),
          and_all_of_it("cu_seqlens_q cu_seqlens_k", 40), scale=0.2, window=9, causal=True, softcap=5.0,
          return_lse=True, max_seqlen_q=30, max_seqlen_k=30),
    *both("attention.decode", "fast.decode", "decode_attention", pages, scale=0.2, window=9, softcap=5.0,
          num_splits=2),
    *both("recurrences.causal_conv1d", "fast.causal_conv1d", "causal_conv1d_varlen", packed_and_long,
          and_all_of_it("cu_seqlens", 40), return_final_state=True),
    *both("recurrences.linear_recurrence", "fast.linear_recurrence", "linear_recurrence_varlen", packed_and_long_gates,
          and_all_of_it("cu_seqlens", 40), return_final_state=True),
    *both(*LINEAR_ATTENTION, "linear_attention", without(with_a_state, "g"), in_one, scale=0.5,
          return_final_state=True),
    *both(*LINEAR_ATTENTION, "linear_attention_varlen", packed_tokens, and_all_of_it("cu_seqlens", 40), scale=0.5,
          return_final_state=True),
    *both(*DELTA_RULE, "gated_delta_rule", lambda: short_keys() | with_a_state(), in_one, scale=0.5,
          return_final_state=True),
    *both(*DELTA_RULE, "gated_delta_rule_varlen", packed_short_keys, and_all_of_it("cu_seqlens", 40), scale=0.5,
          return_final_state=True),
    case("recurrences.gated_delta_rule_step", "gated_delta_rule_step_", one_short_key,
         lambda step: lambda state, **rest: step(state.clone(), slots=torch.zeros(1, dtype=torch.int32, device=DEVICE),
                                                 **rest), scale=0.5),
    case("fp8.quantize", "quantize_fp8", lambda: dict(x=randn(6, 300, dtype=BF16)), bytes_of, dtype=torch.float8_e5m2,
         power_of_two=True, seed=3),
    case("fp8.quantize", "quantize_fp8_delayed", with_a_scale, codes, dtype=torch.float8_e5m2),
    *[case(module, "scaled_matmul", scaled_codes("row"), recipe="row", out_dtype=torch.float32, use_fast_accum=True)
      for module in SCALED_MATMUL],
    *[case("fp8.linear", "float8_linear", of_a_linear_layer, recipe=recipe, power_of_two=True, grad_seed=3)
      for recipe in ("tensor", "row", "row_gw_hp", "block")],
    case("mx.microscaling", "quantize_mx", lambda: dict(x=randn(6, 320, dtype=BF16)), bytes_of,
         elem_dtype=torch.float4_e2m1fn_x2, scaling="floor", seed=3),
    case("mx.microscaling", "quantize_nvfp4", under_a_tensors_scale, bytes_of, seed=3),
    *both(*MX_MATMUL, "mx_matmul", microscaled_weights, format="e2m1", out_dtype=torch.float32),
    case("moe.router", "route", lambda: dict(logits=randn(5, 12, dtype=BF16)), under_a_bias, top_k=2,
         renormalize=False, scale=2.0),
    case("moe.router", "load_balancing_loss", lambda: dict(logits=randn(5, 12, dtype=BF16)) | routed(),
         score="sigmoid"),
    *both(*GROUPED, "grouped_matmul", without(rows_of_experts, "bias"), counted, out_dtype=torch.float32),
    *both(*GROUPED, "grouped_matmul", columns_of_experts, counted),
    *both(*EXPERTS, "moe_mlp", tokens_of_experts, with_a_plan),
    case("choosing.sample", "sample", lambda: dict(logits=randn(5, 300, dtype=BF16)), numbers_of_tokens, seed=7,
         temperature=0.5),
]  # fmt: skip


FORWARD_ONLY = {"tutorials.matmul_blocked", "attention.decode", "fast.decode"}
FORWARD_ONLY |= {
    "distributed.all_reduce",
    "distributed.all_gather_matmul",
    "recurrences.causal_conv1d.causal_conv1d_step_",
    "recurrences.gated_delta_rule_step",
}
FORWARD_ONLY |= {"mx.microscaling", "choosing.sample", *MX_MATMUL, *SCALED_MATMUL}
FORWARD_ONLY |= {"fp8.quantize", "gemlite.gemm", "gemlite.gemm_splitK", "fast.low_bit"}
#: They run before a model is compiled, or show what another function does.
HELPERS = {"classics.dropout.dropout_mask", "gemlite.gemm.pack", "gemlite.gemm.unpack", "gemlite.gemm.quantize"}
#: Called by other cases.
HELPERS |= {"mx.microscaling.dequantize_mx", "mx.microscaling.dequantize_nvfp4"}
HELPERS |= {"fp8.quantize.dequantize_fp8", "moe.router.sort_by_expert"}

#: In the simulator they take a second a call, and 16-bit products only: what walks these names them.
GLUON = [
    case("gluon.tile_copy", "copy", lambda: dict(x=randn(20, 70))),
    case("gluon.matmul", "matmul", lambda: dict(a=randn(20, 40, dtype=FP16), b=randn(40, 24, dtype=FP16))),
    case("gluon.flash_attention", "flash_attention", lambda: {n: randn(1, 1, 20, 64, dtype=FP16) for n in "qkv"}),
]
