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

**Everything around a model reads it**: `copy.deepcopy` and pickle, PEFT, which wraps its layers, hooks, `generate` and
`Trainer`, which look at the signature of `forward`. So nothing that may change later is looked up when patching. A
replaced module gets another *class*, made from its own: same name, same module, same signature, another `forward`. Its
`self` is whatever module it is called on, a copy's too. (A function put into the module as an attribute would go on
computing with the module it was made for.) Each call looks at the parts of the module that ours would skip, such as the
last projection. If one is no longer what it was, or somebody listens to it, the call is the original's, and `report`
counts it.
"""

from academy.runtime import checks  # before anything imports triton

import functools
import importlib
import inspect
import types
import warnings
from collections import Counter, namedtuple
from dataclasses import dataclass, field
from typing import get_type_hints

import torch
from torch.nn.modules.module import _has_any_global_hook

from academy.runtime import autograd
from academy.runtime.device import DEVICE
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
# Class of an activation -> the gated unit that begins with it.
GATED_UNITS = {
    "SiLU": swiglu, "SiLUActivation": swiglu, "GELUActivation": geglu,
    "GELUTanh": functools.partial(geglu, approximate="tanh"),
}  # fmt: skip


@dataclass
class Patch:
    """What was changed in a model. As a context manager it undoes the changes at the end."""

    model: torch.nn.Module
    replaced: Counter = field(default_factory=Counter)
    left: Counter = field(default_factory=Counter)

    @property
    def fallbacks(self):
        """How many calls fell back to the original code, by reason."""
        counters = (module._fallbacks for module in self.model.modules() if is_patched(module))
        return sum(counters, Counter())

    def __enter__(self):
        return self.model

    def __exit__(self, *exception):
        if getattr(self.model, "_triton_academy", None) is self:
            unpatch(self.model)


# ## Patching
#
# A plan is a list of modules and of what to replace in them. It is complete before its first entry is carried out.
def patch(model, *, norm=True, rope=True, mlp=True, experts=True, attention=True, loss=True):
    """Let `model` compute with our kernels, in place.

    Args:
        model: a causal language model of `transformers` (5.x): Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE,
            Gemma, Gemma2, Gemma3 (text) or GPT-2, on one device, in float32, float16 or bfloat16; or PEFT's wrapper
            around one.
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
    transformers, model = _transformers(), _inside(model)
    if not isinstance(model, transformers.PreTrainedModel):
        raise TypeError(f"model must be a transformers.PreTrainedModel, got {type(model).__name__}")
    if getattr(model, "_triton_academy", None) is not None:
        raise ValueError("model is patched already: unpatch(model) first")
    result = Patch(model)
    plan = list(_plan(model, wanted, result))
    if not result.replaced:
        raise ValueError(f"model has nothing to replace; what was looked at: {dict(result.left)}")
    for module, made in plan:
        module.__class__, module._fallbacks = made, Counter()
    model._triton_academy = result
    return result


def unpatch(model):
    """Undo everything that `patch` did to `model`. Raises ValueError if it is not patched."""
    model = _patch_of(model).model
    for module in filter(is_patched, model.modules()):
        del module._fallbacks  # from here on it computes as before, whatever was made of its class meanwhile
        module.__class__ = original_class(type(module))
    del model._triton_academy
    return model


def report(model):
    """What was replaced in a patched model, what was left and why, and which calls fell back, as text."""
    result = _patch_of(model)
    lines = [f"{type(result.model).__name__} ({result.model.config.model_type})"]
    for title, counts in ("replaced", result.replaced), ("left", result.left), ("fell back", result.fallbacks):
        in_order = sorted(counts.items(), key=lambda item: PARTS.index(item[0].partition(":")[0]))
        lines += [f"  {title}: {what} x{count}" for what, count in in_order]
    return "\n".join(lines)


def _inside(model):
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _patch_of(model):
    result = getattr(_inside(model), "_triton_academy", None)
    if result is None:
        raise ValueError("model is not patched")
    return result


def _transformers():
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError('transformers is missing: pip install "triton-academy[huggingface]"') from error
    if transformers.__version__.split(".")[0] != "5":
        raise ImportError(f"transformers must be 5.x, got {transformers.__version__}")
    return transformers


# How the name of a class ends -> the kinds of replacement that its `forward` takes. `KINDS`, at the end, has them.
ENDINGS = {
    "RMSNorm": ("norm",), "LayerNorm": ("norm",), "MLP": ("mlp",), "TopKRouter": ("router",), "Experts": ("experts",),
    "Attention": ("rope", "attention"), "Model": ("masks",), "TextModel": ("masks",),
    "ForCausalLM": ("loss",), "LMHeadModel": ("loss",),
}  # fmt: skip


def _plan(model, wanted, result):
    kind = getattr(model.config, "model_type", None)
    if kind not in FAMILIES:
        classes = sorted({type(module).__name__ for module in model.modules()})
        raise ValueError(
            f"model must be one of {', '.join(FAMILIES)}, got model_type {kind!r}; modules looked at: "
            f"{', '.join(classes)}"
        )
    package = kind.removesuffix("_text")
    files = [f"transformers.models.{package}.modeling_{package}"]
    files += ["torch.nn.modules.normalization"] if kind == "gpt2" else []
    for module in model.modules():
        base = original_class(type(module))
        known = next((one for one in base.__mro__ if one.__module__ in files), base)
        kinds = ENDINGS.get(known.__name__.removeprefix(FAMILIES[kind]), ()) if known.__module__ in files else ()
        if chosen := [kind for kind in kinds if _chosen(kind, module, base, known, wanted, result)]:
            yield module, class_with(base, *chosen)
    if not any(what.startswith("loss: ") for what in (*result.replaced, *result.left)):
        result.left[f"loss: {type(model).__name__} (it isn't the loss of a language model)"] += 1


def _chosen(kind, module, base, known, wanted, result):
    """Whether this is replaced; either way it is recorded, with the reason if not."""
    part = KINDS[kind].part
    if not wanted[part]:
        reason = "not chosen"
    elif base is not known:
        reason = f"its class is {base.__name__}"
    elif "forward" in vars(module):
        reason = "its forward was replaced before"
    else:
        reason = KINDS[kind].look(module)
    if kind != "masks":  # they go with attention
        counts, why = (result.left, f" ({reason})") if reason else (result.replaced, "")
        counts[f"{part}: {known.__name__}{why}"] += 1
    return reason is None


# ## A class of the same name
#
# `transformers` knows a class by its name and file, for example when it collects the outputs of layers, so ours has the
# same. Then pickle can't find it by its name, and `__reduce_ex__` says what it is made of. `_fallbacks`, which counts
# the calls that fell back, is also the switch: `unpatch` removes it. Others make classes on top of ours (`parametrize`,
# `fully_shard`) or keep our bound `forward` (accelerate). With the switch off all of them compute as before.
class Patched:
    """What the classes made by `class_with` have in common. `made_of`: the original class, the kinds of replacement."""

    made_of = ()

    def __reduce_ex__(self, protocol):
        if "made_of" not in vars(type(self)):  # a class on top of ours, which knows how it may be copied
            return super().__reduce_ex__(protocol)
        return _empty, self.made_of, self.__getstate__()


def _empty(*made_of):
    made = class_with(*made_of)
    return made.__new__(made)


@functools.cache
def class_with(base, *kinds):
    """A class that differs from `base` in its `forward` only."""
    original = ours = base.forward
    for kind in kinds:
        ours = KINDS[kind].forward(ours)

    @functools.wraps(original)
    def forward(self, *args, **kwargs):
        return (ours if "_fallbacks" in self.__dict__ else original)(self, *args, **kwargs)

    forward.__code__ = forward.__code__.replace()  # its own: torch.compile keeps what it made with the code
    del forward.__wrapped__  # accelerate takes off what wraps a forward
    forward.__signature__ = inspect.signature(original)
    names = dict(__module__=base.__module__, __qualname__=base.__qualname__, __doc__=base.__doc__)
    return type(base.__name__, (Patched, base), dict(names, forward=forward, made_of=(base, *kinds)))


def original_class(kind):
    return kind.made_of[0] if "made_of" in vars(kind) else kind


def is_patched(module):
    return isinstance(module, Patched) and "_fallbacks" in module.__dict__


# A kind of replacement: `look(module)` says why a module can't be replaced, or None; `forward` makes the new forward of
# the old one.
Kind = namedtuple("Kind", "part look forward")


# `look` is also asked in each call, with the arguments.
def kind(part, look, run):
    """The kind that computes `run(module, *arguments)`, or, if there is a reason against it, what it was before."""

    def forward_of(original):
        names = list(inspect.signature(original).parameters)[1:]

        def forward(self, *args, **kwargs):
            args += tuple(kwargs[name] for name in names[len(args) :])
            reason = look(self, *args)
            if reason is None:
                return run(self, *args)
            fall_back(self, part, reason)
            return original(self, *args)

        return forward

    return Kind(part, look, forward_of)


def fall_back(module, part, reason):
    """Count a call that fell back, and warn."""
    if torch.compiler.is_compiling():
        return
    module._fallbacks[f"{part}: {type(module).__name__}, {reason}"] += 1
    warnings.warn(f"{part} of {type(module).__name__} falls back: {reason}", stacklevel=3)


# ## What each call looks at
def obstacle(*tensors):
    """Why our kernels can't take these tensors (None for one that isn't there), or None if they can."""
    for x in tensors:
        if x is None:
            continue
        if type(x) not in (torch.Tensor, torch.nn.Parameter):  # sharded, quantized, fake
            return f"a {type(x).__name__}"
        if x.dtype not in checks.FLOATS:
            return f"dtype {x.dtype}"
        if not getattr(x, checks.HERE):
            return f"a tensor on {x.device}"
    if not torch.compiler.is_compiling() and (checks.peek_interpreter_stack() or autograd.forward_mode()):
        return "a transform of torch.func, or forward mode"
    return None


# A call does more than `forward` where somebody has hooked in, or put another `forward` there.
def untouched(module):
    """Whether calling this module does what its class says, and nothing else."""
    own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return not own and "forward" not in module.__dict__ and not _has_any_global_hook()


def gated_unit(activation):
    """Our gated unit with this module as its activation, or None."""
    kind = type(activation)
    known = kind.__module__ in ("transformers.activations", "torch.nn.modules.activation")
    return GATED_UNITS.get(kind.__name__) if known else None


def look_at_activation(activation, units):
    if gated_unit(activation) not in units:
        return f"activation {type(activation).__name__}"
    return None if untouched(activation) else "a hook on its activation, or a forward of its own"


def autocast_dtype():
    """What autocast computes in at the moment, where kernels run; None without it."""
    return torch.get_autocast_dtype(DEVICE.type) if torch.is_autocast_enabled(DEVICE.type) else None


# ## Norms and gated units
#
# Results have the dtype that they had. Llama's norms multiply by the weight after they have rounded, so a weight in
# float32 makes the result float32. Gemma's return the dtype of `x`, and autocast on a GPU makes LayerNorm's float32.
def rms_norm(module, x):
    if hasattr(module, "variance_epsilon"):
        return rmsnorm(x.to(torch.promote_types(x.dtype, module.weight.dtype)), module.weight, module.variance_epsilon)
    return rmsnorm(x, module.weight, module.eps, offset=1.0)


def norm(module, x):
    if not isinstance(module, torch.nn.LayerNorm):
        return rms_norm(module, x)
    return apply_layernorm(module, x.float() if x.is_cuda and autocast_dtype() else x)


def look_at_norm(module, x=None):
    return obstacle(x, module.weight, getattr(module, "bias", None)) if x is not None else None


# The projections may be anything by now, and are called as they are.
def mlp(module, x):
    gate, up = module.gate_proj(x), module.up_proj(x)
    if obstacle(gate, up) or gate.dtype != up.dtype:
        return module.down_proj(module.act_fn(gate) * up)
    return module.down_proj(gated_unit(module.act_fn)(gate, up))


def look_at_mlp(module, x=None):
    return look_at_activation(module.act_fn, GATED_UNITS.values()) if hasattr(module, "gate_proj") else "it has no gate"


# ## Experts
#
# The router's logits stay a product of PyTorch: a model may be asked for them. Selecting and weighting are one kernel.
# The weights stay in float32, where Qwen3-MoE rounds them to the model's dtype.
def router(module, hidden_states):
    logits = torch.nn.functional.linear(hidden_states.reshape(-1, module.hidden_dim), module.weight)
    weights, experts = route(logits, module.top_k, renormalize=getattr(module, "norm_topk_prob", True))
    return logits, weights, experts.long()


def look_at_router(module, hidden_states=None):
    return obstacle(hidden_states, module.weight) if hidden_states is not None else None


# The matrices of all experts are two parameters, and lie as our layer wants them. In autocast everything is rounded
# first, as PyTorch's layer does.
def experts(module, hidden_states, top_k_index, top_k_weights):
    dtype = autocast_dtype() or hidden_states.dtype
    matrices = module.gate_up_proj.to(dtype), module.down_proj.to(dtype)
    return moe_mlp(hidden_states.to(dtype), top_k_index, top_k_weights.float(), *matrices).to(hidden_states.dtype)


def look_at_experts(module, hidden_states=None, top_k_index=None, top_k_weights=None):
    matrices = module.gate_up_proj, module.down_proj
    if module.has_bias or module.is_transposed or not (module.has_gate and module.is_concatenated):
        return "its matrices have another layout"
    if any(type(matrix.data) is not torch.Tensor or matrix.dtype not in checks.FLOATS for matrix in matrices):
        return "quantized or sharded weights"
    reason = look_at_activation(module.act_fn, (swiglu,))
    if reason or hidden_states is None:
        return reason
    if not autocast_dtype() and hidden_states.dtype != module.down_proj.dtype:
        return f"weights in {module.down_proj.dtype}"
    return obstacle(hidden_states, top_k_weights, *matrices)


# ## The same code, other names
#
# An attention module calls functions of its file: `apply_rotary_pos_emb`, and one that `ALL_ATTENTION_FUNCTIONS` finds.
# Replacing them there would change every model. So our class gets its own copy of `forward`, with the same code, in
# which some names mean something else.
def with_names(function, new):
    """A copy of `function` in which global names of its code have other values: `{name: new(old value)}`."""
    names, inner, cells = function.__globals__, getattr(function, "__wrapped__", None), function.__closure__
    if used := {name: new[name](names[name]) for name in function.__code__.co_names if name in new}:
        names = {**names, **used}
        names.pop("__name__", None)  # by it torch.compile would find the names of the file again
    if inner is not None:  # a decorator made it, and it calls the function in its closure
        again = with_names(inner, new)
        cells = tuple(types.CellType(again) if cell.cell_contents is inner else cell for cell in cells)
    code = function.__code__.replace()  # its own: torch.compile keeps what it made with the code
    copy = types.FunctionType(code, names, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, function.__module__
    copy.__dict__.update(function.__dict__, **({} if inner is None else {"__wrapped__": again}))
    return copy


def names_in(module):
    """The names in the code of the original `forward`."""
    return inspect.unwrap(original_class(type(module)).forward).__code__.co_names


# ## Rotary embedding
def rope_in(original):
    return with_names(original, {"apply_rotary_pos_emb": lambda theirs: functools.partial(rotate, theirs)})


def look_at_rope(module):
    return None if "apply_rotary_pos_emb" in names_in(module) else "it has no rotary embedding"


def rotate(original, q, k, cos, sin, unsqueeze_dim=1):
    """Stands in for `apply_rotary_pos_emb` of `transformers`, which passes every angle twice, once per half of a
    head."""
    if unsqueeze_dim != 1 or obstacle(q, k, cos, sin) or cos.shape[-1] != q.shape[-1] or cos.requires_grad:
        return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
    q, k = (x.to(torch.promote_types(x.dtype, cos.dtype)) for x in (q, k))
    cos, sin = (angles[..., : angles.shape[-1] // 2] for angles in (cos, sin))
    # The same positions in the whole batch come as a batch of one.
    cos, sin = (angles[0] if angles.shape[0] == 1 else angles for angles in (cos, sin))
    return rope(q, k, cos, sin)


# ## Attention
#
# `transformers` looks up the attention function, and the function that makes the mask, by a name:
# `config._attn_implementation`. Where that is one of these, ours take the place of both. GPT-2's eager attention is its
# own: it may compute in float32, and doesn't hear whether its weights are asked for.
def implementations(original):
    return ("sdpa",) if original.__module__.endswith("gpt2") else ("sdpa", "eager")


@dataclass(frozen=True)
class Functions:
    """Stands in for `ALL_ATTENTION_FUNCTIONS` or `ALL_MASK_ATTENTION_FUNCTIONS`: `ours` gets theirs and the name."""

    theirs: object
    names: tuple
    ours: object

    def get_interface(self, name, default):
        return self._ours(name, self.theirs.get_interface(name, default))

    def __getitem__(self, name):
        return self._ours(name, self.theirs[name])

    def _ours(self, name, theirs):
        return functools.partial(self.ours, theirs, name) if name in self.names else theirs


def attention(original):
    names = implementations(original)
    return with_names(original, {"ALL_ATTENTION_FUNCTIONS": lambda theirs: Functions(theirs, names, attend)})


def look_at_attention(module):
    if getattr(module, "is_cross_attention", False):
        return "it attends to another sequence"
    if "get_interface" not in names_in(module):
        return "its code finds the attention function in another way"
    if (name := module.config._attn_implementation) not in implementations(original_class(type(module)).forward):
        return f"implementation {name!r}"
    return f"head dimension {module.head_dim}" if module.head_dim > LARGEST_HEAD else None


# A mask that hides the future and nothing else isn't made. In its place layers get an **empty mask**, of shape
# (queries, 0, keys, window). A layer that isn't ours couldn't do with that, so all of them must be.
def masks(original):
    names = implementations(original)
    makers = {"ALL_MASK_ATTENTION_FUNCTIONS": lambda theirs: Functions(theirs, names, mask)}
    creators = dict.fromkeys(
        ("create_causal_mask", "create_sliding_window_causal_mask"), lambda theirs: with_names(theirs, makers)
    )
    ours = with_names(original, creators)

    def forward(self, *args, **kwargs):
        layers = self.h if hasattr(self, "h") else self.layers
        return (ours if all(map(takes_empty_mask, layers)) else original)(self, *args, **kwargs)

    return forward


def takes_empty_mask(layer):
    module = getattr(layer, "self_attn", None) or getattr(layer, "attn", None)
    ours = is_patched(module) and "attention" in module.made_of
    return ours and "forward" not in module.__dict__ and not module._forward_pre_hooks


def mask(make, name, *, q_length, kv_length, device, local_size=None, **options):
    if is_plain(q_length=q_length, kv_length=kv_length, **options):
        return torch.empty(q_length, 0, kv_length, local_size or 0, device=device)
    return make(q_length=q_length, kv_length=kv_length, device=device, local_size=local_size, **options)


def is_plain(*, q_length, kv_length, q_offset=0, kv_offset=0, attention_mask=None, allow_is_causal_skip=True, **others):
    """Whether the last query sees the last key, all masking is by position, and nothing is padding."""
    if not allow_is_causal_skip or isinstance(q_offset, torch.Tensor):
        return False
    if q_offset + q_length != kv_offset + kv_length:
        return False
    if attention_mask is None:
        return True
    whole = attention_mask.dim() == 2 and attention_mask.shape[1] >= kv_offset + kv_length  # the rest would be padding
    return whole and not torch.compiler.is_compiling() and bool(attention_mask.all())


def attend(
    function, name, module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None,
    **others,
):  # fmt: skip
    """An attention function with the interface of `transformers`: (B, H, T, D) in, (B, T, H, D) and no weights out."""
    causal, window, reason = True, None, None
    queries, keys = query.shape[2], key.shape[2]
    empty = attention_mask is not None and attention_mask.numel() == 0 and query.numel() > 0
    if empty:
        window = attention_mask.shape[3] or None
        reason = None if attention_mask.shape[2] == keys else "a mask for another number of keys"
    elif attention_mask is not None:
        reason = "a mask, of padding or of the user"
    elif name == "eager":
        reason = "no mask at all"
    else:  # then sdpa is causal from the first key on, or a single query sees all keys
        causal = queries > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
        reason = "a cache with room at its end" if causal and queries != keys else None
    if dropout:
        reason = "dropout of the probabilities"
    elif others.get("s_aux") is not None or others.get("position_bias") is not None:
        reason = "scores with something added"
    elif key.shape[-1] != value.shape[-1]:
        reason = "values of another width than the keys"
    elif name == "eager" and (asked_for_weights(module) or others.get("output_attentions")):
        reason = "its weights are asked for"
    if dtype := autocast_dtype():  # PyTorch's attention rounds then
        ours = [x.to(dtype) for x in (query, key, value)]
    else:
        ours = [query, key, value]
        reason = reason or (None if query.dtype == key.dtype == value.dtype else f"a query in {query.dtype}")
    if reason := reason or obstacle(*ours):
        fall_back(module, "attention", reason)
        if empty:
            attention_mask = whole_mask(name, query, attention_mask.shape)
        options = dict(others, softcap=softcap)
        options = {name: value for name, value in options.items() if value is not None}
        return function(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **options
        )
    softcap = softcap or 0.0 if name == "eager" else 0.0  # sdpa knows none
    o = flash_attention(*ours, causal=causal, scale=scaling, window=window, softcap=softcap)
    return o.transpose(1, 2), None


def asked_for_weights(module):
    return module._forward_hooks or getattr(module.config, "output_attentions", False)


def whole_mask(name, query, shape):
    """What `transformers` would have made in place of the empty mask of this shape."""
    from transformers import masking_utils as utils

    queries, _, keys, window = shape
    return utils.ALL_MASK_ATTENTION_FUNCTIONS[name](
        batch_size=query.shape[0], q_length=queries, kv_length=keys, q_offset=keys - queries, local_size=window or None,
        mask_function=utils.sliding_window_causal_mask_function(window) if window else utils.causal_mask_function,
        dtype=query.dtype, device=query.device,
    )  # fmt: skip


# ## The loss
#
# In training the logits are computed, used for the loss, and thrown away. For a vocabulary of 128256 and 8192 tokens
# they take 2 GB in bfloat16, and `transformers` makes 4 GB in float32 of them for its loss. Both have a gradient, as
# large again. Our loss is computed from the last hidden states instead. This is where a training step needs the most
# memory, so few logits are kept.
linear_cross_entropy = functools.partial(linear_cross_entropy_lean, KEPT=0.02)


def loss(original):
    code = inspect.unwrap(original)
    kind, balance = get_type_hints(code)["return"], code.__globals__.get("load_balancing_loss_func")
    capped = "final_logit_softcapping" in code.__code__.co_names

    def forward(self, input_ids=None, *args, labels=None, **kwargs):
        if labels is None or not self.training:
            return original(self, input_ids, *args, labels=labels, **kwargs)
        if reason := look_at_loss(self) or look_at_arguments(self, *args, **kwargs):
            fall_back(self, "loss", reason)
            return original(self, input_ids, *args, labels=labels, **kwargs)
        ignore_index = kwargs.pop("ignore_index", -100)
        shifted, n_items = kwargs.pop("shift_labels", None), kwargs.pop("num_items_in_batch", None)
        for name in ("logits_to_keep", "return_dict"):
            kwargs.pop(name, None)
        if balance is not None and kwargs.get("output_router_logits") is None:
            kwargs["output_router_logits"] = self.config.output_router_logits
        outputs = self.base_model(input_ids=input_ids, **kwargs)
        hidden, weight, bias = outputs.last_hidden_state, self.lm_head.weight, self.lm_head.bias
        if autocast_dtype():
            hidden = hidden.to(weight.dtype)
        if shifted is None:
            shifted = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        loss = linear_cross_entropy(
            hidden, weight, shifted.to(hidden.device), bias, n_items=n_items, ignore_index=ignore_index,
            logit_softcapping=capped and self.config.final_logit_softcapping or 0.0,
        )  # fmt: skip
        if n_items is None:  # the mean of nothing is NaN
            loss = loss.masked_fill((shifted == ignore_index).all(), float("nan"))
        more = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        if kwargs.get("output_router_logits"):  # the model's own loss of its routers, for all layers together
            aux_loss = balance(
                outputs.router_logits, self.num_experts, self.num_experts_per_tok, kwargs.get("attention_mask")
            )
            more["aux_loss"], loss = aux_loss, loss + self.router_aux_loss_coef * aux_loss.to(loss.device)
        return kind(loss=loss, **more)

    return forward


def look_at_loss(model):
    head, function = model.lm_head, model.loss_function
    if type(head) is not torch.nn.Linear:
        return f"{type(head).__name__} computes the logits"
    if not untouched(head):
        return "a hook on the last projection, or a forward of its own"
    if (function.__module__, function.__name__) != ("transformers.loss.loss_utils", "ForCausalLMLoss"):
        return f"loss {function.__name__}"
    return obstacle(head.weight, head.bias)


def look_at_arguments(model, *args, logits_to_keep=0, return_dict=None, **others):
    if args:
        return "arguments without a name"
    if not isinstance(logits_to_keep, int) or logits_to_keep:
        return "logits_to_keep"
    return None if (model.config.return_dict if return_dict is None else return_dict) else "the logits are in a tuple"


KINDS = {
    "norm": kind("norm", look_at_norm, norm),
    "mlp": kind("mlp", look_at_mlp, mlp),
    "router": kind("experts", look_at_router, router),
    "experts": kind("experts", look_at_experts, experts),
    "rope": Kind("rope", look_at_rope, rope_in),
    "attention": Kind("attention", look_at_attention, attention),
    "masks": Kind("attention", lambda module: None, masks),
    "loss": Kind("loss", look_at_loss, loss),
}
