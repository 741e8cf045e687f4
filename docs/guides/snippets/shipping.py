"""An operator on its way into other parts of PyTorch: for the guide "Compile and export"."""

# --8<-- [start:shipped]
from academy.runtime import device  # before anything imports triton

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding


@torch.library.custom_op("shipping::scale_rows", mutates_args=())
def scale_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * scale[:, None]  # a launch stands here


@scale_rows.register_fake
def _(x, scale):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


x = torch.arange(6.0, device=device.DEVICE).view(2, 3)
scale = torch.tensor([1.0, 10.0], device=device.DEVICE)
# --8<-- [end:shipped]


# --8<-- [start:vmap]
@scale_rows.register_vmap
def _(info, in_dims, x, scale):
    def front(v, dim):
        return v.expand(info.batch_size, *v.shape) if dim is None else v.movedim(dim, 0)

    x, scale = (front(v, d) for v, d in zip((x, scale), in_dims))
    out = scale_rows(x.flatten(0, 1), scale.flatten())
    return out.unflatten(0, (info.batch_size, -1)), 0  # the result, and where its batch is


print(torch.vmap(scale_rows, in_dims=(0, None))(torch.stack([x, x + 1]), scale)[1].tolist())
# → [[1.0, 2.0, 3.0], [40.0, 50.0, 60.0]]
# --8<-- [end:vmap]

# --8<-- [start:cast]
scale_rows.register_autocast(x.device.type, torch.bfloat16)
with torch.autocast(x.device.type, dtype=torch.bfloat16):
    print(scale_rows(x, scale).dtype, scale_rows(x.double(), scale.double()).dtype)  # → torch.bfloat16 torch.float64
# --8<-- [end:cast]


# --8<-- [start:export]
class Model(torch.nn.Module):
    def forward(self, x, scale):
        return scale_rows(x.relu(), scale) + 1


rows = torch.export.Dim("rows")
exported = torch.export.export(Model(), (x, scale), dynamic_shapes=({0: rows}, {0: rows}))
print([str(node.target) for node in exported.graph.nodes if node.op == "call_function"])
# → ['aten.relu.default', 'shipping.scale_rows.default', 'aten.add.Tensor']
print(exported.module()(x.new_ones(5, 3), x.new_ones(5)).shape)  # → torch.Size([5, 3])
# --8<-- [end:export]


# --8<-- [start:package]
def packaged(exported, folder):
    """The model, compiled ahead of time into one file, and loaded from there."""
    path = torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/model.pt2")
    return torch._inductor.aoti_load_package(path)


# --8<-- [end:package]


# --8<-- [start:dtensor]
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh(x.device.type, (1,))
by_columns = DTensor.from_local(x, mesh, [Shard(1)])
everywhere = DTensor.from_local(scale, mesh, [Replicate()])
try:
    scale_rows(by_columns, everywhere)
except NotImplementedError as error:
    print(str(error).split(".default ")[1])  # → does not have a sharding strategy registered.


@register_sharding(torch.ops.shipping.scale_rows.default)
def _(x, scale):
    same = [Replicate()], [Replicate(), Replicate()]
    rows = [Shard(0)], [Shard(0), Shard(0)]
    columns = [Shard(1)], [Shard(1), Replicate()]
    return [same, rows, columns]  # each: how the results are cut, and how the arguments must be


print(scale_rows(by_columns, everywhere).placements)  # → (Shard(dim=1),)
dist.destroy_process_group()
# --8<-- [end:dtensor]
