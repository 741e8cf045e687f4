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
# # 9. What overlaps with what
#
# The TMA fetches tiles, the tensor cores multiply them, and neither needs a thread's help. So why does a kernel that
# uses both often take as long as one after the other? It depends on who waits for whom, and when. You write a product
# with one buffer, then with a ring of buffers, then with a group of warps for each job. A simulator runs it, without a
# GPU. It shows what was under way at the same time, and it names a wait that is missing.

# %% tags=["setup"] jupyter={"source_hidden": true} cellView="form"
# In the repository this only imports. Elsewhere, in Colab for example, it installs the kernels first.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("annotated_examples") is None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "git+{{ repo_url }}"]
    subprocess.run(command, check=True)

from academy.runtime import device  # before triton: without a GPU it switches the interpreter on
from academy import gluon as simulator
from academy.bench import notebook
from academy.gluon import lanes
from annotated_examples.common.hopper import described, tma_load, tma_store

import textwrap

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)  # fmt: skip

torch.manual_seed(0)
print(
    "GPU" if not device.INTERPRET else "CPU, in Triton's interpreter", "(this chapter simulates its kernels on the CPU)"
)

# %% [markdown]
# ## Two units that work alone
#
# So far `tl.load` and `tl.dot` did the waiting, and the compiler decided when. **Gluon** is the same language one floor
# down, and here you decide. `gluon` has a `jit` of its own, and `gl` takes the place of `tl`. Two units of a Hopper GPU
# go on by themselves once they have been asked:
#
# - The **TMA**, a unit for copies, brings a tile from global memory into a **buffer** in shared memory.
#   `tma_load(desc, [row, column], bar, buffer)` asks for it and returns at once. (`desc` is a *descriptor*: where the
#   matrix lies, and how large its tiles are.) `tma` has the unit's other functions.
# - The **tensor cores** multiply two tiles in shared memory. `warpgroup_mma(a, b, acc, is_async=True)` asks for the
#   product and returns at once. `warpgroup_mma_wait(n, deps=(acc,))` waits until at most `n` products are still being
#   computed.
#
# Who asks must also find out when it is done. For copies there is the **barrier**: `mbarrier` counts arrivals, in
# **phases** that are numbered from 0. A phase is complete when as many arrivals have come as `init` said, and all the bytes
# that were announced. Then the next phase begins, and the counting starts again.
#
# - `mbarrier.expect(bar, bytes)` is an arrival that announces bytes. The TMA brings them.
# - `mbarrier.arrive(bar)` is an arrival without any.
# - `mbarrier.wait(bar, p)` waits until the phase of **parity** `p` is complete: 0 for an even one, 1 for an odd one. It
#   can only mean the phase that runs now or the one just before it, because the hardware keeps a single bit. If `p` is the
#   parity of the one before, the wait returns at once. A new barrier runs phase 0, and counts as if a phase of parity 1 had
#   just been completed.
#
# ## One tile of a product
#
# The kernel computes a tile of 64 x 64, in steps of 64 along K. For each step it needs two tiles. `ask` announces their
# bytes and asks for both, so one barrier tells when both have arrived. `pred` is a switch: where it is false, nothing
# happens.
#
# At the end the sums leave through shared memory, by the TMA. `fence_async_shared` makes them visible to it; more about
# that below. `layout` says which thread holds which of the sums. Leave it aside for now: this instruction prescribes it, and
# [the lesson after this chapter](../kernels/gluon/tile_copy.md) takes layouts apart.


# %%
@gluon.jit
def ask(a_desc, b_desc, a, b, bar, k, pred):
    mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=pred)
    tma_load(a_desc, [0, k * 64], bar, a, pred=pred)
    tma_load(b_desc, [k * 64, 0], bar, b, pred=pred)


@gluon.jit
def ring_kernel(a_desc, b_desc, c_desc, steps, BUFFERS: gl.constexpr, PHASES: gl.constexpr = True):
    a_s = gl.allocate_shared_memory(a_desc.dtype, [BUFFERS, 64, 64], a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [BUFFERS, 64, 64], b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [64, 64], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
    for s in gl.static_range(BUFFERS):
        ask(a_desc, b_desc, a_s.index(s), b_s.index(s), full.index(s), s, s < steps)

    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, layout)
    for k in range(steps):
        buffer = k % BUFFERS
        phase = k // BUFFERS if PHASES else 0
        # The tiles of this step: have they arrived?
        mbarrier.wait(full.index(buffer), phase & 1)
        acc = warpgroup_mma(a_s.index(buffer), b_s.index(buffer), acc, is_async=True)
        # The product: has it been computed? Then nobody needs the buffer any more, and it is filled anew.
        acc = warpgroup_mma_wait(0, deps=(acc,))
        ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), k + BUFFERS, k + BUFFERS < steps)

    c_s.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma_store(c_desc, [0, 0], c_s)
    tma.store_wait(0)


# %% [markdown]
# `simulator.simulate` runs such a kernel on the CPU. Each partition of warps, each copy and each product goes on by itself,
# and a seed decides in which order. Whatever order it takes, the rules allow it. `lanes` draws it: time runs to the
# right, counted in steps. That isn't a measurement. A step is no nanosecond, and another seed gives another drawing.


# %%
def run(kernel, steps=6, seed=1, **options):
    """What happens while 64 rows are multiplied by 64 columns, step by step, and what is wrong: None if nothing is."""
    a, b = torch.randn(64, 64 * steps).half(), torch.randn(64 * steps, 64).half()
    c = torch.empty(64, 64).half()
    tiles = [described(x, [64, 64]) for x in (a, b, c)]
    events, wrong = [], None
    try:
        simulator.simulate(kernel, (1,), *tiles, steps, seed=seed, events=events, **options)
        assert torch.allclose(c.float(), a.float() @ b.float(), atol=0.1)
    except simulator.GluonError as error:
        wrong = error
    return events, wrong


def show(kernel, **options):
    events, wrong = run(kernel, **options)
    if wrong:
        print(type(wrong).__name__)
        print(*(textwrap.fill(line, 100) for line in str(wrong).splitlines()), sep="\n", end="\n\n")
    print(lanes.text(lanes.timeline(events), width=100))


show(ring_kernel, BUFFERS=1)

# %% [markdown]
# Look at the two lower lanes. Where one has `=`, the other has none: copy, product, copy, product. It isn't this seed's
# fault. With one buffer it can't be otherwise, because the next copy would overwrite what the product still reads.
#
# ## A ring of buffers
#
# So take several. Step `k` uses buffer `k % BUFFERS`, and is that buffer's use number `k // BUFFERS`. Before the loop all
# buffers are asked for. In the loop a buffer that has been used is asked for again, for the step `BUFFERS` further on.

# %%
show(ring_kernel, BUFFERS=3)


# %%
def together(events):
    """At how many steps a copy and a product were under way."""
    busy = {"TMA": set(), "tensor cores": set()}
    for span in lanes.timeline(events)["spans"]:
        if span["lane"] in busy:
            busy[span["lane"]] |= set(range(span["from"], span["to"]))
    return len(busy["TMA"] & busy["tensor cores"])


for BUFFERS in (1, 2, 3):
    overlapped = [together(run(ring_kernel, seed=seed, BUFFERS=BUFFERS)[0]) > 0 for seed in range(20)]
    print(f"BUFFERS={BUFFERS}: copies and products overlap in {sum(overlapped)} of 20 orders")

# %% [markdown]
# Two buffers are enough for an overlap. In the orders without one, every copy happened to be done before the product was
# asked for. That is allowed too: a ring makes an overlap possible, and time decides about the rest.
#
# ## Which phase is it?
#
# [[figure: below/phases]]
#
# Here is what each step of a ring of three waited for, noted by the simulator:

# %%
events, _ = run(ring_kernel, steps=8, BUFFERS=3)
print("step  waited for  phase  parity")
for step, event in enumerate(event for event in events if event["kind"] == "go on" and event.get("barrier")):
    print(f"{step:4}  {event['barrier']:10}  {event['phase']:5}  {event['phase'] % 2:6}")

# %% [markdown]
# Every buffer has a barrier of its own, and each use of it is a phase: one arrival, which is `expect`, and 16,384 bytes. The
# third use is phase 2, whose parity is 0 again. That is no problem as long as everybody waits for the phase that the barrier
# is in, or the one before. The next one has the parity of the one before: the wait would return at once.
#
# What if you forget the phase, and always wait for parity 0?

# %%
show(ring_kernel, BUFFERS=1, PHASES=False)

# %% [markdown]
# In its second use the barrier is in phase 1. Phase 0 is complete, so the wait returns at once, and the product reads tiles
# that are still arriving. The message has both lines. Does it take bad luck to see it?

# %%
kinds = [type(run(ring_kernel, seed=seed, BUFFERS=1, PHASES=False)[1]).__name__ for seed in range(40)]
print({kind: kinds.count(kind) for kind in sorted(set(kinds))})

# %% [markdown]
# No. A race is named because nothing *orders* the two accesses, whichever of them was first this time. And where the copy
# was quick, phase 1 was complete before the wait began. The barrier is in phase 2 then, and its parity 0 never completes: a
# deadlock. On a GPU most copies arrive late, or most early. Then the kernel nearly always does the same thing, until the
# next driver.
#
# ## How many buffers?
#
# The simulator knows what is allowed, not how long it takes. For that take a model, which fits into five lines. A copy is
# asked for when its buffer is free, and the TMA sends one tile after the other. Some time later, after the
# *latency*, the tile is there. Products are computed one after the other.


# %%
def schedule(buffers, copy, latency, compute, steps):
    """For each step: when its copy begins, when the tiles are there, when the product begins, when it is done."""
    times = []
    for k in range(steps):
        free = times[k - buffers][3] if k >= buffers else 0
        begins = max(free, times[-1][0] + copy if times else 0)
        there = begins + copy + latency
        starts = max(there, times[-1][3] if times else 0)
        times.append((begins, there, starts, starts + compute))
    return times


for buffers in range(1, 6):
    end = schedule(buffers, copy=2, latency=4, compute=2, steps=6)[-1][3]
    print(f"buffers = {buffers}: 6 steps take {end} units of time, the tensor cores work for {6 * 2} of them")

# %% [markdown]
# [[figure: below/overlap]]
#
# Before you move anything: how many buffers does it take until the tensor cores never wait, once they have begun? In the
# long run a step takes
#
# ```text
# max(copy, compute, (copy + latency + compute) / buffers)
# ```
#
# because each of the two units needs its time for every step, and a buffer is taken from the moment its copy begins until
# its product is done. More buffers make the last of the three smaller. Once another one is the largest, a further buffer
# gains nothing. It costs shared memory, of which a program can have 227 KB on Hopper. Try a latency of 12, and a compute time of 1: now who
# waits for whom?
#
# ## The way out, and a fence
#
# [[figure: below/doors]]
#
# At its end the kernel stores the sums in shared memory, and the TMA takes them from there. The two don't see shared
# memory through the same door. Threads have the ordinary one. TMA and tensor cores have another, the **async
# proxy**. What has been stored through one door may not have reached the other yet, even if it happened before.
# `fence_async_shared()` sees to that. The rule: after an ordinary store, before the TMA or the tensor cores read it.
#
# Then `tma.store_wait(0)` waits until the TMA has read everything. When the program ends, the next one gets its shared
# memory.
#
# ## One job, one partition
#
# [[figure: below/handshake]]
#
# Look at the lane `kernel` again. One group of warps asks, waits, asks for a product, waits for that, and only then asks for
# the next tiles. While it waits for a product it can't ask for a copy, and while it writes the result nothing is multiplied.
# `gl.warp_specialize` gives each job to warps of its own, which it calls a **partition**. Partitions talk through barriers,
# and now there are two for each buffer:
#
# - `full`: the tiles are there. The TMA completes it, `multiply` waits for it.
# - `empty`: nobody needs the tiles any more. `multiply` arrives, `fetch` waits for it.
#
# At the start all buffers are empty, and nobody has said so. So `fetch` first waits for the phase *before* phase 0, which a
# new barrier counts as complete. Its parity is 1. Hence the `^ 1`.
#
# `multiply` also asks for the next product before it waits for the last one, so that the tensor cores don't wait for the
# threads. `warpgroup_mma_wait(1)` leaves the newest outstanding. What is done then is the one before it, and it is that
# one's buffer that is given back.


# %%
@gluon.jit
def fetch(a_desc, b_desc, a_s, b_s, full, empty, steps, BUFFERS: gl.constexpr, LEFT_OUT: gl.constexpr):
    for k in range(steps):
        buffer = k % BUFFERS
        if LEFT_OUT != "wait for empty":
            mbarrier.wait(empty.index(buffer), ((k // BUFFERS) & 1) ^ 1)
        ask(a_desc, b_desc, a_s.index(buffer), b_s.index(buffer), full.index(buffer), k, True)


@gluon.jit
def multiply(c_desc, a_s, b_s, c_s, full, empty, steps, BUFFERS: gl.constexpr, LEFT_OUT: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, layout)
    for k in range(steps):
        buffer = k % BUFFERS
        if LEFT_OUT != "wait for full":
            mbarrier.wait(full.index(buffer), (k // BUFFERS) & 1)
        acc = warpgroup_mma(a_s.index(buffer), b_s.index(buffer), acc, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        if LEFT_OUT != "arrival":
            mbarrier.arrive(empty.index((k + BUFFERS - 1) % BUFFERS), pred=k > 0)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    c_s.store(acc.to(c_desc.dtype))
    if LEFT_OUT != "fence":
        fence_async_shared()
    tma_store(c_desc, [0, 0], c_s)
    tma.store_wait(0)


@gluon.jit
def partitions_kernel(a_desc, b_desc, c_desc, steps, BUFFERS: gl.constexpr, LEFT_OUT: gl.constexpr = "nothing"):
    a_s = gl.allocate_shared_memory(a_desc.dtype, [BUFFERS, 64, 64], a_desc.layout)
    b_s = gl.allocate_shared_memory(b_desc.dtype, [BUFFERS, 64, 64], b_desc.layout)
    c_s = gl.allocate_shared_memory(c_desc.dtype, [64, 64], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(BUFFERS):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    # The first partition goes on in the warps that are there. Each other one gets its own: here one warp, whose threads
    # make do with 24 registers.
    gl.warp_specialize([
        (multiply, (c_desc, a_s, b_s, c_s, full, empty, steps, BUFFERS, LEFT_OUT)),
        (fetch, (a_desc, b_desc, a_s, b_s, full, empty, steps, BUFFERS, LEFT_OUT)),
    ], [1], [24])  # fmt: skip


show(partitions_kernel, BUFFERS=3)

# %% [markdown]
# `fetch` is ahead, as far as the ring allows. It waits for nothing but an empty buffer.
#
# ## Change it
#
# Leave something out: `"wait for empty"`, `"wait for full"`, `"arrival"` or `"fence"`. Guess first what the simulator will
# say: a race, a missing fence, or that nobody can go on? Then put everything back and take one buffer. Why does that
# stop? (What does `multiply` give back after its first product?)

# %% tags=["parameters"]
buffers = 3
left_out = "fence"
seed = 1

# %%
show(partitions_kernel, seed=seed, BUFFERS=buffers, LEFT_OUT=left_out)

# %% [markdown]
# The same for a file of your own, in ten orders and with a drawing of the lanes: `academy simulate FILE --lanes`. The file
# has a function `EXAMPLE()` that calls your kernel, or is a script. `-` in the TMA's lane is a tile on its way out.
#
# ## How fast it is
#
# [The lesson's product](../kernels/gluon/matmul.md) is this kernel for whole matrices, with two partitions that
# multiply. It is compared with cuBLAS:

# %%
notebook.speed("gluon_matmul")

# %% [markdown]
# ## What the simulator can't see
#
# It runs what you wrote. Two compilers come after you, and they may undo it. The guide [What the compiler
# undoes](../guides/what-the-compiler-undoes.md) shows each trap, without a GPU:
#
# - [a wait that moves up](../guides/what-the-compiler-undoes.md#a-wait-that-moves-up), so that nothing overlaps any more
# - [products that run one at a time](../guides/what-the-compiler-undoes.md#products-that-run-one-at-a-time)
# - [a name that changes its type](../guides/what-the-compiler-undoes.md#a-name-that-changes-its-type)
# - [barriers that you didn't write](../guides/what-the-compiler-undoes.md#barriers-that-you-didnt-write)
# - [a copy that nobody waits for](../guides/what-the-compiler-undoes.md#a-copy-that-nobody-waits-for)
# - [a turn that looks like a matter of speed](../guides/what-the-compiler-undoes.md#a-turn-that-looks-like-a-matter-of-speed)
# - [names that come and go](../guides/what-the-compiler-undoes.md#names-that-come-and-go)
#
# ## Exercises
#
# [[exercises]]
#
# Next come [the formula of the copy](../derivations/tile_copy.md) and [its lesson](../kernels/gluon/tile_copy.md): layouts,
# the first ring once more, in a kernel for any matrix, and its recorded run. Partitions come back in
# [the product](../kernels/gluon/matmul.md).
