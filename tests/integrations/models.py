"""Small random models of each family, and what the tests do with them."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.kernels.harness import DEVICE

transformers = pytest.importorskip("transformers")

LAYERS = 2
SMALL = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=61, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
GEMMA = SMALL | dict(head_dim=16, query_pre_attn_scalar=8, sliding_window=6)
#: name -> (class of the config, its arguments, attention implementation)
MODELS = {
    "llama": ("LlamaConfig", SMALL, "sdpa"),
    "llama eager": ("LlamaConfig", SMALL, "eager"),
    "mistral": ("MistralConfig", SMALL | dict(sliding_window=5), "sdpa"),
    "qwen2": ("Qwen2Config", SMALL, "sdpa"),
    "qwen3": ("Qwen3Config", SMALL | dict(head_dim=8), "sdpa"),
    "gemma": ("GemmaConfig", SMALL | dict(head_dim=8), "sdpa"),
    "gemma2": ("Gemma2Config", GEMMA | dict(final_logit_softcapping=3.0), "eager"),
    "gemma3": ("Gemma3TextConfig", GEMMA, "sdpa"),
    "mixtral": ("MixtralConfig", SMALL | dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None), "sdpa"),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        SMALL | dict(head_dim=8, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=False,
                     mlp_only_layers=[1]),
        "sdpa",
    ),
    "gpt2": (
        "GPT2Config",
        dict(n_embd=32, n_head=4, n_layer=LAYERS, vocab_size=61, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
             attn_pdrop=0.0, bos_token_id=1, eos_token_id=2),
        "sdpa",
    ),
}  # fmt: skip


def build(name: str, dtype=torch.float32, implementation=None, **changes):
    config, arguments, usual = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, config)(**arguments | changes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation or usual)
    for parameter in model.parameters():  # norms begin as all ones or all zeros, which hides mistakes
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model.to(DEVICE, dtype)


def tokens(rows=2, columns=13):
    return torch.randint(3, 61, (rows, columns), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def step(model, ids, **inputs):
    """Logits of an evaluation; loss and gradients of a training step."""
    model.zero_grad()
    model.eval()
    with torch.no_grad():
        logits = model(ids, **inputs).logits
    model.train()
    labels = ids.clone()
    labels[0, 3:5] = -100
    loss = model(ids, labels=labels, **inputs).loss
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return dict(logits=logits, loss=loss.detach().reshape(1)) | gradients


def in_float64(model):
    exact = copy.deepcopy(model).double()
    if hasattr(exact.config, "num_experts_per_tok"):  # PyTorch has no grouped product in float64
        exact.set_experts_implementation("eager")
    return exact
