"""References in plain PyTorch, beside those that `operations/` names: by steps, and without terms of weight 0."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import torch

from academy.judge.public import Call
from operations._packed import sequences_of
from operations.flash_attention import of_sequences


def recurrence_by_steps(q, k, v, g=None, beta=None, *, scale=None, initial_state=None, return_final_state=False):
    """One token after the other, as the recurrence says it. g: a gate for each head, or for each row of its state. With
    `beta`, by the delta rule: the difference between the value and what its key reads is written."""
    (B, T, Hk, D), (H, E) = q.shape, v.shape[2:]
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k = (x.to(wide).repeat_interleave(H // Hk, dim=2) for x in (q, k))
    S, outs = q.new_zeros(B, H, D, E) if initial_state is None else initial_state.to(wide), []
    for t in range(T):
        S = S if g is None else S * g[:, t].to(wide).exp().view(B, H, -1, 1)
        u = v[:, t].to(wide)
        u = u if beta is None else beta[:, t].to(wide)[..., None] * (u - (k[:, t, :, :, None] * S).sum(-2))
        S = S + k[:, t, :, :, None] * u[:, :, None]
        outs.append((q[:, t, :, :, None] * S).sum(-2) * (D**-0.5 if scale is None else scale))
    o = torch.stack(outs, 1).to(v.dtype) if T else torch.zeros_like(v)
    return (o, S) if return_final_state else o


def delta_rule_of_dense_products(q, k, v, g, beta, *, scale=None, initial_state=None, return_final_state=False):
    """All pairs at once, with an inverse that is multiplied with and masks that are, too: 0 · NaN is NaN."""
    (B, T, Hk, D), H = q.shape, v.shape[2]
    wide, scale = torch.promote_types(q.dtype, torch.float32), D**-0.5 if scale is None else scale
    q, k = (x.transpose(1, 2).repeat_interleave(H // Hk, dim=1).to(wide) for x in (q, k))
    g = q.new_zeros(B, T, H) if g is None else g.to(wide)
    g = (g[..., None] if g.dim() == 3 else g).transpose(1, 2)  # of each head, or of each row of its state
    S = q.new_zeros(B, H, D, v.shape[3]) if initial_state is None else initial_state.to(wide)
    G, beta = g.cumsum(2), beta.transpose(1, 2).to(wide)[..., None]
    lower = torch.ones(T, T, dtype=wide, device=q.device).tril()
    eye = torch.eye(T, dtype=wide, device=q.device)
    decay = (G[:, :, :, None] - G[:, :, None]).masked_fill(lower[..., None] == 0, -torch.inf).exp()
    A = torch.einsum("bhid,bhjd,bhijd->bhij", k, k, decay) * beta * (lower - eye)
    inverse = torch.linalg.solve_triangular(eye + A, eye.expand_as(A), upper=False)
    u = inverse @ (beta * v.transpose(1, 2).to(wide)) - inverse @ (beta * G.exp() * k) @ S
    o = torch.einsum("bhid,bhjd,bhijd->bhij", q, k, decay * scale) @ u + (q * G.exp() * scale) @ S
    S = S * g.sum(2).exp()[..., None] + (k * (g.sum(2, keepdim=True) - G).exp()).mT @ u
    o = o.to(v.dtype).transpose(1, 2)
    return (o, S) if return_final_state else o


# ---- references that leave out what has no weight, where PyTorch's products compute 0 · NaN


def attention_of_seen_keys(q, k, v, *, causal=False, window=None, sinks=None, softcap=0.0, scale=None):
    """One query after the other, with the keys that it sees. If all its scores are -∞ its result is 0, as that of
    `torch.nn.functional.scaled_dot_product_attention`."""
    from annotated_examples.common.attention import window_bounds

    left, right = window_bounds(causal, window)
    (H, T, D), (Hk, S) = q.shape[1:], k.shape[1:3]
    k, v = (x.repeat_interleave(H // Hk, dim=1) for x in (k, v))
    rows = [q[:, :, :0]]
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


def sequences_of_seen_keys(*tensors, **options):
    return of_sequences(*tensors, whole=attention_of_seen_keys, **options)


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
    "linear_attention": recurrence_by_steps,
    "linear_attention_varlen": sequences_of(recurrence_by_steps),
    "gated_delta_rule": recurrence_by_steps,
    "gated_delta_rule_varlen": sequences_of(recurrence_by_steps),
    "kda": recurrence_by_steps,
    "kda_varlen": sequences_of(recurrence_by_steps),
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
    "kda": delta_rule_of_dense_products,
    "kda_varlen": sequences_of(delta_rule_of_dense_products),
}


def references(call: Call) -> list[Callable]:
    """The references of a call, called as its function is: the lesson's, and where that computes with terms of weight 0
    one that leaves them out."""
    others = [more[call.function] for more in (_SPARSE, _DENSE) if call.function in more]
    found = [call.called(reference) for reference in (call.public.reference_function(), *others)]
    return found + [early(found[-1])] * (call.module in ("fast.cross_entropy", "fast.linear_cross_entropy"))
