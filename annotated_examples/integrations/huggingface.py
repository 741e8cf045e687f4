r"""
# Our kernels in a Hugging Face model

`patch(model)` takes a model built by `transformers` and replaces its norms, rotary embeddings, gated units, experts,
attention and training loss with the kernels of this repository. It changes only that model, never the library: other
models in the same process stay as they are, and `unpatch(model)` undoes every change.

| what | replaced by | in |
|---|---|---|
| RMSNorm, with Gemma's offset | `fast/rmsnorm` | all but GPT-2 |
| LayerNorm | `fast/layernorm` | GPT-2 |
| rotary embedding | `classics/rope` | all but GPT-2 |
| gate and up projections of the MLP | `classics/swiglu`, `classics/geglu` | all but GPT-2 and Mixtral |
| router and experts | `moe/router`, `moe/moe_mlp` | Mixtral, Qwen3-MoE |
| attention without a mask of its own | `fast/flash_attention` | all |
| last projection and loss, in training | `fast/linear_cross_entropy` | all |

The whole model is inspected before anything is changed. So a model of an unknown kind raises an error and stays as it
was.
"""

from academy import checks  # before anything imports triton

import functools
import importlib
import inspect
import types
import warnings
from collections import Counter
from dataclasses import dataclass, field

import torch

from annotated_examples.classics.geglu import geglu
from annotated_examples.classics.rope import rope
from annotated_examples.classics.swiglu import swiglu
from annotated_examples.common.attention import LARGEST_HEAD
from annotated_examples.fast.flash_attention import flash_attention
from annotated_examples.fast.layernorm import apply_layernorm
from annotated_examples.fast.linear_cross_entropy import linear_cross_entropy_lean
from annotated_examples.fast.rmsnorm import rmsnorm
from annotated_examples.moe.moe_mlp import moe_mlp
from annotated_examples.moe.router import route

# The parts that can be replaced. By default all of them are.
PARTS = ("norm", "rope", "mlp", "experts", "attention", "loss")

# `config.model_type` -> how the names of the family's classes begin. Gemma stores the weight of its norms minus 1.
FAMILIES = {
    "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3",
    "gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3", "gpt2": "GPT2",
    "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe",
}  # fmt: skip
GATED_UNITS = {
    "silu": swiglu,
    "gelu": geglu,
    "gelu_pytorch_tanh": functools.partial(geglu, approximate="tanh"),
}


@dataclass
class Patch:
    """What was changed in a model. As a context manager it undoes the changes at the end."""

    model: torch.nn.Module
    #: (module, name of the attribute, what it was before; None: the attribute was its class's)
    changes: list = field(default_factory=list)
    replaced: Counter = field(default_factory=Counter)
    left: Counter = field(default_factory=Counter)
    fallbacks: Counter = field(default_factory=Counter)

    def __enter__(self):
        return self.model

    def __exit__(self, *exception):
        if getattr(self.model, "_triton_academy", None) is self:
            unpatch(self.model)


# ## Patching
#
# A plan is a list of (object, attribute, new value). It is complete before its first entry is carried out.
def patch(model, *, norm=True, rope=True, mlp=True, experts=True, attention=True, loss=True):
    """Let `model` compute with our kernels, in place.

    Args:
        model: a causal language model of `transformers` (5.x): Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE,
            Gemma, Gemma2, Gemma3 (text) or GPT-2, on one device, in float32, float16 or bfloat16.
        norm, rope, mlp, experts, attention, loss: what to replace. Without `loss`, training computes the logits as
            usual; with it the output of a training step has `logits=None`.

    Returns:
        A `Patch`, which can be used as a context manager: `with patch(model): …` unpatches at the end.

    Raises:
        TypeError: `model` isn't a `PreTrainedModel`, or a choice isn't a bool.
        ValueError: the model is already patched, or of an unknown kind. In either case nothing is changed.
    """
    wanted = dict(norm=norm, rope=rope, mlp=mlp, experts=experts, attention=attention, loss=loss)
    for name, value in wanted.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {type(value).__name__}")
    transformers = _transformers()
    if not isinstance(model, transformers.PreTrainedModel):
        raise TypeError(f"model must be a transformers.PreTrainedModel, got {type(model).__name__}")
    if getattr(model, "_triton_academy", None) is not None:
        raise ValueError("model is patched already: unpatch(model) first")
    result = Patch(model)
    plan = list(_plan(model, wanted, result))
    if not result.replaced:
        raise ValueError(f"model has nothing to replace; what was looked at: {dict(result.left)}")
    for place, name, value in plan:
        result.changes.append((place, name, place.__dict__.get(name)))
        setattr(place, name, value)
    model._triton_academy = result
    return result


def unpatch(model):
    """Undo everything that `patch` did to `model`. Raises ValueError if it is not patched."""
    result = getattr(model, "_triton_academy", None)
    if result is None:
        raise ValueError("model is not patched")
    for place, name, before in reversed(result.changes):
        if before is None:
            delattr(place, name)
        else:
            setattr(place, name, before)
    del model._triton_academy
    return model


def report(model):
    """What was replaced in a patched model, what was left and why, and which calls fell back, as text."""
    result = getattr(model, "_triton_academy", None)
    if result is None:
        raise ValueError("model is not patched")
    lines = [f"{type(model).__name__} ({model.config.model_type})"]
    for title, counts in ("replaced", result.replaced), ("left", result.left), ("fell back", result.fallbacks):
        lines += [f"  {title}: {what} x{count}" for what, count in counts.items()]
    return "\n".join(lines)


def _transformers():
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError('transformers is missing: pip install "triton-academy[huggingface]"') from error
    if transformers.__version__.split(".")[0] != "5":
        raise ImportError(f"transformers must be 5.x, got {transformers.__version__}")
    return transformers


def _plan(model, wanted, result):
    kind = getattr(model.config, "model_type", None)
    classes = Counter(type(module).__name__ for module in model.modules())
    if kind not in FAMILIES:
        raise ValueError(
            f"model must be one of {', '.join(FAMILIES)}, got model_type {kind!r}; modules looked at: "
            f"{', '.join(sorted(classes))}"
        )
    prefix = FAMILIES[kind]
    for module in model.modules():
        name = type(module).__name__
        if name == f"{prefix}RMSNorm" or prefix == "GPT2" and isinstance(module, torch.nn.LayerNorm):
            if _chosen("norm", name, wanted, result):
                yield module, "forward", _norm(module, 1.0 if prefix.startswith("Gemma") else 0.0)
        elif name == f"{prefix}MLP":
            yield from _mlp(module, name, wanted, result)
        elif name == f"{prefix}TopKRouter":
            yield from _router(module, name, wanted, result)
        elif name == f"{prefix}Experts":
            yield from _experts(module, name, wanted, result)
        elif name == f"{prefix}Attention":
            yield from _rotary(module, name, wanted, result)
            yield from _attention(module, name, wanted, result)
    yield from _loss(model, wanted, result)


def _chosen(part, what, wanted, result, reason=None):
    """Whether this is replaced; either way it is recorded, with the reason if not."""
    if wanted[part] and reason is None:
        result.replaced[f"{part}: {what}"] += 1
        return True
    result.left[f"{part}: {what} ({reason or 'not chosen'})"] += 1
    return False


# ## Norms and gated units
def _norm(module, offset):
    if isinstance(module, torch.nn.LayerNorm):
        return functools.partial(apply_layernorm, module)
    eps = module.variance_epsilon if hasattr(module, "variance_epsilon") else module.eps
    return lambda x: rmsnorm(x, module.weight, eps, offset=offset)


def _mlp(module, name, wanted, result):
    config = getattr(module, "config", None)
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    unit = GATED_UNITS.get(activation)
    reason = f"activation {activation!r}" if unit is None else None
    reason = reason if hasattr(module, "gate_proj") else "it has no gate"
    if _chosen("mlp", name, wanted, result, reason):
        yield module, "forward", lambda x: module.down_proj(unit(module.gate_proj(x), module.up_proj(x)))


# ## Experts
#
# The router's logits stay a product of PyTorch: a model may be asked for them. Selecting and weighting are one kernel.
# The weights stay in float32, where Qwen3-MoE rounds them to the model's dtype.
def _router(module, name, wanted, result):
    renormalize = getattr(module, "norm_topk_prob", True)

    def forward(hidden_states):
        logits = torch.nn.functional.linear(hidden_states.reshape(-1, module.hidden_dim), module.weight)
        weights, experts = route(logits, module.top_k, renormalize=renormalize)
        return logits, weights, experts.long()

    if _chosen("experts", name, wanted, result):
        yield module, "forward", forward


# The matrices of all experts are two parameters, and lie as our layer wants them.
def _experts(module, name, wanted, result):
    activation = module.config.hidden_act
    matrices = module.gate_up_proj, module.down_proj
    reason = None
    if activation != "silu":
        reason = f"activation {activation!r}"
    elif module.has_bias or module.is_transposed or not (module.has_gate and module.is_concatenated):
        reason = "its matrices have another layout"
    elif any(type(matrix.data) is not torch.Tensor or matrix.dtype not in checks.FLOATS for matrix in matrices):
        reason = "quantized or sharded weights"
    if _chosen("experts", name, wanted, result, reason):
        yield module, "forward", functools.partial(experts_forward, module)


def experts_forward(module, hidden_states, top_k_index, top_k_weights):
    """Stands in for `forward` of a layer of experts; in autocast it computes in that dtype, as PyTorch's layer does."""
    kind, dtype = hidden_states.device.type, module.down_proj.dtype
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    result = moe_mlp(
        hidden_states.to(dtype), top_k_index, top_k_weights.float(), module.gate_up_proj.to(dtype),
        module.down_proj.to(dtype),
    )  # fmt: skip
    return result.to(hidden_states.dtype)


# ## Rotary embedding
#
# The attention modules call a function of their file, `apply_rotary_pos_emb`. Replacing it there would change every
# model. So this module gets its own copy of `forward`, with the same code, in which that name refers to our function.
def _rotary(module, name, wanted, result):
    forward = inspect.unwrap(type(module).forward)
    known = "apply_rotary_pos_emb" in forward.__code__.co_names
    if not known:
        result.left[f"rope: {name} (it has no rotary embedding)"] += 1
    elif _chosen("rope", name, wanted, result):
        names = {**forward.__globals__, "apply_rotary_pos_emb": rotate}
        copy = types.FunctionType(
            forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
        )  # fmt: skip
        copy.__kwdefaults__ = forward.__kwdefaults__
        yield module, "forward", types.MethodType(copy, module)


def rotate(q, k, cos, sin, unsqueeze_dim=1):
    """Stands in for `apply_rotary_pos_emb` of `transformers`, which passes every angle twice, once per half of a
    head."""
    if unsqueeze_dim != 1:
        raise ValueError(f"unsqueeze_dim must be 1, heads before positions, got {unsqueeze_dim}")
    cos, sin = (angles[..., : angles.shape[-1] // 2] for angles in (cos, sin))
    # The same positions in the whole batch come as a batch of one.
    cos, sin = (angles[0] if angles.shape[0] == 1 else angles for angles in (cos, sin))
    return rope(q, k, cos, sin)


# ## Attention
#
# `transformers` looks up the attention function, and the function that makes the mask, by a name:
# `config._attn_implementation`. It lets others register new names. Ours wraps the implementation that the model had
# before, and passes a call on to it if there is a mask. For purely causal attention no mask is made.
def _attention(module, name, wanted, result):
    before = module.config._attn_implementation
    reason = None if before in ("sdpa", "eager") else f"implementation {before!r}"
    if getattr(module, "head_dim", 0) > LARGEST_HEAD:
        reason = f"head dimension {module.head_dim}"
    if getattr(module, "is_cross_attention", False):
        reason = "it attends to another sequence"
    if "_attn_implementation_internal" not in vars(module.config):
        reason = "its config keeps the name of the implementation elsewhere"
    if _chosen("attention", name, wanted, result, reason):
        yield module.config, "_attn_implementation_internal", _registered(before)
        yield module, "_fallbacks", result.fallbacks


@functools.cache
def _registered(before):
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    name = f"triton_academy_{before}"
    make_mask = ALL_MASK_ATTENTION_FUNCTIONS[before]

    def mask(*args, **kwargs):
        return None if is_plain(**kwargs) else make_mask(*args, **kwargs)

    AttentionMaskInterface.register(name, mask)
    AttentionInterface.register(name, functools.partial(attend, before))
    return name


def is_plain(*, q_length, kv_length, q_offset=0, kv_offset=0, attention_mask=None, allow_is_causal_skip=True, **others):
    """Whether the last query sees the last key, all masking is by position, and nothing is padding."""
    if not allow_is_causal_skip or isinstance(q_offset, torch.Tensor):
        return False
    if q_offset + q_length != kv_offset + kv_length:
        return False
    return attention_mask is None or not torch.compiler.is_compiling() and bool(attention_mask.all())


def attend(
    before, module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, sliding_window=None,
    softcap=None, **others,
):  # fmt: skip
    """An attention function with the interface of `transformers`: (B, H, T, D) in, (B, T, H, D) and no weights out."""
    reason = None
    if attention_mask is not None:
        reason = "a mask, of padding or of the user"
    elif dropout:
        reason = "dropout of the probabilities"
    elif others.get("s_aux") is not None or others.get("position_bias") is not None:
        reason = "scores with something added"
    elif key.shape[-1] != value.shape[-1]:
        reason = "values of another width than the keys"
    if reason is not None:
        _tell(module, reason)
        options = dict(dropout=dropout, scaling=scaling, sliding_window=sliding_window, softcap=softcap, **others)
        options = {name: value for name, value in options.items() if value is not None}
        return _function(before, module)(module, query, key, value, attention_mask, is_causal=is_causal, **options)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    o = flash_attention(
        query, key, value, causal=causal, scale=scaling, window=sliding_window if causal else None,
        softcap=softcap or 0.0,
    )  # fmt: skip
    return o.transpose(1, 2), None


def _function(name, module):
    from transformers import AttentionInterface

    if name == "eager":
        return importlib.import_module(type(module).__module__).eager_attention_forward
    return AttentionInterface()[name]


def _tell(module, reason):
    """Count a call that fell back, and warn."""
    if torch.compiler.is_compiling():
        return
    module._fallbacks[f"{type(module).__name__}, {reason}"] += 1
    warnings.warn(f"attention of {type(module).__name__} falls back: {reason}", stacklevel=3)


# ## The loss
#
# In training the logits are computed, used for the loss, and thrown away. For a vocabulary of 128256 and 8192 tokens
# they take 2 GB in bfloat16, and as much again for their gradient. Our loss is computed from the last hidden states
# instead. This is where a training step needs the most memory, so few logits are kept.
linear_cross_entropy = functools.partial(linear_cross_entropy_lean, KEPT=0.02)


def _loss(model, wanted, result):
    head = model.get_output_embeddings()
    reason = None
    if not isinstance(head, torch.nn.Linear):
        reason = "no linear layer computes the logits"
    elif getattr(model, "loss_type", None) not in (None, "ForCausalLM"):
        reason = f"loss {model.loss_type!r}"
    if _chosen("loss", type(model).__name__, wanted, result, reason):
        yield model, "forward", types.MethodType(forward_with_loss, model)


def forward_with_loss(self, input_ids=None, *args, labels=None, **kwargs):
    """`forward` of a causal language model whose loss needs no logits."""
    original = type(self).forward
    if labels is None or not self.training or args:
        return original(self, input_ids, *args, labels=labels, **kwargs)
    from transformers.modeling_outputs import CausalLMOutputWithPast, MoeCausalLMOutputWithPast

    ignore_index = kwargs.pop("ignore_index", -100)
    shifted, n_items = kwargs.pop("shift_labels", None), kwargs.pop("num_items_in_batch", None)
    as_tuple = kwargs.pop("return_dict", None) is False
    kwargs.pop("logits_to_keep", None)
    outputs = self.base_model(input_ids=input_ids, **kwargs)
    head, hidden = self.get_output_embeddings(), outputs.last_hidden_state
    if shifted is None:
        shifted = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    loss = linear_cross_entropy(
        hidden, head.weight, shifted.to(hidden.device), head.bias, n_items=n_items, ignore_index=ignore_index,
        logit_softcapping=getattr(self.config, "final_logit_softcapping", None) or 0.0,
    )  # fmt: skip
    kept = dict(
        logits=None, past_key_values=outputs.past_key_values, hidden_states=outputs.hidden_states,
        attentions=outputs.attentions,
    )  # fmt: skip
    routed = getattr(outputs, "router_logits", None)
    if routed is None:
        output = CausalLMOutputWithPast(loss=loss, **kept)
    else:  # the model's own loss of its routers, which counts the slots of all layers together
        balance = importlib.import_module(type(self).__module__).load_balancing_loss_func
        aux_loss = balance(routed, self.num_experts, self.num_experts_per_tok, kwargs.get("attention_mask"))
        loss = loss + self.router_aux_loss_coef * aux_loss.to(loss.device)
        output = MoeCausalLMOutputWithPast(loss=loss, aux_loss=aux_loss, router_logits=routed, **kept)
    return output.to_tuple() if as_tuple else output
