# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Train with a reward
#
# Nobody has written the right answers down. There is only a program that says how good an answer came out: a unit test,
# a rule, a game. How does a model learn from that? Here a small transformer does, with kernels that you know: they draw
# tokens, say how likely these were, and compute the loss. Then you find out what it costs if the kernels that write the
# answers and those that learn from them don't compute the same bits.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.runtime import device  # before triton: without a GPU it switches the interpreter on
from academy.bench import notebook
from annotated_examples.capstone.gpt import GPT, PLAIN, Config
from annotated_examples.classics.matmul import matmul_forward
from annotated_examples.classics.policy_loss import grpo_loss
from annotated_examples.classics.token_logprobs import token_logprobs
from annotated_examples.optimizers.adamw import AdamW
from annotated_examples.sampling.sample import sample

import copy
import dataclasses
import math

import torch
import torch.nn.functional as F

print("GPU" if not device.INTERPRET else "CPU, in Triton's interpreter")

# %% [markdown]
# ## A task that can only be judged
#
# The model writes days of the week. The prompt is one day, the **answer** three more. The **reward** is the share of them
# that follow the day before. The model is never shown a right answer. It sees what it has written, and one number for
# each answer.

# %%
DAYS, LENGTH = "Mon Tue Wed Thu Fri Sat Sun".split(), 3


def reward(tokens):
    """tokens: (B, 1 + LENGTH). A number from 0 to 1 for each answer."""
    return ((tokens[:, :-1] + 1) % len(DAYS) == tokens[:, 1:]).float().mean(1)


def written(answer):
    return " ".join(DAYS[token] for token in answer.tolist())


for answer in torch.tensor([[4, 5, 6, 0], [4, 5, 5, 1]]):
    print(f"{written(answer)}: reward {reward(answer[None]).item():.2f}")

# %% [markdown]
# The model is the [capstone's](../kernels/capstone/gpt.md), with one layer and a vocabulary of seven. The capstone's last
# operation is its loss. Here we want the logits, so an operation that hands them on takes its place.


# %%
class OfDays(Config):
    vocabulary = len(DAYS)


config = OfDays(layers=1, heads=2, key_heads=1, width=32, hidden=64, context=1 + LENGTH, p=0.0)
EXACT = dataclasses.replace(PLAIN, loss=lambda y, weight, labels: F.linear(y, weight.to(y.dtype)))


def logits_of(model, tokens, operations=None, dtype=torch.float32):
    """(B, T, vocabulary). `dtype` is what the model computes in; its weights are float32."""
    model.operations, model.dtype = operations or EXACT, dtype
    return model(tokens, tokens).view(*tokens.shape, -1)


torch.manual_seed(0)
model = GPT(config, EXACT).to(device.DEVICE)
start = copy.deepcopy(model.state_dict())
print(sum(each.numel() for each in model.parameters()), "parameters")

# %% [markdown]
# ## Rollouts
#
# To let the model write its answers is called a **rollout**. One token after the other is
# [drawn](../kernels/sampling/sample.md) from its probabilities, and
# [its log-probability](../kernels/classics/token_logprobs.md) is noted. Large models keep keys and values in
# [a cache](../kernels/attention/decode.md); here the few tokens so far are simply read again each time.


# %%
@torch.no_grad()
def rollout(model, prompts, length, seed, **how):
    """Tokens, (B, prompt + length), and how likely each one of the answer was when it was drawn, (B, length)."""
    tokens, seen = prompts, []
    for step in range(length):
        logits = logits_of(model, tokens, **how)[:, -1]
        token = sample(logits, seed * length + step)
        seen.append(token_logprobs(logits, token)[0])
        tokens = torch.cat([tokens, token[:, None]], 1)
    return tokens, torch.stack(seen, 1)


def prompts_of(step, prompts, group):
    """Some days to begin with, each `group` times: (prompts · group, 1)."""
    first = (torch.arange(prompts, device=device.DEVICE) + step) % len(DAYS)
    return first.repeat_interleave(group)[:, None]


tokens, seen = rollout(model, prompts_of(0, 2, 2), LENGTH, seed=0)
for answer in tokens:
    print(f"{written(answer)}: reward {reward(answer[None]).item():.2f}")
print("log-probabilities of the first:", [round(each, 2) for each in seen[0].tolist()])

# %% [markdown]
# An untrained model takes each day with a probability not far from a seventh, whose logarithm is −1.95.
#
# Why the logarithm, and not the probability? An answer is as likely as the product of its tokens. Such a product is soon
# too small for a float. The sum of the logarithms isn't:

# %%
half = torch.full((200,), 0.5)
print("probability of 200 tokens:", half.prod().item(), " its logarithm:", round(half.log().sum().item(), 2))

# %% [markdown]
# ## From rewards to a gradient
#
# No gradient passes through a draw, and the reward is no function that could be differentiated. What can be
# differentiated is its **expectation**, $\sum_c p_c r_c$: the sum over all answers of probability times reward. Only the
# probabilities depend on the weights. And the slope of $p_c$ is $p_c$ times the slope of $\log p_c$. So the slope of the
# expectation is an average over draws again, that of *reward times the slope of the log-probability*. To draw some answers
# and take that average is the whole idea, and the second reason for logarithms.
#
# With one day and seven logits the average over all draws can be computed, each with its probability, and nothing in the
# comparison is random. Say Friday gets a
# reward of 11, and each other day one of 10:


# %%
def of_all_draws(logits, weights):
    """The mean of weight · slope of the log-probability over all draws, and how far single draws lie from it."""
    p = logits.softmax(0)
    slopes = torch.eye(len(p), dtype=p.dtype) - p  # of log p[drawn], with respect to each logit
    each = weights[:, None] * slopes
    mean = p @ each
    return mean, (p @ (each - mean).square().sum(1)).sqrt()


x = torch.sin(torch.arange(len(DAYS), dtype=torch.float64) * 2.0).requires_grad_()
r = 10 + torch.tensor([day == "Fri" for day in DAYS]).double()
(true,) = torch.autograd.grad((x.softmax(0) * r).sum(), x)
x = x.detach()
b = x.softmax(0) @ r
for name, weights in (("the reward", r), ("the reward less its mean", r - b)):
    mean, spread = of_all_draws(x, weights)
    print(
        f"weighed by {name + ':':25} off by {(mean - true).abs().max():.0e}, spread {spread:.2f}, length {true.norm():.2f}"
    )

# %% [markdown]
# Both are right on average: the slopes themselves average to zero, since probabilities always sum to 1, and so it
# changes nothing to subtract one number from all rewards. But single draws are a different matter. With rewards around
# 10, *every* answer that was drawn is made likelier, and only the average over very many of them says what was good. A
# number that is subtracted is called a **baseline**, and the reward less the baseline is the **advantage**: how much
# better than expected it came out.
#
# Where does the baseline come from? PPO trains a second model to guess it. **GRPO** has each prompt answered several
# times, and takes the mean reward of this **group**. An easy prompt gets a high baseline and a hard one a low one. If all
# answers of a group got the same reward, all advantages are 0: there is nothing to learn from that prompt.


# %%
def advantages_of(rewards, group):
    """The reward of each answer less the mean of its group."""
    groups = rewards.view(-1, group)
    return (groups - groups.mean(1, keepdim=True)).flatten()


print(advantages_of(torch.tensor([1.0, 0.0, 0.0, 1.0, 0.4, 0.4, 0.4, 0.4]), 4).tolist())

# %% [markdown]
# The mean contains the answer's own reward. With $n$ answers that makes the gradient $(n - 1)/n$ as long on average, in
# the same direction. For two answers the average over all pairs can be computed:

# %%
p = x.softmax(0)
advantage = (r[:, None] - r) / 2  # of the first of a pair
of_pairs = torch.einsum("i,j,ij,ik->k", p, p, advantage, torch.eye(len(p), dtype=p.dtype) - p)
print(f"as long as the right one: {of_pairs.norm() / true.norm():.6f}")
print(f"cosine of the angle between them: {F.cosine_similarity(of_pairs, true, dim=0):.6f}")

# %% [markdown]
# (Many divide by the group's standard deviation as well. Then a prompt that nearly always succeeds,
# or nearly never, has the same say as one that is undecided.)
#
# ## Why the loss has a clip
#
# A rollout is expensive, so several updates are made from one. After the first, the answers are those of an older model.
# The loss corrects for it with the *ratio* of the probabilities now and then, $\rho$:
#
# [[eq: PL]]
#
# [[figure: policy/clip]]
#
# But a ratio can't add to what a rollout knows: what its few draws say by luck is learned again in each update. Here rewards are coins: no day is better than another, and there is
# nothing to learn. One rollout of sixteen days, twenty updates:


# %%
def after_coins(clip, updates=20, draws=16):
    """Largest probability of a day and largest ratio, after learning from rewards that mean nothing."""
    theta = torch.zeros(len(DAYS), device=device.DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([theta], lr=3.0)
    days = sample(theta.detach().expand(draws, -1), 1)
    coins = sample(torch.zeros(draws, 2, device=device.DEVICE), 2).float()
    old = None
    for _ in range(updates):
        logprobs = token_logprobs(theta.expand(draws, -1), days)[0][:, None]
        old = logprobs.detach() if old is None else old
        grpo_loss(logprobs, old, advantages_of(coins, draws), clip=clip).backward()
        optimizer.step()
        optimizer.zero_grad()
    return theta.softmax(0).max().item(), (logprobs - old).exp().max().item()


for name, clip in (("no clip:", (1.0, 1e6)), ("clip at 0.8 and 1.2:", (0.2, 0.2))):
    largest, ratio = after_coins(clip)
    print(f"{name:21} largest probability {largest:.2f}, largest ratio {ratio:.2f}")

# %% [markdown]
# Without the clip the model is soon sure of the day that was lucky. With it, a token has no slope any more once its
# ratio has left the band: above 1.2 if its advantage is positive, below 0.8 if it is negative. (An update may leave the
# band by some way, hence the 1.38; the next ones don't push on.) The model stays near the one that wrote the answers. The clip says how far the data can be
# trusted.
#
# ## Why there is a price for leaving
#
# The clip holds the updates of one rollout, and a thousand rollouts lead anywhere. A reward is rarely all that is wanted: a model that is
# rewarded for short answers ends up saying nothing. So one pays for the distance to a **reference**, the model before
# training, with a price $\beta$. The distance is the Kullback-Leibler divergence, the expectation of
# $\log p - \log q$, where $p$ is the model's probability and $q$ the reference's. The best $p$ is proportional to
# $q \, e^{r / \beta}$, the reference tilted towards the reward: there a little more reward costs as much as it brings,
# and the slope of their difference is zero.

# %%
q, beta = torch.cos(torch.arange(len(DAYS), dtype=torch.float64)).softmax(0), 0.5
z = (q.log() + r / beta).requires_grad_()
p = z.softmax(0)
(slope,) = torch.autograd.grad((p * r).sum() - beta * (p * (p / q).log()).sum(), z)
print(f"largest slope at the tilted reference: {slope.abs().max():.0e}")

# %% [markdown]
# In training only the drawn token is at hand, and of it $d = \log q - \log p$. There are several things to average. Here
# are three, for a model near its reference; again the averages are over all draws:

# %%
p, q = x.softmax(0), (x + 0.1 * torch.cos(torch.arange(len(DAYS), dtype=torch.float64))).softmax(0)
d = q.log() - p.log()
print(f"the divergence: {p @ -d:.6f}")
for name, k in (("−d", -d), ("d²/2", d.square() / 2), ("e^d − 1 − d", torch.expm1(d) - d)):
    mean = p @ k
    spread = (p @ (k - mean).square()).sqrt()
    print(f"{name:12} mean {mean:.6f}, spread {spread:.6f}, below zero in {p @ (k < 0).double():.0%} of the draws")

# %% [markdown]
# The first is right on average, but its single draws are thirty times as large as what is measured, and about as
# often negative as not. The second is calm and a little off. The third, **k3**, is right *and* calm, and never negative: $e^d - 1$
# averages to zero, and goes up and down as $d$ does: added to $-d$, it leaves the mean and takes most of the noise away.
#
# As written it fails in float32: $e^d - 1$ and $d$ are nearly equal, and their difference has few digits left. The kernel
# takes a series there.

# %%
for d in (1e-2, 1e-3, 1e-4):
    exact = d**2 / 2 + d**3 / 6 + d**4 / 24
    given = torch.tensor([[d]], device=device.DEVICE)
    plain = (given.exp() - 1 - given).item()
    kernel = grpo_loss(0 * given, None, 0 * given, ref_logprobs=given, beta=1.0).item()
    print(
        f"d = {d:.0e}: off by {abs(plain / exact - 1):7.2%} as written, by {abs(kernel / exact - 1):.0e} in the kernel"
    )

# %% [markdown]
# ## Train
#
# A step is a rollout, its rewards, and some updates. `seen` are the log-probabilities that the sampler has noted: the
# old ones of the loss. (All answers have the same length here. Otherwise a mask leaves out what follows the end of a
# shorter one.)


# %%
def update(model, optimizer, tokens, seen, advantages, *, reference=None, beta=0.0, clip=(0.2, 0.2), **how):
    """One update from a rollout. The mean entropy of the model, in nats."""
    answers, length = tokens[:, -seen.shape[1] :], seen.shape[1]

    def of_answers(model):
        return logits_of(model, tokens, **how)[:, -length - 1 : -1]

    logprobs, entropies = token_logprobs(of_answers(model), answers)
    ref_logprobs = None
    if reference is not None:
        with torch.no_grad():
            ref_logprobs = token_logprobs(of_answers(reference), answers)[0]
    grpo_loss(logprobs, seen, advantages, ref_logprobs=ref_logprobs, beta=beta, clip=clip).backward()
    optimizer.step()
    optimizer.zero_grad()
    return entropies.detach().mean().item()


# %% [markdown]
# ## Change it
#
# Try six updates a step: the model is sooner sure of itself, as the entropy says, and stops at a lower reward. A group of
# 2 has a poor baseline. With `beta = 0.5` the price holds the model near the reference, and little is learned.

# %% tags=["parameters"]
steps = 14
prompts, group = 7, 4
updates, lr = 3, 2e-2
beta = 0.0

# %%
model.load_state_dict(start)  # also where this cell runs again
reference, optimizer = copy.deepcopy(model), AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
rewards, entropies, kept = [], [], []
for step in range(steps):
    tokens, seen = rollout(model, prompts_of(step, prompts, group), LENGTH, seed=step)
    advantages = advantages_of(reward(tokens), group)
    kept.append((copy.deepcopy(model.state_dict()), tokens))
    for _ in range(updates):
        entropy = update(model, optimizer, tokens, seen, advantages, reference=reference if beta else None, beta=beta)
    rewards.append(reward(tokens).mean().item())
    entropies.append(entropy)
    print(f"step {step:2}: reward {rewards[-1]:.2f}, entropy {entropy:.2f} nats, first answer {written(tokens[0])}")
notebook.curves("Mean reward of the answers of a step", {"reward": rewards})

# %% [markdown]
# Guessing gets a seventh. Which day comes next was never said, only how many were right.
#
# The entropy says how undecided the model is: at first nearly log 7, which is 1.95 nats. It has to fall, since only one day is
# right. Where many answers are good, an entropy that is nearly 0 early is a warning. A model that always writes the same
# has nothing left to compare, and all its advantages are 0.
#
# ## What a bit costs
#
# In practice sampler and trainer are two programs. One is made for writing quickly, the other for gradients. Their
# weights are the same, but their kernels aren't. A sum is added up in another order, [the batch has another
# size](../guides/numerics.md#the-same-row-in-another-batch), a dtype is smaller. So the probability with which a token
# was drawn isn't quite the one that the trainer computes for it: training is a little **off-policy**. Here are three such
# samplers, after the trainer itself:


# %%
def in_two_halves(x, weight):
    """The sum over the columns is cut in two, as a kernel does that has few rows and many SMs."""
    half = x.shape[1] // 2
    return x[:, :half] @ weight[:, :half].T + x[:, half:] @ weight[:, half:].T


def in_eight_bits(x, weight):
    """Weights rounded to float8, with a scale for the largest."""
    scale = 448 / weight.abs().max()
    return F.linear(x, (weight * scale).to(torch.float8_e4m3fn).to(x.dtype) / scale)


SAMPLERS = {
    "the trainer's own call": {},
    "sums in two halves": dict(operations=dataclasses.replace(EXACT, linear=in_two_halves)),
    "bfloat16": dict(dtype=torch.bfloat16),
    "weights of 8 bits": dict(operations=dataclasses.replace(EXACT, linear=in_eight_bits)),
}


@torch.no_grad()
def log_probabilities(state, tokens, **sampler):
    """Of all days at each place of the answers: (B, LENGTH, 7), float64."""
    model.load_state_dict(state)
    return logits_of(model, tokens, **sampler)[:, :-1].double().log_softmax(-1)


def divergence(sampler, trainer):
    """Of the trainer's distributions from the sampler's: the mean over all places, with all days weighed."""
    d = trainer - sampler
    return (sampler.exp() * (torch.expm1(d) - d)).sum(-1).mean().item()


drift = {name: [] for name in [*SAMPLERS, "weights one step old"]}
for (state, tokens), (after, _) in zip(kept, kept[1:]):
    trainer = log_probabilities(state, tokens)
    for name, sampler in SAMPLERS.items():
        drift[name].append(divergence(log_probabilities(state, tokens, **sampler), trainer))
    drift["weights one step old"].append(divergence(trainer, log_probabilities(after, tokens)))

print("the trainer's own call drifts by", max(drift.pop("the trainer's own call")))
notebook.curves("Off-policy drift: divergence of the trainer from its sampler", drift, "nats a token", log=True)

# %% [markdown]
# The axis is logarithmic. Only the same bits give exactly 0, which has no place on it. The last bit
# of a float32 is far down, bfloat16 and weights of 8 bits lie well above it. What a *step* of training changes lies above
# them all; that is what ratio and clip are there for. And drift grows while the model learns: its logits grow, and what is
# rounded off them does, too.
#
# So is a sampler of fewer bits harmless, if a step changes more? Three things speak against it.
#
# **It adds up.** The ratio of an answer is the product of its tokens' ratios. If the differences are independent from
# token to token, the logarithm of the ratio of 1000 tokens is $\sqrt{1000}$ times as large as that of one. (If all of them err to
# the same side, it is 1000 times as large.)

# %%
state, tokens = kept[len(kept) // 3]
trainer = log_probabilities(state, tokens)
print(f"{'':22} largest difference    divergence   1000 tokens: typical ratio")
for name, sampler in SAMPLERS.items():
    found = log_probabilities(state, tokens, **sampler)
    largest = (found - trainer).gather(-1, tokens[:, 1:, None]).abs().max().item()
    typical = math.exp(math.sqrt(1000 * 2 * divergence(found, trainer)))
    print(f"{name:22} {largest:18.0e} {divergence(found, trainer):13.0e} {typical:15.4f}")

# %% [markdown]
# **It doesn't average out.** The noise of draws has another sign in each rollout. A difference of kernels has the same
# one each time: the same days are drawn a little too often. That is a **bias**. Here is the gradient that the sampler's
# draws give on average, beside the right one, and how many draws of each place have a noise as large as the bias:


# %%
def biased(sampler, trainer, best, most=math.inf):
    """Over all places: the relative error of the gradient if draws are taken for the trainer's, the same if each is
    weighed by its ratio, of at most `most`, and the number of draws whose noise is as large as the first."""
    q, p = sampler.exp(), trainer.exp()
    r = F.one_hot(best, p.shape[-1]).double()
    slopes = torch.eye(p.shape[-1], dtype=p.dtype, device=p.device) - p[..., None, :]
    each = (r - (p * r).sum(-1, keepdim=True))[..., None] * slopes  # place, draw, logit
    true, blind, weighed = ((w[..., None] * each).sum(-2) for w in (p, q, q * (p / q).clamp(max=most)))
    noise = (p * (each - true[..., None, :]).square().sum(-1)).sum()
    off = [((found - true).norm() / true.norm()).item() for found in (blind, weighed)]
    return *off, (noise / (blind - true).square().sum()).item()


best = (tokens[:, :-1] + 1) % len(DAYS)
for name, sampler in list(SAMPLERS.items())[1:]:
    blind, weighed, draws = biased(log_probabilities(state, tokens, **sampler), trainer, best)
    print(f"{name:20} off by {blind:.0e}, with ratios by {weighed:.0e}; noise of {draws:.0e} draws is as large")

# %% [markdown]
# The last number says how much that is: as long as a training has fewer draws than that, its noise is larger than the
# bias. So the last bit of a float32 is harmless, however long one trains. Of bfloat16 and of weights of 8 bits nothing
# shows in one rollout, which has 84 draws above and 16,384 at real size. A training of a thousand rollouts
# of that size has more than enough.
#
# **The loss doesn't see it.** A trainer that computes the old log-probabilities again, by itself, finds ratios of exactly
# 1 in its first update. By its own account it is on-policy, and the bias stays.
#
# What does one do?
#
# - **Take the sampler's log-probabilities for the old ones**, as with `seen` above. Then the ratio also corrects for the
#   kernels: in the last table nothing is left of the bias "with ratios". All it costs is to note them.
# - **Cap the ratio** where the sampler is far off, with few bits or old weights. A token that it thought nearly
#   impossible has an enormous ratio, and then that token alone is the gradient. `biased(…, most=1.001)` shows what a cap
#   lets through.
# - **Make the bits the same.** Both programs compute in the same dtype, a sampler with a cache adds up as the trainer
#   does, and all kernels are *batch invariant*: a row has the same bits whatever stands beside it. Then the drift is 0,
#   and there is nothing to correct. This site's matrix products are such kernels, if they are told their tiles:

# %%
a, weight = torch.randn(24, 64, device=device.DEVICE), torch.randn(64, 32, device=device.DEVICE)
tiles = dict(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
together = matmul_forward(a, weight, **tiles)
alone, others = matmul_forward(a[:1], weight, **tiles), matmul_forward(a, weight, **tiles | dict(BLOCK_K=16))
print("a row alone, the same tiles:", int((alone != together[:1]).sum()), "of", alone.numel(), "elements differ")
print("all rows, other tiles:      ", int((others != together).sum()), "of", others.numel(), "elements differ")
logits, drawn = logits_of(model, tokens)[:, :-1].detach(), tokens[:, 1:]
alone = torch.cat([token_logprobs(logits[row : row + 1], drawn[row : row + 1])[0] for row in range(4)])
print("log-probabilities alone:    ", int((alone != token_logprobs(logits, drawn)[0][:4]).sum()), "differ")

# %% [markdown]
# With other tiles the same sums come out with other bits. That happens wherever a kernel chooses its tiles by the number
# of rows, or cuts a sum into parts because few rows would leave SMs idle. To hold on to one choice is slower exactly
# there. Count it: one row times a matrix of 8192 columns, in tiles of 128 columns, is 64 programs, and an H200 has 132
# SMs. More than half of the card waits. Measured, that row takes [[bench: batch_invariance/product/1/invariant_ms]] in
# place of [[bench: batch_invariance/product/1/usual_ms]]. [The guide to
# numerics](../guides/numerics.md#the-same-row-in-another-batch) has more times, those of decoding, too, and says which
# functions here keep the promise.
#
# ## At real size
#
# `python benchmarks/reward.py` calls the functions of this chapter on a GPU, with the capstone of 125 million parameters
# and its vocabulary of 65536, in bfloat16. The model first learns this site's text. Then it writes on from 32 places of
# it, eight answers of 64 tokens for each, and is rewarded for each token with a space in it, so for short words. A price of 0.05 holds it
# to the text. On an H200:
#
# | what | measured |
# |---|---|
# | share of tokens with a space, in the first steps | [[bench: reward/first]] |
# | the same in the last steps | [[bench: reward/last]] |
# | divergence from the reference at the end, for each token | [[bench: reward/left]] |
# | drift of the trainer from its sampler, the same weights and kernels, for each token | [[bench: reward/drift]] |
# | the largest difference of a log-probability | [[bench: reward/largest]] |
# | time of a rollout | [[bench: reward/rollout]] |
# | time of its two updates | [[bench: reward/updates]] |
#
# The logits are the largest tensor of such a step: 256 answers of 96 tokens, with their prompts, times 65,536 logits of
# two bytes are 3.2 GB, and their gradient is as large. [The operation that starts from the hidden
# states](../kernels/classics/linear_token_logprobs.md) has neither in memory. It makes the logits piece by piece, and
# pays with a product: backward makes them again, so it takes four products in place of three. How long the
# log-probabilities of tokens take where the logits are there, forward and backward, for some numbers of tokens and sizes
# of a vocabulary:

# %%
notebook.speed("token_logprobs", "forward+backward", live=[(4096, 32768)])

# %% [markdown]
# ## When not to
#
# | what | of no use, or harmful, where |
# |---|---|
# | a reward | right answers are written down. They say of each token what it should have been; a reward is one number for a whole answer |
# | the mean of a group | all answers of a prompt get the same reward: nothing is learned from them, and they were written for nothing |
# | the clip | each rollout is used for one update only. The ratio is then 1, but for what the kernels differ by |
# | a price | nothing is to be held fast. It takes the reference through the forward pass in each update, and its weights stay in memory |
# | a cap of the ratio | sampler and trainer have the same bits, or nearly: there is nothing to cap. Where it acts, it leaves a bias |
# | the same bits | the sampler notes its log-probabilities, and its drift is small beside a step's: the ratio corrects for it |
# | logits in pieces | they fit into memory: the fourth product is for nothing |
#
# ## Exercises
#
# [[exercises]]
#
# Next: [what changes on more than one card](../guides/many-cards.md).
#
# The third estimate of the divergence is Schulman's, "Approximating KL divergence" (2020). That sampler and trainer can
# be made to agree in every bit, and what becomes of training if they don't, is in He, "Defeating nondeterminism in LLM
# inference" (2025).
