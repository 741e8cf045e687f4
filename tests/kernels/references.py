"""Every public function's reference in plain PyTorch, with the same arguments: what tests that walk all of them use."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import torch

from tests.kernels.public_functions import Case


def of_a_norm(module, x):
    return module.to(x.dtype)(x)


def attention_of_sequences(q, k, v, cu_seqlens_q, cu_seqlens_k, whole=None, **options):
    """One sequence after the other; the reference for single ones wants (B, H, T, D)."""
    lesson = importlib.import_module("annotated_examples.attention.flash_attention")
    whole = whole or lesson.flash_attention_reference
    parts = []
    for i in range(len(cu_seqlens_q) - 1):
        rows = [slice(int(ends[i]), int(ends[i + 1])) for ends in (cu_seqlens_q, cu_seqlens_k, cu_seqlens_k)]
        one = [x[part].transpose(0, 1)[None] for x, part in zip((q, k, v), rows)]
        parts.append(whole(*one, **options)[0].transpose(0, 1))
    return torch.cat(parts)


def linear_attention_by_steps(q, k, v, g=None, *, scale=None, initial_state=None, return_final_state=False):
    """One token after the other, as the recurrence says it."""
    (B, T, Hk, D), (H, E) = q.shape, v.shape[2:]
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = (x.to(wide).repeat_interleave(H // Hk, dim=2) for x in (q, k))
    S, outs = q.new_zeros(B, H, D, E) if initial_state is None else initial_state.to(wide), []
    for t in range(T):
        S = S if g is None else S * g[:, t].to(wide).exp()[..., None, None]
        S = S + k[:, t, :, :, None] * v[:, t, :, None]
        outs.append((q[:, t, :, :, None] * S).sum(-2) * (D**-0.5 if scale is None else scale))
    o = torch.stack(outs, 1).to(v.dtype) if T else torch.zeros_like(v)
    return (o, S) if return_final_state else o


def delta_rule_by_steps(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """One token after the other: the difference between the value and what its key reads is written."""
    (B, T, Hk, D), (H, E) = q.shape, v.shape[2:]
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = (x.to(wide).repeat_interleave(H // Hk, dim=2) for x in (q, k))
    S, outs = q.new_zeros(B, H, D, E) if initial_state is None else initial_state.to(wide), []
    for t in range(T):
        S = S if g is None else S * g[:, t].to(wide).exp()[..., None, None]
        u = beta[:, t].to(wide)[..., None] * (v[:, t] - (k[:, t, :, :, None] * S).sum(-2))
        S = S + k[:, t, :, :, None] * u[:, :, None]
        outs.append((q[:, t, :, :, None] * S).sum(-2) * (D**-0.5 if scale is None else scale))
    o = torch.stack(outs, 1).to(v.dtype) if T else torch.zeros_like(v)
    return (o, S) if return_final_state else o


def delta_rule_of_dense_products(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """All pairs at once, with an inverse that is multiplied with and masks that are, too: 0 · NaN is NaN."""
    (B, T, Hk, D), H = q.shape, v.shape[2]
    wide, scale = torch.promote_types(q.dtype, torch.float32), D**-0.5 if scale is None else scale
    q, k = (x.transpose(1, 2).repeat_interleave(H // Hk, dim=1).to(wide) for x in (q, k))
    g = q.new_zeros(B, H, T) if g is None else g.transpose(1, 2).to(wide)
    S = q.new_zeros(B, H, D, v.shape[3]) if initial_state is None else initial_state.to(wide)
    G, beta = g.cumsum(-1), beta.transpose(1, 2).to(wide)[..., None]
    lower = torch.ones(T, T, dtype=wide, device=q.device).tril()
    eye = torch.eye(T, dtype=wide, device=q.device)
    decay = (G[..., :, None] - G[..., None, :]).masked_fill(lower == 0, -torch.inf).exp()
    A = (k @ k.mT) * decay * beta * (lower - eye)
    inverse = torch.linalg.solve_triangular(eye + A, eye.expand_as(A), upper=False)
    u = inverse @ (beta * v.transpose(1, 2).to(wide)) - inverse @ (beta * G.exp()[..., None] * k) @ S
    o = (q @ k.mT * decay * scale) @ u + q @ S * G.exp()[..., None] * scale
    S = S * g.sum(-1).exp()[..., None, None] + (k * (g.sum(-1, keepdim=True) - G).exp()[..., None]).mT @ u
    o = o.to(v.dtype).transpose(1, 2)
    return (o, S) if return_final_state else o


def sequences_of(reference: Callable) -> Callable:
    """A packed recurrence from one of a batch: one sequence after the other. Rows of no sequence are 0."""

    def packed(cu_seqlens, *, initial_state=None, return_final_state=False, **inputs):
        options = {name: x for name, x in inputs.items() if not torch.is_tensor(x)}
        tokens = {name: x for name, x in inputs.items() if torch.is_tensor(x)}
        ends, outs, states = cu_seqlens.tolist(), [], []
        for i, (start, end) in enumerate(zip(ends, ends[1:])):
            alone = {name: x[start:end][None] for name, x in tokens.items()}
            state = None if initial_state is None else initial_state[i : i + 1]
            o, state = reference(**alone, initial_state=state, return_final_state=True, **options)
            outs.append(o[0])
            states.append(state)
        o = torch.cat([*outs, torch.zeros_like(tokens["v"][ends[-1] :])])
        if not return_final_state:
            return o
        return o, torch.cat(states) if states else initial_state

    return packed


def linear_attention_of_sequences(*tensors, **inputs):
    lesson = importlib.import_module("annotated_examples.recurrences.linear_attention")
    return sequences_of(lesson.linear_attention_reference)(*tensors, **inputs)


def delta_rule_of_sequences(*tensors, **inputs):
    lesson = importlib.import_module("annotated_examples.recurrences.gated_delta_rule")
    return sequences_of(lesson.gated_delta_rule_reference)(*tensors, **inputs)


# ---- references that leave out what has no weight, where PyTorch's products compute 0 · NaN


def attention_of_seen_keys(q, k, v, *, causal=False, window=None, sinks=None, softcap=0.0, scale=None):
    """One query after the other, with the keys that it sees. If all its scores are -∞ its result is 0, as that of
    `torch.nn.functional.scaled_dot_product_attention`."""
    from annotated_examples.common.attention import window_bounds

    left, right = window_bounds(causal, window)
    (H, T, D), (Hk, S) = q.shape[1:], k.shape[1:3]
    k, v = (x.repeat_interleave(H // Hk, dim=1) for x in (k, v))
    rows = []
    for i in range(T):
        place = i + S - T
        seen = slice(max(place - left, 0), max(min(place + right + 1, S), 0))
        s = q[:, :, i : i + 1] @ k[:, :, seen].transpose(-1, -2) * (D**-0.5 if scale is None else scale)
        s = softcap * torch.tanh(s / softcap) if softcap else s
        if sinks is not None:
            s = torch.cat([s, sinks.to(s.dtype)[:, None, None].expand(*s.shape[:3], 1)], dim=-1)
        p = torch.softmax(s, dim=-1).masked_fill((s == -torch.inf).all(-1, keepdim=True), 0.0)
        rows.append(p[..., : v[:, :, seen].shape[2]] @ v[:, :, seen])
    return torch.cat(rows, dim=2)


def counted(inputs, labels, options):
    """Inputs and labels of the rows whose labels count, and the number that the sum is divided by."""
    labels = labels.reshape(-1)
    rows = labels != options.get("ignore_index", -100)
    n_items = options.get("n_items")
    return inputs.reshape(-1, inputs.shape[-1])[rows], labels[rows], int(rows.sum()) if n_items is None else n_items


def loss_of_counted_rows(logits, labels, **options):
    logits, labels, n_items = counted(logits, labels, options)
    whole = importlib.import_module("annotated_examples.classics.cross_entropy").cross_entropy_loss_reference
    return whole(logits, labels, **options | dict(n_items=n_items))


def parallel_loss_of_counted_rows(logits, labels, **options):
    logits, labels, n_items = counted(logits, labels, options)
    lesson = importlib.import_module("annotated_examples.distributed.vocab_parallel_cross_entropy")
    return lesson.vocab_parallel_cross_entropy_reference(logits, labels, **options | dict(n_items=n_items))


def linear_loss_of_counted_rows(x, weight, labels, bias=None, **options):
    x, labels, n_items = counted(x, labels, options)
    whole = importlib.import_module("annotated_examples.classics.linear_cross_entropy").linear_cross_entropy_reference
    return whole(x, weight, labels, bias, **options | dict(n_items=n_items))


def filter_of_one_token(state, x, weight, bias=None, **options):
    filtered = importlib.import_module("annotated_examples.recurrences.causal_conv1d").causal_conv1d_reference
    return filtered(x[:, None], weight, bias, initial_state=state, **options)[:, 0]


def delta_rule_step(*tensors, **options):
    lesson = importlib.import_module("annotated_examples.recurrences.gated_delta_rule_step")
    return lesson.gated_delta_rule_step_reference(*tensors, **options)


def sequences_of_seen_keys(*tensors, **options):
    return attention_of_sequences(*tensors, whole=attention_of_seen_keys, **options)


class Early(torch.autograd.Function):
    """A loss whose gradient is computed along with it, for an upstream gradient of 1, and multiplied later. Ignored
    rows then have a gradient of 0 times the upstream one, which is NaN if that isn't finite."""

    @staticmethod
    def forward(ctx, loss, *tensors):
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
        with torch.enable_grad():
            result = loss(*leaves)
        gradients = iter(torch.autograd.grad(result, [x for x in leaves if x.requires_grad]))
        ctx.save_for_backward(*[next(gradients) if x.requires_grad else None for x in leaves])
        return result.detach()

    @staticmethod
    def backward(ctx, upstream):
        return None, *[None if x is None else (x * upstream).to(x.dtype) for x in ctx.saved_tensors]


def early(loss):
    return lambda **inputs: Early.apply(lambda *values: loss(**dict(zip(inputs, values))), *inputs.values())


_SPARSE = {
    "causal_attention": functools.partial(attention_of_seen_keys, causal=True),
    "flash_attention": attention_of_seen_keys,
    "flash_attention_varlen": sequences_of_seen_keys,
    "linear_attention": linear_attention_by_steps,
    "linear_attention_varlen": sequences_of(linear_attention_by_steps),
    "gated_delta_rule": delta_rule_by_steps,
    "gated_delta_rule_varlen": sequences_of(delta_rule_by_steps),
    "cross_entropy_loss": loss_of_counted_rows,
    "cross_entropy_loss_": loss_of_counted_rows,
    "linear_cross_entropy": linear_loss_of_counted_rows,
    "linear_cross_entropy_lean": linear_loss_of_counted_rows,
    "vocab_parallel_cross_entropy": parallel_loss_of_counted_rows,
    "vocab_parallel_linear_cross_entropy": linear_loss_of_counted_rows,
}

#: Where our chunks compute with terms of weight 0 that the lesson's reference solves a system for.
_DENSE = {
    "gated_delta_rule": delta_rule_of_dense_products,
    "gated_delta_rule_varlen": sequences_of(delta_rule_of_dense_products),
}

#: Functions whose reference isn't the lesson's `<name>_reference`.
_OTHER = {
    "apply_layernorm": of_a_norm,
    "apply_rmsnorm": of_a_norm,
    "flash_attention_varlen": attention_of_sequences,
    "linear_attention_varlen": linear_attention_of_sequences,
    "causal_conv1d_step_": filter_of_one_token,
    "gated_delta_rule_step_": delta_rule_step,
    "gated_delta_rule_varlen": delta_rule_of_sequences,
    "cross_entropy_loss_": ("classics.cross_entropy", "cross_entropy_loss_reference"),
    "linear_cross_entropy_lean": ("classics.linear_cross_entropy", "linear_cross_entropy_reference"),
    "vocab_parallel_linear_cross_entropy": ("classics.linear_cross_entropy", "linear_cross_entropy_reference"),
    "gemm_splitK": ("gemlite.gemm", "gemm_reference"),
    "low_bit_matmul": ("gemlite.gemm", "gemm_reference"),
}
#: A fast file has its lesson's reference.
_LESSONS = {
    "softmax": "tutorials.softmax",
    "matmul": "tutorials.matmul_autotuned",
    "layernorm": "classics.layernorm",
    "rmsnorm": "classics.rmsnorm",
    "cross_entropy": "classics.cross_entropy",
    "linear_cross_entropy": "classics.linear_cross_entropy",
    "flash_attention": "attention.flash_attention",
    "decode": "attention.decode",
    "grouped_matmul": "moe.grouped_matmul",
    "scaled_matmul": "fp8.scaled_matmul",
    "mx_matmul": "mx.mx_matmul",
    "moe_mlp": "moe.moe_mlp",
    "cumsum": "recurrences.cumsum",
    "causal_conv1d": "recurrences.causal_conv1d",
    "linear_recurrence": "recurrences.linear_recurrence",
    "linear_attention": "recurrences.linear_attention",
    "gated_delta_rule": "recurrences.gated_delta_rule",
}


def references(case: Case) -> list[Callable]:
    """The references of a case, with its options, called as the case's function is: the lesson's, and where that
    computes with terms of weight 0 one that leaves them out."""
    found = _OTHER.get(case.function)
    if not callable(found):
        group, _, operation = case.module.partition(".")
        lesson = _LESSONS[operation] if group == "fast" and not found else case.module
        module, name = found or (lesson, f"{case.function}_reference")
        found = getattr(importlib.import_module(f"annotated_examples.{module}"), name)
    all_of_them = [found, *(more[case.function] for more in (_SPARSE, _DENSE) if case.function in more)]

    def called(function):
        function = case.wrap(function)
        return lambda **inputs: function(**inputs, **case.options)

    found = [called(function) for function in all_of_them]
    if case.module in ("fast.cross_entropy", "fast.linear_cross_entropy"):
        found.append(early(found[-1]))
    return found
