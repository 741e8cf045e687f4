r"""
# Memory that the others see

*Symmetric memory* is a buffer that every rank has, of the same size, and that every rank can read and write on all the
others: between cards through NVLink, between processes on a CPU through shared memory. A kernel gets the addresses of
all of them. Beside each buffer lies a *pad* of signals, small integers by which ranks tell each other that something is
ready.

To make such memory takes milliseconds, and all ranks have to do it together: make it once and keep it. The pads are our
own, and not those that `torch.distributed` keeps for its barriers: two kernels that share a pad would take each other's
signals.
"""

from academy.runtime import checks, device  # before anything imports triton

import os
import tempfile
from dataclasses import dataclass

import torch

from annotated_examples.common.ranks import place_in


@dataclass(frozen=True)
class Symmetric:
    """buffers[r] and pads[r] are rank r's, as this process sees them. `programs` is how many can signal at a time.

    `owner` keeps the memory alive. On cards buffers and pads are views that don't.
    """

    buffers: tuple
    pads: tuple
    rank: int
    programs: int
    owner: tuple = ()

    @property
    def world(self):
        return len(self.buffers)


# A program signals twice, in two places of the pad, and each place has a slot for every sender. `programs` must not be
# more than a card runs at the same time: programs that wait for each other, and don't all fit, wait forever.
def slots(programs, world):
    return 2 * programs * world


def resident(wanted, spare=0):
    """At most one program for each SM but `spare` of them, so that all are running at once."""
    if device.INTERPRET:
        return max(1, min(wanted, 4))
    return max(1, min(wanted, torch.cuda.get_device_properties(device.DEVICE.index).multi_processor_count - spare))


def symmetric_memory(numel, dtype=torch.float32, group=None, programs=None):
    """A `Symmetric` buffer of `numel` elements on every rank of the group; all ranks call this together.

    Args:
        programs: how many programs of a kernel may use it at a time. Default: one for each SM.

    Raises:
        TypeError, ValueError: numel or programs is no positive number.
    """
    checks.positive(numel=numel)
    programs = resident(2**31 - 1) if programs is None else programs
    checks.positive(programs=programs)
    rank, world = place_in(group)
    sizes = ((numel, dtype), (slots(programs, world), torch.int32))
    if world == 1:
        buffer, pad = ((torch.zeros(n, dtype=kind, device=device.DEVICE),) for n, kind in sizes)
        return Symmetric(buffer, pad, rank, programs)
    make = _between_processes if device.INTERPRET else _between_cards
    (buffer, *owner), (pad, *other) = (make(n, kind, group, rank, world) for n, kind in sizes)
    return Symmetric(buffer, pad, rank, programs, (*owner, *other))


# On cards PyTorch makes the memory, and the rendezvous exchanges the addresses. The pad has to be zero on every rank
# before anyone signals. `get_buffer` gives a bare address in the shape of a tensor: once nobody holds `own` and the
# handle any more, the memory behind it is gone.
def _between_cards(numel, dtype, group, rank, world):
    import torch.distributed._symmetric_memory as symmetric

    own = symmetric.empty(numel, dtype=dtype, device=device.DEVICE).zero_()
    handle = symmetric.rendezvous(own, torch.distributed.group.WORLD if group is None else group)
    torch.cuda.synchronize()
    torch.distributed.barrier(group)
    return tuple(handle.get_buffer(other, (numel,), dtype) for other in range(world)), own, handle


# On a CPU it is a file in memory that all processes map. Once all have it, its name is no longer needed.
def _between_processes(numel, dtype, group, rank, world):
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    path = tempfile.mkdtemp(prefix="academy-", dir=folder) if rank == 0 else None
    shared = [path]
    first = torch.distributed.get_global_rank(group, 0) if group is not None else 0
    torch.distributed.broadcast_object_list(shared, src=first, group=group)
    bytes_each = -(-numel * dtype.itemsize // 64) * 64
    whole = torch.from_file(f"{shared[0]}/memory", shared=True, size=bytes_each * world, dtype=torch.uint8)
    torch.distributed.barrier(group)
    if rank == 0:
        os.unlink(f"{path}/memory")
        os.rmdir(path)
    parts = (whole[other * bytes_each :][: numel * dtype.itemsize].view(dtype) for other in range(world))
    return (tuple(parts),)


# ## Ranks as a list
#
# In one process the ranks run one after the other, so each has to find what the later ones would have done by then:
# their buffers are filled, and their signals are set. That is how the example of
# [all-reduce](../distributed/all_reduce.py) runs, and the exercises.
def symmetric_list(values, programs=1):
    """The `Symmetric` of each rank, whose buffers hold `values`; they must run in this order, once."""
    buffers, world = tuple(x.reshape(-1).clone() for x in values), len(values)
    pads = tuple(torch.zeros(slots(programs, world), dtype=torch.int32, device=x.device) for x in buffers)
    for rank, pad in enumerate(pads):
        pad.view(-1, world)[:, rank + 1 :] = 1
    return [Symmetric(buffers, pads, rank, programs) for rank in range(world)]
