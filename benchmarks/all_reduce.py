"""What is measured of the one-shot all-reduce: on one rank, what the kernel itself costs.

Between cards it costs what the links cost; that takes a machine with several.
"""

import torch

LESSON = "distributed.all_reduce"
FAST = None
FUNCTION = "all_reduce"
AXES = ("elements",)


# x goes into the buffer, every rank's is read and added to a sum that begins with zero, and the sum is written.
def cost(shape, dtype, world=1, signals=0):
    n = torch.Size(shape).numel()
    read, written = n * dtype.itemsize * (1 + world), 2 * n * dtype.itemsize + 4 * signals
    return {"forward": dict(bytes_read=read, bytes_written=written, operations=world * n)}


def inputs(shape, dtype, device):
    return {"x": torch.randn(shape, dtype=dtype, device=device)}


def alone(function):
    from annotated_examples.common.symmetric import symmetric_memory

    memory = symmetric_memory(2**24, torch.bfloat16)
    return lambda x: function(x, memory)


# The first call is rank 0's. In each of two meetings it sets a signal on two pads, and takes back two, one its own.
EXAMPLES = {LESSON: cost((6,), torch.float32, world=2, signals=2 * 3)}
BENCH = dict(
    shapes=[(2**16,), (2**24,)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=alone,
    eager=lambda x: x.clone(),
    compile=False,
    host_shape=(64,),
)
