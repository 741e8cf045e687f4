"""Token log-probabilities and entropies: what is compared with formulas, and what is measured."""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.cross_entropy import one_each, one_ignored

LESSON = "classics.token_logprobs"
FAST = "fast.token_logprobs"
FUNCTION = "token_logprobs"
AXES = ("rows", "vocabulary")
DERIVATION = "token_logprobs"


# ---------------------------------------------------------------- public functions
LOGITS = {"logits": "rows classes", "tokens": "rows: int64 below classes"}
USUAL, EACH = dict(inputs={"tokens": one_ignored}), dict(inputs={"tokens": one_each})
#: Why the judge leaves out a group of trials, of this function and of the one from hidden states.
ONE_TOWERS = {"magnitudes": "where one logit towers above all the entropy is 0, and PyTorch's in float64 its rounding"}
PUBLIC = [
    Public(
        "token_logprobs", LOGITS | {"temperature": (1.0, 0.7)}, at=(6, 1000),
        calls=[USUAL, USUAL | dict(temperature=0.7)],
        more=[EACH | dict(temperature=2.0, ignore_index=3)], batch={"rows": ""}, without=ONE_TOWERS,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
ROWS = ("x", "c", "nabla_ell", "nabla_H")
RESULTS = dict(modules=(LESSON, FAST), returns=("LP", "LP-H"), gradients={"x": "LP-x"}, rows=ROWS)
ALL = ("float32", "float16", "bfloat16")


def one_of_many(x):
    """Where one logit towers above all others, the entropy is 0, and what PyTorch has of it in float64 is rounding."""
    return {"x": x / 1000} if x.max() - x.min() > 1000 else {}


@case(**RESULTS, values=one_of_many, dtypes=ALL)
def both_results(module, x, c, tau):
    return module.token_logprobs(x, c, temperature=tau)


def block(module, size):
    """A small block. The fast version takes a row in strips."""
    return {"BLOCK" if module.__name__.endswith(FAST) else "BLOCK_N": size}


def without_an_upstream_of_entropies(x):
    return one_of_many(x) | {"nabla_H": torch.zeros(len(x))}


def without_an_upstream_of_logprobs(x):
    return one_of_many(x) | {"nabla_ell": torch.zeros(len(x))}


def all_but_the_last(x):
    """As of a sequence whose last logits are cut off."""
    return torch.nn.functional.pad(x[None], (0, 0, 0, 1))[:, :-1]


@case(**RESULTS, values=without_an_upstream_of_entropies, sizes={"V": 37})
def logprobs_in_chunks(module, x, c, tau, nabla_ell):
    logits = all_but_the_last(x)
    logprobs, entropies, state = module.token_logprobs_forward(logits, c[None], tau, **block(module, 8))
    dx = module.token_logprobs_backward(nabla_ell, None, logits, c[None], state, tau, **block(module, 16))
    return (logprobs[0], entropies[0]), {"x": dx[0]}


@case(**RESULTS, values=without_an_upstream_of_logprobs, sizes={"V": 37})
def entropies_in_chunks(module, x, c, tau, nabla_H):
    """Each row in a sequence of its own."""
    logits, tokens = torch.nn.functional.pad(x[:, None], (0, 0, 0, 1))[:, :-1], c[:, None]
    logprobs, entropies, state = module.token_logprobs_forward(logits, tokens, tau, **block(module, 8))
    dx = module.token_logprobs_backward(None, nabla_H, logits, tokens, state, tau, **block(module, 16))
    return (logprobs[:, 0], entropies[:, 0]), {"x": dx[:, 0]}


# The second launch goes on with the state of the first, which must not look for a token behind its own logits.
@case(**RESULTS | dict(modules=LESSON), values=one_of_many, sizes={"V": 37})
def in_pieces(module, x, c, tau, nabla_ell, nabla_H, at_end):
    """The first 20 logits, then the others."""
    (state, results), pieces, vocab = module.empty_results(c), x.split(20, 1), x.shape[1]
    pieces, c, found = [at_end(piece.contiguous()) for piece in pieces], c.contiguous(), []
    for number, piece in enumerate(pieces):
        module.add_piece(piece[None], c, state, results, 20 * number, vocab, tau, -100, 8, first=number == 0)
    for number, piece in enumerate(pieces):
        found.append(torch.empty_like(piece))
        module.differentiate_piece(
            (nabla_ell, nabla_H), piece[None], c, state, found[-1], 20 * number, vocab, tau, -100, 16
        )
    return tuple(results), {"x": torch.cat(found, 1)}


@logprobs_in_chunks.pytorch
@in_pieces.pytorch
@entropies_in_chunks.pytorch
def _(module, x, c, tau):
    return module.token_logprobs_reference(x, c, temperature=tau)


# ---------------------------------------------------------------- what is measured
# Forward must read the logits once, and a token for each row; backward reads them again and writes their gradient.
def cost(shape, dtype):
    rows, logits = torch.Size(shape[:-1]).numel(), torch.Size(shape).numel()
    size = logits * dtype.itemsize
    return {
        "forward": dict(bytes_read=size + 8 * rows, bytes_written=8 * rows, operations=8 * logits),
        "backward": dict(bytes_read=size + 32 * rows, bytes_written=size, operations=9 * logits),
    }


# Forward also keeps a few numbers of each row, and reads the token's logit a second time. The row of the ignored token
# isn't read, and its gradient is written.
def example(rows, ignored, vocab, state):
    counted = (rows - ignored) * vocab * 4
    return {
        "forward": dict(
            bytes_read=counted + 8 * rows, bytes_written=(8 + 4 * state) * rows, operations=8 * rows * vocab
        ),
        "backward": dict(bytes_read=counted + 28 * rows, bytes_written=rows * vocab * 4, operations=9 * rows * vocab),
    }


def inputs(shape, dtype, device):
    return dict(
        logits=torch.randn(shape, dtype=dtype, device=device),
        tokens=torch.randint(shape[-1], shape[:-1], device=device),
    )


# Two functions of TRL's, in one.
def eager(logits, tokens):
    log_p = torch.log_softmax(logits.float(), -1)
    return log_p.gather(-1, tokens[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def first_result(function):
    return lambda **tensors: function(**tensors)[0]


# It has no entropies, and no backward pass. It leaves out the last logits of a sequence, and gets one more.
def liger(inputs):
    from liger_kernel.ops.grpo_loss import fused_selective_log_softmax

    one_more = torch.cat([inputs["logits"], inputs["logits"][-1:]])[None]
    return lambda logits, tokens: fused_selective_log_softmax(one_more, tokens[None], 1.0)[0]


EXAMPLES = {LESSON: example(4, 1, 11, state=4), FAST: example(4, 1, 21, state=3)}
BENCH = dict(
    shapes=[*((8192, vocab) for vocab in (151936, 128256, 32000, 4097)), (2048, 262144)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    passes=["forward", "forward+backward"],
    differentiable=["logits"],
    variants={
        "": {},
        "logprobs": dict(
            call=first_result,
            eager=first_result(eager),
            peers={"liger-kernel": liger},
            passes=["forward"],
            differentiable=[],
            shapes=[(8192, 151936)],
        ),
    },
)
