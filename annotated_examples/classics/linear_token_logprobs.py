r"""
# Linear token log-probabilities: how likely, without the logits

The logits of a training step are its largest tensor, and [the lesson before](token_logprobs.py) reads them to keep two
numbers a token. They are the product of hidden states $y$ and the weights $W$ of the last layer, [[tag: LTL-z]]. So
this file computes a piece of them, adds it to the state of each row, and overwrites it with the next piece. Forward
gives the log-probability and the entropy,

[[eq: LTL]]

[[eq: LTL-H]]

and backward computes every piece again, replaces it by its gradient [[tag: LTL-G]], and multiplies that into
[[tag: LTL-y]], [[tag: LTL-W]] and [[tag: LTL-b]].

**What it costs.** Four products of `2 · rows · hidden · vocab` operations, as for [linear cross
entropy](linear_cross_entropy.py): the logits, the logits again, and two gradients. PyTorch needs three, and memory for
all logits in float32, several times over. A rollout that is only asked how likely its tokens were needs one product. On
an H200 8192 tokens with 4096 numbers each and a vocabulary of 151936 take
[[bench: linear_token_logprobs/8192x4096x151936/forward/ms]] forward, where PyTorch takes
[[bench: linear_token_logprobs/8192x4096x151936/forward/eager.ms]], and
[[bench: linear_token_logprobs/8192x4096x151936/forward+backward/ms]] with the backward pass, against
[[bench: linear_token_logprobs/8192x4096x151936/forward+backward/eager.ms]].

**Where it falls behind.** Compiled, PyTorch takes
[[bench: linear_token_logprobs/8192x4096x151936/forward+backward/torch.compile.ms]]: it keeps the logits and needs three
products, not four.

**Contract.** `x` is (…, hidden), `weight` (vocab, hidden), `tokens` (…), `bias` (vocab) or None. `x` is float32,
float16 or bfloat16; `weight` and `bias` have its dtype or float32, and are then rounded to it for the products, as
under autocast. Logits are rounded to that dtype, as PyTorch's are. Everything else is computed in float32, including
the sums over the vocabulary and over the rows. Any strides are allowed. Tokens and options are those of
`token_logprobs`, and so is what becomes of a NaN or an infinity among the logits. What a row of `x` holds whose token
is ignored harms nothing, NaN included.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import torch
import torch.nn.functional as F

from annotated_examples.classics.token_logprobs import (
    add_piece,
    differentiate_piece,
    empty_results,
    token_logprobs_reference,
)
from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.logits import labels_contract
from annotated_examples.common.vocabulary import (
    add_gradients,
    empty_gradients,
    finished,
    matrix_of,
    product_into,
    projection_contract,
)


# ## Reference
#
# The same in PyTorch, with all logits in memory.
def linear_token_logprobs_reference(x, weight, tokens, bias=None, *, temperature=1.0, ignore_index=-100):
    x = torch.where((tokens.long() != ignore_index)[..., None], x, 0.0)
    logits = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    return token_logprobs_reference(logits, tokens, temperature=temperature, ignore_index=ignore_index)


# ## One piece after the other
#
# There is no new kernel here: those of [the lesson before](token_logprobs.py) take a piece of the vocabulary. What is
# new is where a piece comes from. The pieces are columns of the logits, and so rows of the weights.
#
# [[figure: rows/pieces]]
#
# Why not some rows of the logits, with all their columns? Each such piece would add to the gradient of *all* weights.
# In bfloat16, which has eight binary digits, every addition is rounded; the sum of many pieces has been seen seven
# times as far off. With columns, each row of the gradient is one product, and rounded once. The price is that the
# gradient has to wait until the last piece of a first round has been summed: forward is the first round, backward the
# second.
#
# All pieces have the same memory, 0.13 GB for 8192 rows and 8192 columns. A loop of products that autograd records
# would keep each of them for the backward pass, and so all logits after all.
def pieces(rows, weight, bias, COLUMNS):
    """(first column, the weights of the piece, its logits) of one piece after the other."""
    room = torch.empty((len(rows), min(COLUMNS, len(weight))), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(weight) if len(rows) else 0, COLUMNS):
        part = weight[start : start + COLUMNS].to(rows.dtype)
        logits = room[:, : len(part)]
        # The product is added to the bias, so that both are rounded together.
        if bias is not None:
            logits.copy_(bias[start : start + COLUMNS])
        yield start, part, product_into(logits, rows, part.T, add=bias is not None)


# ## Launchers
#
# Inside `torch.compile` they are operators, which Dynamo doesn't look into: it would write out every round of the loop.
OPTIONS = "Tensor tokens, Tensor? bias{}, float temperature, SymInt ignore_index"
FORWARD = f"(Tensor x, Tensor weight, {OPTIONS.format('')}) -> (Tensor, Tensor, Tensor)"
BACKWARD = (
    "(Tensor? dlogprobs, Tensor? dentropies, Tensor x, Tensor weight, "
    f"{OPTIONS.format(', Tensor state')}, *, bool[] needs) -> Tensor[]"
)


def empty_forward(x, weight, tokens, *rest):
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in (tokens.shape, tokens.shape, (tokens.numel(), 4)))


def empty_backward(dlogprobs, dentropies, x, weight, tokens, bias, *rest, needs):
    return [value.new_empty(value.shape) for value, need in zip((x, weight, bias), needs) if need]


@opaque(FORWARD, empty_forward)
def linear_token_logprobs_forward(
    x, weight, tokens, bias=None, temperature=1.0, ignore_index=-100, *, COLUMNS=8192, BLOCK_N=4096
):
    """Log-probabilities, entropies, and the state of each row for the backward pass."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    checks.positive(COLUMNS=COLUMNS)
    flat, (state, results) = tokens.reshape(-1).contiguous(), empty_results(tokens)
    options = len(weight), temperature, ignore_index, BLOCK_N
    for start, _, logits in pieces(matrix_of(x), weight, bias, COLUMNS):
        add_piece(logits[None], flat, state, results, start, *options, first=start == 0)
    return *results, state


# Each piece of the vocabulary gives its rows of `dweight`, [[tag: LTL-W]], and its entries of `dbias`, [[tag: LTL-b]],
# and adds to `dx`, [[tag: LTL-y]].
@opaque(BACKWARD, empty_backward)
def linear_token_logprobs_backward(
    dlogprobs, dentropies, x, weight, tokens, bias, state, temperature=1.0, ignore_index=-100,
    *, needs=(True, True, True), COLUMNS=8192, BLOCK_N=4096,
):  # fmt: skip
    """A list of the gradients of `x`, `weight` and `bias`, of those that `needs` says. Either upstream gradient may be
    None."""
    checks.power_of_two(BLOCK_N=BLOCK_N)
    checks.positive(COLUMNS=COLUMNS)
    flat, upstream = tokens.reshape(-1).contiguous(), (dlogprobs, dentropies)
    # Zeros take the place of rows that don't count, in `x` and then in its gradient. The gradient of their logits is
    # zero, but zero times NaN is NaN: from such a row it would come into every weight, and from a weight into the row.
    # The logits, though, are made of `x` itself, as in the first round. Of a copy with other strides a library may make
    # them in another order. Then they no longer fit their row's sum, and where a probability is close to 1, little of
    # what is left of 1 is right.
    ignored = (flat.long() == ignore_index)[:, None]
    rows = matrix_of(x)
    counted = rows.masked_fill(ignored, 0.0)
    gradients = empty_gradients(rows, weight, bias, needs)
    options = len(weight), temperature, ignore_index, BLOCK_N
    for start, part, logits in pieces(rows, weight, bias, COLUMNS):
        # The gradient overwrites its logits, [[tag: LTL-G]]: nobody needs them any more.
        differentiate_piece(upstream, logits[None], flat, state, logits, start, *options)
        add_gradients(gradients, logits, counted, part, start, first=start == 0)
    if gradients[0] is not None:
        gradients[0].masked_fill_(ignored, 0.0)
    return [gradient for gradient in finished(gradients, x) if gradient is not None]


# ## Arguments
def contract(x, weight, tokens, bias, temperature, ignore_index):
    projection_contract(x, weight, bias, tokens=tokens)
    checks.number("temperature", temperature, above=0)
    labels_contract("x", x, len(weight), ignore_index, tokens=tokens)


# ## Joining autograd
#
# What is saved for the backward pass is what the caller has anyway, and 16 bytes a token.
class LinearTokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, tokens, temperature, ignore_index, launch_forward, launch_backward):
        logprobs, entropies, state = launch_forward(x, weight, tokens, bias, temperature, ignore_index)
        ctx.save_for_backward(x, weight, tokens, bias, state)
        ctx.options, ctx.launch_backward = (temperature, ignore_index), launch_backward
        if not torch.compiler.is_compiling():  # Dynamo can't do this; it makes zeros for unused results
            ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dlogprobs, dentropies):
        needs = list(ctx.needs_input_grad[:3])
        found = ctx.launch_backward(dlogprobs, dentropies, *ctx.saved_tensors, *ctx.options, needs=needs)
        given = iter(found)
        return *(next(given) if need else None for need in needs), *[None] * 5


def linear_token_logprobs(x, weight, tokens, bias=None, *, temperature=1.0, ignore_index=-100):
    r"""Log-probability of each token and entropy of its distribution, from the logits `x @ weight.T + bias`, without
    ever holding the logits.

    Args:
        x: (…, hidden), float32, float16 or bfloat16, any strides.
        weight: (vocab, hidden), the dtype of `x` or float32, any strides.
        tokens: (…), any integer dtype, any strides; in [0, vocab), or equal to `ignore_index`.
        bias: (vocab,), the dtype of `x` or float32, or None.
        temperature: $\tau$, what the logits are divided by: a finite number above 0.
        ignore_index: rows with this token have the results 0 and no part in any gradient.

    Returns:
        `(logprobs, entropies)`, both of the shape of `tokens`, in float32 and in nats, differentiable in `x`, `weight`
        and `bias`. Either may be left unused.

    Raises:
        TypeError: an argument has a wrong type, or a tensor a wrong dtype.
        ValueError: shapes don't fit, a tensor is on the wrong device, the temperature isn't a finite number above 0,
            or, for CPU tensors and with `ACADEMY_DEBUG=1` in the environment, a token is out of range. Without that
            check such a token makes its row's results and gradient NaN, and so those of `weight` and `bias`; nothing
            outside is read.

    Source: Wijmans et al., "Cut your losses in large-vocabulary language models" (arXiv 2411.09009), for the pieces.
    """
    contract(x, weight, tokens, bias, temperature, ignore_index)
    options = float(temperature), ignore_index
    if not autograd.needs_frame(x, weight, bias):
        return linear_token_logprobs_forward(x, weight, tokens, bias, *options)[:2]
    launchers = linear_token_logprobs_forward, linear_token_logprobs_backward
    return LinearTokenLogprobs.apply(x, weight, bias, tokens, *options, *launchers)


# ## A run small enough to watch
#
# Three tokens with two features each, the second token ignored, and a vocabulary of 11, in two pieces.
def EXAMPLE():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]], device=device.DEVICE)
    at = torch.arange(11.0, device=device.DEVICE)
    weight = torch.stack([at % 4, at % 3], 1) - torch.tensor([0.0, 1.0], device=device.DEVICE)
    tokens = torch.tensor([4, -100, 10], device=device.DEVICE)
    logprobs, entropies, state = linear_token_logprobs_forward(x, weight, tokens, COLUMNS=8, BLOCK_N=4)
    dlogprobs, dentropies = torch.full_like(logprobs, 1.0), torch.full_like(entropies, 0.5)
    linear_token_logprobs_backward(dlogprobs, dentropies, x, weight, tokens, None, state, COLUMNS=8, BLOCK_N=4)


if __name__ == "__main__":
    script.main(linear_token_logprobs, linear_token_logprobs_reference)
