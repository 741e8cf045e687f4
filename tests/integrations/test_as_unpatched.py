"""What stands around a model — copies, hooks, PEFT, wrappers, `generate`, `Trainer` — finds a patched one as it was.

A situation is a function of a model, which is patched before; or of a model and of `patch`, which it calls when it
likes. It runs twice, once with a `patch` that does nothing, and returns what is compared.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import tempfile
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from annotated_examples.integrations import huggingface
from tests import python
from tests.integrations.models import build, tokens, transformers
from tests.kernels.harness import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:.* falls back")
SITUATIONS = []


def situation(*models, at_night=(), **options):
    """Registers a function for these models; for those `at_night` in the nightly workflow only."""

    def keep(function):
        def case(model, patch):
            if "patch" in inspect.signature(function).parameters:
                return function(model, patch, **options)
            patch(model)
            return function(model, **options)

        for name in (*models, *at_night):
            marks = [pytest.mark.nightly] if name in at_night else []
            key = "-".join([function.__name__, *(str(value) for value in options.values()), name])
            SITUATIONS.append(pytest.param(case, name, id=key, marks=marks))
        return function

    return keep


def run(model, ids=None, **inputs):
    """Loss and gradients of a training step, then the logits of an evaluation."""
    ids = tokens() if ids is None else ids
    torch.manual_seed(5)
    model.zero_grad()
    model.train()
    labels = ids.clone()
    labels[0, 3:5] = -100
    output = model(ids, labels=labels, **inputs)
    loss = output[0] if isinstance(output, tuple) else output.loss
    results = dict(loss=loss.detach())
    if loss.requires_grad:
        loss.backward()
        results |= {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.eval()
    for name in ("num_items_in_batch", "shift_labels"):
        inputs.pop(name, None)
    with torch.no_grad():
        output = model(ids, **inputs)
    return results | dict(logits=output[0] if isinstance(output, tuple) else output.logits)


def compare(ours, theirs, rtol=1e-4):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        actual = ours[name]
        if not isinstance(expected, torch.Tensor):
            assert actual == expected, name
            continue
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, (name, actual.dtype, expected.dtype)
        assert torch.equal(actual.isnan(), expected.isnan()), name
        if expected.is_floating_point():
            actual, expected = (x.double().nan_to_num() for x in (actual, expected))
            assert (actual - expected).norm() <= rtol * expected.norm() + 1e-6, name
        else:
            assert torch.equal(actual, expected), name


def both(case, name):
    """What a situation returns without the patch, and with it."""
    results = []
    for patch in (lambda model: None), huggingface.patch:
        model = build(name)
        torch.manual_seed(7)
        results.append(case(model, patch))
    return results


# ---------------------------------------------------------------- copies
@situation("llama", at_night=("gpt2", "mixtral", "gemma2"))
def deep_copy(model):
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data.mul_(1.1)
    results = run(other)
    assert all(parameter.grad is None for parameter in model.parameters())
    return results


@situation("llama", at_night=("gpt2", "mixtral"))
def moving_average(model):
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    for parameter in model.parameters():
        parameter.data.mul_(1.2)
    average.update_parameters(model)
    return run(average)


@situation("llama", at_night=("gpt2", "mixtral", "gemma2"))
def saved_whole(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return run(torch.load(buffer, weights_only=False))


@situation("llama")
def a_layer_twice(model):
    """The copy has the same number, so it appends to the same part of the cache."""
    model.model.layers[1] = copy.deepcopy(model.model.layers[0])
    return run(model)


@situation("llama", at_night=("gpt2", "mixtral"))
def functional_call(model):
    new = {name: (parameter.detach() * 1.3).requires_grad_() for name, parameter in model.named_parameters()}
    loss = torch.func.functional_call(model.train(), new, (tokens(),), dict(labels=tokens())).loss
    return dict(loss=loss.detach()) | dict(zip(new, torch.autograd.grad(loss, list(new.values()))))


@situation("llama", at_night=("gpt2",))
def transform_of_func(model):
    ids, weights = tokens(1), {name: parameter.detach() for name, parameter in model.train().named_parameters()}

    def loss(weights):
        return torch.func.functional_call(model, weights, (ids,), dict(labels=ids, use_cache=False)).loss

    return torch.func.grad(loss)(weights)


@situation("llama")
def new_parameters(model):
    model.load_state_dict({name: value * 1.5 for name, value in model.state_dict().items()}, assign=True)
    model.model.norm.weight = nn.Parameter(torch.full((32,), 2.0, device=DEVICE))
    model.lm_head.weight.requires_grad_(False)
    return run(model.half().float())


@situation("llama", at_night=("gpt2", "gemma2", "mixtral"))
def in_float64(model):
    if hasattr(model.config, "num_experts_per_tok"):  # PyTorch has no grouped product in float64
        model.set_experts_implementation("eager")
    return run(model.double())


@situation("llama", at_night=("gpt2", "gemma2"))
def on_meta(model):
    return dict(shape=model.to("meta")(tokens().to("meta")).logits.shape)


@situation("llama")
def the_same_config(model):
    """A model of the same class and config is another model."""
    other = type(model)(model.config).to(DEVICE)
    other.load_state_dict(model.state_dict())
    assert not any(map(huggingface.is_patched, other.modules()))
    return run(other)


# ---------------------------------------------------------------- what is read
@situation("llama", at_night=("gpt2", "qwen3_moe", "gemma3"))
def signatures(model):
    read = lambda m: (str(inspect.signature(m.forward)), str(type(m)), m.forward.__doc__, m.forward.__name__)  # noqa: E731
    return {name: read(module) for name, module in model.named_modules()} | dict(text=repr(model))


def watch(model, place, kind):
    """Hooks on all modules of this name, and the list in which they keep what they see."""
    seen = []

    def hook(module, *values):
        floats = [x for x in torch.utils._pytree.tree_leaves(values) if isinstance(x, torch.Tensor) and x.numel()]
        seen.extend(x.detach().float().abs().mean() for x in floats if x.is_floating_point())

    double = lambda module, inputs, output: output * 2  # noqa: E731
    found = [module for name, module in model.named_modules() if name.rpartition(".")[2] == place]
    assert found, place
    register = "register_forward_hook" if kind in ("doubles", "removed") else f"register_{kind}_hook"
    hooks = [getattr(module, register)(double if kind == "doubles" else hook) for module in found]
    if kind == "removed":
        [each.remove() for each in hooks]
    return seen


KINDS = "forward", "forward_pre", "full_backward", "full_backward_pre", "doubles", "removed"


def hooks(model, kind, place):
    seen = watch(model, place, kind)
    results = run(model)
    assert bool(seen) == (kind not in ("doubles", "removed"))
    return results | {f"seen {i}": value for i, value in enumerate(seen)}


for kind in KINDS:
    situation("llama", kind=kind, place="lm_head")(hooks)
    often = kind in ("forward", "doubles")
    situation(*(["llama"] if often else []), at_night=() if often else ("llama",), kind=kind, place="act_fn")(hooks)
    for name, place in ("gpt2", "ln_f"), ("llama", "gate_proj"), ("mixtral", "act_fn"), ("llama", "input_layernorm"):
        situation(at_night=(name,), kind=kind, place=place)(hooks)
    if kind != "doubles":
        situation(at_night=("mixtral",), kind=kind, place="gate")(hooks)
for kind in ("full_backward", "full_backward_pre", "removed"):  # a pre-hook sees no positional arguments there
    situation(at_night=("llama eager",), kind=kind, place="self_attn")(hooks)
situation("llama eager", kind="forward", place="self_attn")(hooks)


@situation("llama", at_night=("mixtral", "gpt2"))
def a_hook_on_all_modules(model):
    seen = []
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    try:
        return run(model) | dict(seen=sorted(seen))
    finally:
        hook.remove()


# ---------------------------------------------------------------- other modules in its place
class Adapter(nn.Module):
    """A linear layer and a product of small matrices beside it."""

    def __init__(self, base):
        super().__init__()
        self.base, numbers = base, torch.Generator().manual_seed(1)
        self.a = nn.Parameter(0.3 * torch.randn(4, base.in_features, generator=numbers).to(DEVICE))
        self.b = nn.Parameter(0.3 * torch.randn(base.out_features, 4, generator=numbers).to(DEVICE))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


def put(model, places, make):
    for name, module in list(model.named_modules()):
        parent, _, place = name.rpartition(".")
        if place in places:
            setattr(model.get_submodule(parent), place, make(module))


PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]


@situation("llama")
def adapters(model):
    put(model, PROJECTIONS, Adapter)
    return run(model)


@situation("llama", at_night=("mixtral", "gemma2"))
def another_activation(model):
    put(model, ["act_fn"], lambda module: nn.ReLU())
    return run(model)


class Own(nn.Module):
    """An attention layer of the user's, which uses the mask."""

    def __init__(self, *_):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 1024, device=DEVICE).reshape(32, 32))

    def forward(self, hidden_states, attention_mask=None, **_):
        share = 0 if attention_mask is None else attention_mask.float().clamp(-1).mean()
        return hidden_states @ self.weight + share, None


@situation("mistral", at_night=("llama", "gemma2"))
def another_attention(model):
    model.model.layers[1].self_attn = Own()
    return run(model)


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def parametrized(model, patch, when):
    if when == "before":
        patch(model)
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2] in ("lm_head", "norm", "ln_f", "ln_1", "input_layernorm", "down_proj"):
            nn.utils.parametrize.register_parametrization(module, "weight", Twice())
    if when == "after":
        patch(model)
    return run(model)


situation("llama", at_night=("gpt2", "gemma2"), when="before")(parametrized)
situation(at_night=("llama", "gpt2"), when="after")(parametrized)


@situation("llama")
def head_by_a_hook(model):
    """`torch.nn.utils.weight_norm` and pruning compute the weight just before the call."""
    prune.random_unstructured(model.lm_head, "weight", 0.5)
    return run(model)


@situation("llama", at_night=("gpt2",))
def head_resized_tied_and_with_a_bias(model):
    model.resize_token_embeddings(70, mean_resizing=False)
    model.lm_head.weight = model.get_input_embeddings().weight
    model.lm_head.bias = nn.Parameter(torch.linspace(-1, 1, 70, device=DEVICE))
    return run(model)


@situation("llama")
def a_loss_of_its_own(model):
    model.loss_function = lambda logits, labels, vocab_size, **_: logits.square().mean()
    return run(model)


@situation("gemma2", at_night=("mistral",))
def options_changed(model):
    model.config.final_logit_softcapping, model.config.sliding_window = 5.0, 3
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = 0.5
    return run(model)


# ---------------------------------------------------------------- PEFT
def peft_situation(model, patch, when, **options):
    peft = pytest.importorskip("peft")
    if when == "before":
        patch(model)
    gpt2 = model.config.model_type == "gpt2"
    usual = dict(target_modules=["c_attn", "c_proj", "lm_head"] if gpt2 else PROJECTIONS, r=4, fan_in_fan_out=gpt2)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **usual | options)
    torch.manual_seed(3)
    tuned = peft.get_peft_model(model, config)
    if when == "after":
        patch(tuned)
    results = run(tuned)
    with tuned.disable_adapter():
        results |= {f"without {name}": value for name, value in run(tuned).items()}
    return results | {f"merged {name}": value for name, value in run(tuned.merge_and_unload()).items()}


def lora(model, patch, when):
    return peft_situation(model, patch, when)


def dora(model, patch, when):
    return peft_situation(model, patch, when, use_dora=True)


def modules_to_save(model, patch, when):
    kept = ["lm_head", "ln_f"] if model.config.model_type == "gpt2" else ["lm_head", "norm", "mlp"]
    first = ["c_attn"] if model.config.model_type == "gpt2" else ["q_proj"]
    return peft_situation(model, patch, when, target_modules=first, modules_to_save=kept)


def lora_of_experts(model, patch, when):
    matrices = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]
    return peft_situation(model, patch, when, target_modules=["q_proj"], target_parameters=matrices)


def prompts(model, patch, when):
    peft = pytest.importorskip("peft")
    if when == "before":
        patch(model)
    tuned = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    if when == "after":
        patch(tuned)
    mask = torch.ones_like(tokens())
    results = run(tuned, attention_mask=mask)
    made = tuned.eval().generate(input_ids=tokens(), attention_mask=mask, max_new_tokens=4, do_sample=False)
    return results | dict(made=made)


situation("llama", at_night=("gpt2", "mixtral", "gemma2"), when="before")(lora)
situation(at_night=("llama", "gpt2"), when="after")(lora)
situation(at_night=("llama", "gpt2"), when="before")(modules_to_save)
situation("mixtral", at_night=("qwen3_moe",), when="before")(lora_of_experts)
situation(at_night=("llama",), when="after")(modules_to_save)
situation(at_night=("mixtral",), when="after")(lora_of_experts)
for when in ("before", "after"):
    situation(at_night=("llama",), when=when)(dora)
    situation(at_night=("llama", "mistral"), when=when)(prompts)


# ---------------------------------------------------------------- calls
PADDED = torch.tensor([[0] * 3 + [1] * 10, [1] * 13], device=DEVICE)
CALLS = dict(
    num_items=dict(num_items_in_batch=7), num_items_tensor=dict(num_items_in_batch=torch.tensor(7, device=DEVICE)),
    shifted=dict(shift_labels=tokens().roll(-1, 1)), a_tuple=dict(return_dict=False), no_cache=dict(use_cache=False),
    positions=dict(position_ids=torch.arange(13, device=DEVICE)[None] + 3), left=dict(attention_mask=PADDED),
    packed=dict(position_ids=torch.tensor([[*range(6), *range(7)]] * 2, device=DEVICE)),
    right=dict(attention_mask=PADDED.flip(1)), floats=dict(attention_mask=torch.ones(2, 13, device=DEVICE)),
    four=dict(attention_mask=torch.ones(2, 1, 13, 13, dtype=torch.bool, device=DEVICE).tril()),
)  # fmt: skip


def called(model, how):
    return run(model, **CALLS[how])


for how in CALLS:
    often = how in ("packed", "left", "a_tuple")
    eager = () if how == "four" else ("gemma2",)
    rest = ("gpt2", "mixtral", "mistral", *eager)
    situation(*(["llama"] if often else []), at_night=rest if often else ("llama", *rest), how=how)(called)


@situation("llama", at_night=("gpt2",))
def labels_and_outputs(model, patch):
    """All labels ignored, positional arguments, embeddings in place of tokens; and which outputs there are."""
    patch(model.train())
    ids, results = tokens(), {}
    for what, args, inputs in (
        ("ignored", (ids,), dict(labels=torch.full_like(ids, -100))),
        ("positional", (ids, None), dict(labels=ids)),
        ("embeddings", (), dict(inputs_embeds=torch.ones(2, 13, 32, device=DEVICE), labels=ids)),
        ("states", (ids,), dict(labels=ids, output_hidden_states=True)),
    ):
        output = model(*args, **inputs)
        results[what], results[f"{what} loss"] = type(output), output.loss.detach()
        results[f"{what} names"] = [name for name in output if name != "logits"]
    return results | {f"state {i}": state.detach() for i, state in enumerate(output.hidden_states)}


@situation("mixtral", at_night=("qwen3_moe",))
def routers(model, patch):
    patch(model.train())
    output = model(tokens(), labels=tokens(), output_router_logits=True)
    output.loss.backward()
    names = dict(names=[name for name in output if name != "logits"], aux_loss=output.aux_loss.detach())
    return names | {name: parameter.grad for name, parameter in model.named_parameters()}


FAMILY = {"llama": "llama", "mistral": "mistral", "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt2": "gpt2"}


def implementation(model, patch, name):
    """Dropout of probabilities, weights that are asked for, a cache, no causality, the other one afterwards."""
    family, results = FAMILY[model.config.model_type], {}
    dropout = "attn_pdrop" if family == "gpt2" else "attention_dropout"
    for what in ("dropout", "weights", "cache", "bidirectional", "switched"):
        model = build(family, implementation=name, **({dropout: 0.3} if what == "dropout" else {}))
        if what == "bidirectional":
            model.config.is_causal = False
        patch(model)
        if what == "switched":
            model.set_attn_implementation("eager" if name == "sdpa" else "sdpa")
        if what == "weights" and name == "eager":
            output = model(tokens(), output_attentions=True)
            results |= {f"weights {i}": weights.detach() for i, weights in enumerate(output.attentions)}
        elif what == "cache":
            model.eval()
            cache = model(tokens(), use_cache=True).past_key_values
            for columns, seen in (3, None), (1, 17), (2, 2):  # the last mask is too short, so the rest is padding
                mask = None if seen is None else torch.ones(2, seen, dtype=torch.long, device=DEVICE)
                output = model(tokens(2, columns), past_key_values=cache, attention_mask=mask)
                results[f"cache {columns}"] = output.logits.detach()
        else:
            results |= {f"{what} {key}": value for key, value in run(model).items()}
    return results


situation("mistral", at_night=("llama", "gemma2", "gemma3", "gpt2"), name="sdpa")(implementation)
situation(at_night=("llama", "gemma2", "mistral", "gemma3", "gpt2"), name="eager")(implementation)


# ---------------------------------------------------------------- wrappers
def checkpointed(model, reentrant):
    model.gradient_checkpointing_enable(dict(use_reentrant=reentrant))
    model.enable_input_require_grads()
    return run(model)


for reentrant in (True, False):
    situation("llama", at_night=("gpt2", "mixtral", "gemma2", "mistral"), reentrant=reentrant)(checkpointed)


@contextlib.contextmanager
def one_process():
    """A process group of one."""
    backend = "gloo" if DEVICE.type == "cpu" else "nccl"
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()


def layers_of(model):
    return model.transformer.h if model.config.model_type == "gpt2" else model.model.layers


@situation("llama", at_night=("gpt2", "mixtral"))
def data_parallel(model):
    with one_process():
        return run(nn.parallel.DistributedDataParallel(model))


@situation("llama", at_night=("gpt2", "mistral"))
def fsdp(model, patch):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    patch(model)
    policy = ModuleWrapPolicy({type(layers_of(model)[0])})
    with one_process():
        return run(FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=DEVICE))


def fsdp2(model, patch, when):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if when == "before":
        patch(model)
    with one_process():
        mesh = init_device_mesh(DEVICE.type, (1,))
        for module in (*layers_of(model), model.lm_head, model):
            if module is not model.lm_head or not model.config.tie_word_embeddings:
                fully_shard(module, mesh=mesh)
        if when == "after":
            patch(model)
        results = run(model)
        return {
            name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in results.items()
        }


situation("llama", at_night=("gpt2", "mixtral", "gemma2"), when="before")(fsdp2)
situation(at_night=("llama", "mistral"), when="after")(fsdp2)


@situation(at_night=("llama", "gpt2", "mixtral", "gemma2"))
def compiled(model):
    torch._dynamo.reset()
    return run(torch.compile(model, backend="eager"))


# ---------------------------------------------------------------- generation
GENERATE = dict(
    given={}, inferred=dict(attention_mask=None), beams=dict(num_beams=3), static=dict(cache_implementation="static"),
    sampled=dict(do_sample=True, temperature=1.3, top_k=20), no_cache=dict(use_cache=False),
    lookup=dict(prompt_lookup_num_tokens=3), chunks=dict(prefill_chunk_size=4), assisted=dict(assistant_model=0.9),
)  # fmt: skip


def generate(model, patch, how):
    """A padded row on the left; one row where nothing else is allowed. Tokens, and the logits of each."""
    ids = tokens(2, 9).clone()
    ids[0, :3] = 0
    options = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, attention_mask=(ids != 0).long()) | GENERATE[how]
    if how in ("lookup", "chunks", "assisted"):
        ids, options["attention_mask"] = ids[1:], options["attention_mask"][1:]
    if how == "assisted":
        options["assistant_model"] = copy.deepcopy(model).eval()
        for parameter in options["assistant_model"].parameters():
            parameter.data.mul_(GENERATE[how]["assistant_model"])
        patch(options["assistant_model"])
    patch(model.eval())
    torch.manual_seed(11)
    output = model.generate(ids, return_dict_in_generate=True, output_logits=True, **options)
    return dict(made=output.sequences) | {f"logits {i}": logits for i, logits in enumerate(output.logits)}


for how in GENERATE:
    often = ("gpt2",) if how in ("given", "inferred") else ("mistral",) if how in ("beams", "static") else ()
    names = ("llama", "gpt2", "mistral", "gemma2", "gemma3", "mixtral")
    situation(*often, at_night=[name for name in names if name not in often], how=how)(generate)


# ---------------------------------------------------------------- Trainer
class Rows(torch.utils.data.Dataset):
    """Eight rows of 5 to 8 tokens; a column that no model knows must not arrive."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        ids = tokens(1, 5 + i % 4)[0].cpu().add(i).remainder(58).add(3)
        return dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids.clone(), other=1)


def collate(rows):
    assert rows[0].keys() == {"input_ids", "attention_mask", "labels"}
    longest = max(len(row["input_ids"]) for row in rows)
    pad = lambda row, name: nn.functional.pad(row, (0, longest - len(row)), value=-100 if name == "labels" else 0)  # noqa: E731
    return {name: torch.stack([pad(row[name], name) for row in rows]) for name in rows[0]}


TRAIN = dict(
    plain={}, accumulated=dict(gradient_accumulation_steps=2), smoothed=dict(label_smoothing_factor=0.1),
    checkpointed=dict(gradient_checkpointing=True), peft={},
)  # fmt: skip


def trained(model, patch, how):
    pytest.importorskip("accelerate")
    patch(model)
    if how == "peft":
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, target_modules=PROJECTIONS, r=4)
        torch.manual_seed(3)
        model = peft.get_peft_model(model, config)
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.gettempdir(), per_device_train_batch_size=2, max_steps=2, learning_rate=1e-2, report_to=[],
        seed=1, logging_steps=1, save_strategy="no", use_cpu=DEVICE.type == "cpu", disable_tqdm=True, optim="sgd",
        **TRAIN[how],
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=Rows(), data_collator=collate)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return dict(losses=torch.tensor(losses)) | {name: p.detach().clone() for name, p in model.named_parameters()}


for how in TRAIN:
    often = ("llama",) if how in ("plain", "peft") else ()
    rest = ("llama", "gpt2", "mixtral") if how != "peft" else ()
    situation(*often, at_night=[name for name in rest if name not in often], how=how)(trained)


@pytest.mark.parametrize("case, name", SITUATIONS)
def test_as_unpatched(case, name):
    theirs, ours = both(case, name)
    compare(ours, theirs)


# ---------------------------------------------------------------- what a situation can't say
def test_loaded_by_another_process(tmp_path):
    """It computes with our kernels there, and counts what falls back."""
    model = build("gemma2").eval()
    huggingface.patch(model)
    torch.save(model, tmp_path / "model.pt")
    torch.save((tokens(), model(tokens()).logits.detach()), tmp_path / "results.pt")
    code = f"""
import torch
model = torch.load("{tmp_path}/model.pt", weights_only=False)
ids, expected = torch.load("{tmp_path}/results.pt")
from annotated_examples.integrations import huggingface
assert all(map(huggingface.is_patched, (model, model.model, model.model.norm, model.model.layers[0].self_attn)))
torch.testing.assert_close(model(ids).logits, expected)
assert "fell back" not in huggingface.report(model)
assert not any(map(huggingface.is_patched, huggingface.unpatch(model).modules()))
torch.testing.assert_close(model(ids).logits, expected, rtol=1e-4, atol=1e-5)
"""
    python.run(["-c", code], check=True)


def test_unpatching_a_copy_leaves_the_original():
    model, plain = build("llama"), build("llama")
    huggingface.patch(model)
    other = huggingface.unpatch(copy.deepcopy(model))
    assert not any(map(huggingface.is_patched, other.modules())) and type(other) is type(plain)
    assert huggingface.is_patched(model) and huggingface.is_patched(model.model.norm)
    compare({name: value for name, value in run(other).items()}, run(plain), rtol=0)
    with pytest.raises(ValueError, match="model is not patched"):
        huggingface.report(other)


def test_unpatching_below_what_came_later():
    """Somebody made a class of ours, somebody else kept our bound `forward`: both compute as before the patch."""
    model, plain = build("llama"), build("llama")
    huggingface.patch(model)
    for each in model, plain:
        nn.utils.parametrize.register_parametrization(each.model.norm, "weight", Twice())
        each.forward = functools.partial(each.forward)
        each.model.layers[0].mlp.forward = functools.partial(each.model.layers[0].mlp.forward)
    huggingface.unpatch(model)
    compare(run(model), run(plain), rtol=0)
    nn.utils.parametrize.remove_parametrizations(model.model.norm, "weight")
    assert not huggingface.is_patched(model.model.norm)
    huggingface.patch(model)
    assert "left: loss: LlamaForCausalLM (its forward was replaced before) x1" in huggingface.report(model)
    assert "left: mlp: LlamaMLP (its forward was replaced before) x1" in huggingface.report(model)
    assert "replaced: norm: LlamaRMSNorm x5" in huggingface.report(model)


#: a change -> what the report says of the next step, and nothing of it once the change is undone
TOLD = {
    "a hook on the last projection": lambda model: watch(model, "lm_head", "forward"),
    "Adapter computes the logits": lambda model: put(model, ["lm_head"], Adapter),
    "a hook on its activation": lambda model: watch(model, "act_fn", "full_backward"),
    "activation ReLU": lambda model: put(model, ["act_fn"], lambda module: nn.ReLU()),
    "dtype torch.float64": lambda model: model.double(),
    "dropout of the probabilities": lambda model: drop(layers_of(model)),
    "loss own_loss": lambda model: setattr(model, "loss_function", own_loss),
}  # fmt: skip


def drop(layers):
    for layer in layers:
        layer.self_attn.attention_dropout = 0.5


def own_loss(logits, labels, vocab_size, **_):
    return logits.mean()


#: Of them two in `make test`: one that changes a module, and one that changes what is called.
TOLD_EVERY_TIME = {"Adapter computes the logits", "loss own_loss"}


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.nightly] * (text not in TOLD_EVERY_TIME)) for text in TOLD]
)
def test_the_report_tells(text):
    model = build("llama")
    huggingface.patch(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model)
    assert "fell back" not in huggingface.report(model)
    TOLD[text](model)
    with pytest.warns(UserWarning, match=text):
        run(model)
    assert text in huggingface.report(model).partition("fell back")[2]


@pytest.mark.parametrize(
    "name", ["qwen3", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("llama", "gpt2", "gemma3"))]
)
def test_dtypes_in_autocast(name):
    """Each layer's results have the dtype that they had; norms in float32 in a bfloat16 model, too."""
    seen = []
    for patch in (lambda model: None), huggingface.patch:
        model = build(name, torch.bfloat16)
        for module in model.modules():
            if "Norm" in type(module).__name__:
                module.float()
        patch(model)
        found = {}

        def keep(module, inputs, output, found=found):
            for value in torch.utils._pytree.tree_leaves(output):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    found[len(found)] = type(module).__name__, value.dtype

        for module in model.base_model.modules():
            if type(module) is not nn.Linear and not type(module).__module__.endswith("activations"):
                module.register_forward_hook(keep)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            run(model)
        seen.append(found)
    assert seen[0] == seen[1]


def train_together(rank, where, results):
    torch.distributed.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=2)
    model = build("llama")
    huggingface.patch(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    gradients = run(wrapped, tokens(2, 9 + rank))
    if rank == 0:
        torch.save({name.removeprefix("module."): value.cpu() for name, value in gradients.items()}, results)
    torch.distributed.destroy_process_group()


@pytest.mark.nightly
@pytest.mark.skipif(DEVICE.type != "cpu", reason="two processes need two cards")
def test_two_processes(tmp_path):
    """Gradients are the mean of those of both batches."""
    torch.multiprocessing.spawn(train_together, (tmp_path / "store", tmp_path / "gradients"), nprocs=2)
    ours = torch.load(tmp_path / "gradients")
    first, second = (run(build("llama"), tokens(2, 9 + rank)) for rank in range(2))
    names = set(first) - {"loss", "logits"}
    compare({n: ours[n] for n in names}, {n: (first[n] + second[n]).cpu() / 2 for n in names})
