"""The lessons of "Past one card" on several cards of one machine, with NCCL: right, the same bits, and how fast.

`python benchmarks/many_cards.py` starts a process for each card, once for each part, and writes
`benchmarks/results/<device>/experiments/many_cards.json` after every part. Each part has a time limit, as ranks that
wait for each other would wait for ever; a part that fails is said to have failed, and the others are measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from academy.runtime import device
from academy.bench import experiment
from academy.bench.collectives import Traffic, ring_bytes
from academy.judge import accuracy
from annotated_examples.capstone import parallel
from annotated_examples.capstone.gpt import GPT, GPT_124M, OURS, PLAIN, Operations, adamw
from annotated_examples.common.symmetric import symmetric_memory
from annotated_examples.distributed.all_gather_matmul import all_gather_matmul
from annotated_examples.distributed.all_reduce import all_reduce
from annotated_examples.distributed.vocab_parallel_cross_entropy import vocab_parallel_cross_entropy

RUNS = 200
ROWS, VOCABULARIES = 8192, (128256, 262144)
#: Rows that are compared with float64; the whole would not fit beside the rest.
CHECKED = 512
MESSAGES = [2**power for power in range(12, 27, 2)]
#: Rows of a rank, K and N of its product.
GATHERED = (4096, 4096, 4096)
#: The large GPT, with key heads that two and four ranks can share, and without dropout.
MODEL = dataclasses.replace(GPT_124M, heads=12, key_heads=4, p=0.0)
#: Sequences of a card where sequences are cut, and of all cards where products are.
SEQUENCES = 32
SECONDS = 120


# ---------------------------------------------------------------- clocks and comparisons


def event_ms(run: Callable[[], object], repeats: int = 20, warmup: int = 3) -> float:
    """Mean time of a call on the slowest rank."""
    for _ in range(warmup):
        run()
    torch.cuda.synchronize()
    dist.barrier()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    slowest = torch.tensor([start.elapsed_time(end) / repeats], device=device.DEVICE)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def graph_ms(run: Callable[[], object], calls: int = 20) -> float:
    """The same of calls that are recorded as a CUDA graph, so that Python's time isn't part of it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return event_ms(graph.replay, repeats=5, warmup=2) / calls


def same_everywhere(*tensors: torch.Tensor) -> bool:
    """Whether all ranks have the same bits."""
    for tensor in tensors:
        mine = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyones, mine)
        if not all(torch.equal(mine, theirs) for theirs in everyones):
            return False
    return True


# ---------------------------------------------------------------- the parts


def loss(values: dict, rank: int, world: int) -> None:
    """The vocabulary-parallel cross entropy against float64 and PyTorch's `loss_parallel`."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    mesh = init_device_mesh("cuda", (world,))
    for vocabulary in VOCABULARIES:
        torch.manual_seed(0)
        whole = 3 * torch.randn(CHECKED, vocabulary, device=device.DEVICE).bfloat16()
        labels = torch.randint(vocabulary, (ROWS,), device=device.DEVICE)
        width = vocabulary // world
        mine = slice(rank * width, (rank + 1) * width)

        def ours(logits, labels, vocabulary=vocabulary):
            found = vocab_parallel_cross_entropy(logits, labels, vocab=vocabulary)
            return found, torch.autograd.grad(found, logits)[0]

        def theirs(logits, labels):
            cut = DTensor.from_local(logits, mesh, [Shard(1)], run_check=False)
            with loss_parallel():
                found = F.cross_entropy(cut, DTensor.from_local(labels, mesh, [Replicate()], run_check=False))
                (gradient,) = torch.autograd.grad(found, logits)
            return found.full_tensor(), gradient

        exact_logits = whole.double().requires_grad_()
        exact = F.cross_entropy(exact_logits, labels[:CHECKED])
        (exact_gradient,) = torch.autograd.grad(exact, exact_logits)
        part = whole[:, mine].contiguous()
        for name, function in (("ours", ours), ("loss_parallel", theirs)):
            found, gradient = function(part.clone().requires_grad_(), labels[:CHECKED])
            values[f"loss/{vocabulary}/{name}/error"] = (abs(found.item() - exact.item()) / exact.item(), "")
            values[f"loss/{vocabulary}/{name}/gradient_error"] = (
                accuracy.errors(gradient, exact_gradient[:, mine]).rms, "",
            )  # fmt: skip
        del exact_logits, exact, exact_gradient, whole, part
        torch.cuda.empty_cache()

        torch.manual_seed(1 + rank)
        logits = torch.randn(ROWS, width, device=device.DEVICE, dtype=torch.bfloat16).requires_grad_()
        first = ours(logits, labels)
        different = sum(
            not all(map(torch.equal, ours(logits, labels), first)) for _ in range(RUNS)
        )  # fmt: skip
        values[f"loss/{vocabulary}/different_runs"] = (different, "")
        values[f"loss/{vocabulary}/same_everywhere"] = (float(same_everywhere(first[0])), "")
        del first
        for name, function in (("ours", ours), ("loss_parallel", theirs)):
            run = functools.partial(function, logits, labels)
            with Traffic() as traffic:
                run()
            if traffic.calls:  # those of `loss_parallel` run below what can be watched from Python
                sent = sum(ring_bytes(call.kind, call.payload, world) for call in traffic.calls)
                values[f"loss/{vocabulary}/{name}/sent"] = (sent / 1e3, "KB")
                values[f"loss/{vocabulary}/{name}/collectives"] = (len(traffic.calls), "")
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            values[f"loss/{vocabulary}/{name}/time"] = (event_ms(run, repeats=10), "ms")
            values[f"loss/{vocabulary}/{name}/memory"] = ((torch.cuda.max_memory_allocated() - before) / 2**30, "GiB")
        del logits
        torch.cuda.empty_cache()


def reduce(values: dict, rank: int, world: int) -> None:
    """The one-shot all-reduce against NCCL's, by the size of the message."""
    largest = MESSAGES[-1] // 2
    memory = symmetric_memory(largest, torch.bfloat16)
    different, wrong = 0, 0
    for size in MESSAGES:
        numel = size // 2
        parts = []
        for other in range(world):
            torch.manual_seed(100 * other + 1)
            parts.append(torch.randn(numel, device=device.DEVICE).bfloat16())
        x, exact = parts[rank], sum(part.float() for part in parts).bfloat16()
        first = all_reduce(x, memory)
        wrong += not torch.equal(first, exact)
        different += sum(not torch.equal(all_reduce(x, memory), first) for _ in range(RUNS))
        wrong += not same_everywhere(first)
        total = torch.empty_like(x)

        def nccl(x=x, total=total):
            total.copy_(x)
            dist.all_reduce(total)

        kb = size // 1024
        values[f"all_reduce/{kb}/ours"] = (1e3 * graph_ms(lambda x=x: all_reduce(x, memory)), "µs")
        values[f"all_reduce/{kb}/nccl"] = (1e3 * graph_ms(nccl), "µs")
        values[f"all_reduce/{kb}/ours_called"] = (1e3 * event_ms(lambda x=x: all_reduce(x, memory)), "µs")
        values[f"all_reduce/{kb}/nccl_called"] = (1e3 * event_ms(nccl), "µs")
    values["all_reduce/different_runs"] = (different, "")
    values["all_reduce/wrong"] = (wrong, "")
    times = {
        size // 1024: [values[f"all_reduce/{size // 1024}/{who}"][0] for who in ("ours", "nccl")] for size in MESSAGES
    }
    faster = [kb for kb, (ours, nccl) in times.items() if ours < nccl]
    values["all_reduce/faster_up_to"] = (max(faster, default=0), "KB")


def gather(values: dict, rank: int, world: int) -> None:
    """The product that starts while rows arrive, against the two one after the other."""
    rows, K, N = GATHERED
    torch.manual_seed(rank)
    x, w = (torch.randn(*shape, device=device.DEVICE, dtype=torch.bfloat16) for shape in ((rows, K), (K, N)))
    memory = symmetric_memory(x.numel(), torch.bfloat16)
    whole = torch.empty(world * rows, K, device=device.DEVICE, dtype=torch.bfloat16)
    dist.all_gather_into_tensor(whole, x)
    first = all_gather_matmul(x, w, memory)
    exact = whole[:: rows // 64].double() @ w.double()
    values["gather/error"] = (accuracy.errors(first[:: rows // 64], exact).rms, "")
    values["gather/torch_error"] = (accuracy.errors((whole @ w)[:: rows // 64], exact).rms, "")
    different = sum(not torch.equal(all_gather_matmul(x, w, memory), first) for _ in range(RUNS))
    values["gather/different_runs"] = (different, "")

    def apart():
        dist.all_gather_into_tensor(whole, x)
        return whole @ w

    values["gather/gather"] = (event_ms(lambda: dist.all_gather_into_tensor(whole, x)), "ms")
    values["gather/cublas"] = (event_ms(lambda: whole @ w), "ms")
    values["gather/apart"] = (event_ms(apart), "ms")
    values["gather/ours"] = (event_ms(lambda: all_gather_matmul(x, w, memory)), "ms")


def whole_model(operations: Operations, dtype: torch.dtype) -> GPT:
    torch.manual_seed(0)
    return GPT(MODEL, operations, dtype).to(device.DEVICE)


def measure_training(values: dict, name: str, model: torch.nn.Module, options: parallel.Options, place: tuple) -> None:
    """Time of a step on the slowest rank, tokens a second of all ranks together, and the most memory of a rank."""
    optimizer = adamw(model, 6e-4)
    tokens, labels = next(parallel.batches(options, *place))

    def step():
        model(tokens, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    ms = event_ms(step, repeats=10)
    values[f"{name}/step"] = (ms, "ms")
    values[f"{name}/tokens"] = (options.sequences * MODEL.context / ms, "thousand tokens/s")
    values[f"{name}/memory"] = (torch.cuda.max_memory_allocated() / 2**30, "GiB")


def training(way: str) -> Callable[[dict, int, int], None]:
    def part(values: dict, rank: int, world: int) -> None:
        options = parallel.Options(way=way, steps=3, sequences=2 * world, learning_rate=6e-4, model=MODEL)
        options.check(world)
        cut = parallel.WAYS[way](whole_model(OURS, torch.float32))
        losses, _ = parallel.trained(cut, parallel.batches(options, rank, world), options)
        if way != "tp":
            dist.all_reduce(losses)
            losses /= world
        alone, _ = parallel.trained(whole_model(OURS, torch.float32), parallel.batches(options), options)
        values[f"{way}/difference"] = ((losses - alone).abs().max().item(), "")
        values[f"{way}/same_everywhere"] = (float(same_everywhere(losses)), "")
        del cut
        torch.cuda.empty_cache()
        for kind, operations in (("", OURS), (" plain", PLAIN)):
            if way == "ddp":  # what a card does alone: as many sequences as it has there
                one = dataclasses.replace(options, way="tp", sequences=SEQUENCES)
                measure_training(values, f"one{kind}", whole_model(operations, torch.bfloat16), one, ())
                torch.cuda.empty_cache()
            if way == "tp" and kind:  # cut_operations needs our loss, so there is no plain form
                continue
            whole = dataclasses.replace(options, sequences=SEQUENCES if way == "tp" else SEQUENCES * world)
            model = parallel.WAYS[way](whole_model(operations, torch.bfloat16))
            measure_training(values, f"{way}{kind}", model, whole, (rank, world))
            del model
            torch.cuda.empty_cache()

    return part


PARTS = {"reduce": reduce, "gather": gather, "loss": loss, **{way: training(way) for way in parallel.WAYS}}


# ---------------------------------------------------------------- all of it


def links() -> str:
    """How the first two cards are linked, as `nvidia-smi topo -m` says it: "NV18" is 18 NVLinks."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=20).stdout
        row = next((line for line in said.splitlines() if re.match(r"\S*GPU0\b.*\bX\b", line)), "")
        return next((word for word in row.split()[1:] if word != "X"), "unknown")
    return "unknown"


@contextlib.contextmanager
def group() -> Iterator[tuple[int, int]]:
    parallel.start()
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def run_part(name: str, results: Path) -> None:
    """One part on this rank; rank 0 adds what it found to the file."""
    values: dict[str, tuple[float | None, str]] = {}
    with group() as (rank, world):
        PARTS[name](values, rank, world)
        if rank == 0:
            content = experiment.kept("many_cards", results, "values", "failed")
            content["failed"].pop(name, None)
            content |= dict(world=world, links=links(), nccl=".".join(map(str, torch.cuda.nccl.version())))
            content["values"] |= experiment.rounded({"world": (world, "")} | values, 4)
            experiment.write_experiment("many_cards", results, content)
            for key, (value, unit) in values.items():
                print(f"{key}: {value:.4g} {unit}", flush=True)
        dist.barrier()


def main() -> int:
    parser = experiment.parser(__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", choices=list(PARTS), help="may be repeated")
    arguments = parser.parse_args()
    if device.INTERPRET or torch.cuda.device_count() < 2:
        print("this needs two CUDA devices or more", file=sys.stderr)
        return 2
    if "RANK" in os.environ:
        run_part(arguments.only[0], arguments.results)
        return 0
    failed = {}
    for name in arguments.only or PARTS:
        start = ["--standalone", "--nproc-per-node", str(torch.cuda.device_count())]
        command = [sys.executable, "-m", "torch.distributed.run", *start, __file__, "--only", name]
        # A session of its own, so that whoever waits for ever can be ended together with who started it.
        ranks = subprocess.Popen([*command, "--results", str(arguments.results)], start_new_session=True)
        try:
            status = ranks.wait(SECONDS)
            said = f"status {status}" if status else ""
        except subprocess.TimeoutExpired:
            said = f"not done after {SECONDS} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(ranks.pid, signal.SIGKILL)
        if said:
            failed[name] = said
            print(f"{name} failed: {said}", flush=True)
    if failed:
        content = experiment.kept("many_cards", arguments.results, "values", "failed")
        experiment.write_experiment("many_cards", arguments.results, content | {"failed": content["failed"] | failed})
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
