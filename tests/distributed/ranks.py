"""Several ranks for a test: processes on this machine that talk through gloo, with a time limit.

They are forked where that is safe, which takes no time, and they find one another through a file, so no port can be
taken. Where one raises, the others would wait for it: they are ended, and its traceback is what the test shows.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: F401  imported once, before the fork

from academy.judge import process


def run(work: Callable, world: int, *arguments: object, seconds: float = 60, group: bool = True) -> list:
    """[work(rank, world, *arguments) of each rank]; AssertionError with the traceback of the first that fails."""
    context = process.context()
    with tempfile.TemporaryDirectory() as folder:
        target = functools.partial(_rank, work, world, arguments, Path(folder), group)
        ranks = [context.Process(target=target, args=(rank,), daemon=True) for rank in range(world)]
        for rank in ranks:
            rank.start()
        end = time.monotonic() + seconds
        try:
            while any(rank.is_alive() for rank in ranks):
                _assert_none_failed(Path(folder), world)
                assert not any(rank.exitcode for rank in ranks), f"a rank died: {[rank.exitcode for rank in ranks]}"
                assert time.monotonic() < end, f"{world} ranks were not done after {seconds} s: one waits for another"
                time.sleep(0.01)
            _assert_none_failed(Path(folder), world)
            return [torch.load(Path(folder, f"{rank}.pt"), weights_only=False) for rank in range(world)]
        finally:
            for each in ranks:
                each.kill()
                each.join()


def _assert_none_failed(folder: Path, world: int) -> None:
    """The first to fail has the reason; the others only lose their connection to it."""
    failed = sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
    if failed:
        time.sleep(0.2)  # another may have failed before, and still be writing
        failed = sorted(folder.glob("*.error"), key=lambda path: ("by peer" in path.read_text("utf-8"), path))
        raise AssertionError(f"rank {failed[0].stem} of {world}:\n{failed[0].read_text('utf-8')}")


def _rank(work: Callable, world: int, arguments: tuple, folder: Path, group: bool, rank: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        if group:
            dist.init_process_group(
                "gloo", store=dist.FileStore(str(folder / "store"), world), rank=rank, world_size=world
            )
        result = work(rank, world, *arguments)
        if group:
            dist.barrier()
            dist.destroy_process_group()
        # Under another name first: the file is read when all have ended.
        torch.save(result, folder / f"{rank}.pt")
    except BaseException:
        (folder / f"{rank}.part").write_text(traceback.format_exc(), "utf-8")
        (folder / f"{rank}.part").rename(folder / f"{rank}.error")
    finally:
        os._exit(0)  # no exit handlers: they are the parent's
