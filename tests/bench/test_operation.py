"""What a kernel file offers to the benchmark is read strictly: a slip must not measure something else."""

import pytest
import torch

from academy.bench import figures, operation, pages, store
from tests.bench import fake
from tests.kernels.harness import ROOT


def test_every_kernel_file_can_be_read():
    found = {o.name: o for o in operation.discover()}
    assert {"vector_add", "layernorm"} <= set(found)
    for each in found.values():
        for variant, shape, dtype in each.cases():
            for which in variant.passes:
                total_bytes, operations = variant.pass_cost(shape, dtype, which)
                assert total_bytes > 0 and operations > 0, (each.name, variant.name, shape, which)


def test_names_are_unique():
    names = [o.name for o in operation.discover()]
    assert len(names) == len(set(names)), "results are stored by a file's name"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(shape=[(1,)]), r"unknown keys \['shape'\]"),
        (dict(passes=["foreward"]), "passes must be of"),
        (dict(passes="forward+backward"), "passes must be of"),
        (dict(differentiable=[]), "differentiable must name"),
        (dict(timing="graph"), "timing='graph' is for forward only"),
        (dict(timing="stopwatch"), "timing must be 'events' or 'graph'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_keys_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        operation.read(fake.bench(**changes), fake.cost)


@pytest.mark.parametrize("key", sorted(operation.REQUIRED))
def test_missing_keys_are_named(key):
    bench = fake.bench()
    del bench[key]
    with pytest.raises(ValueError, match=f"lacks .*'{key}'"):
        operation.read(bench, fake.cost)


def test_variants_change_what_they_name_and_keep_the_rest():
    variants = {"plus": dict(ours=lambda x: x + x), "wide": dict(shapes=[(2, 1000)])}
    plus, wide = operation.read(fake.bench(variants=variants), fake.cost)
    assert (plus.name, wide.name) == ("plus", "wide")
    assert plus.ours is variants["plus"]["ours"] and wide.ours is fake.double
    assert plus.shapes == [(4, 8), (3, 5)] and wide.shapes == [(2, 1000)]
    assert wide.host_shape == (2, 128)


def test_cost_of_both_passes_is_their_sum_unless_given():
    (variant,) = operation.read(fake.bench(), fake.cost)
    assert variant.pass_cost((4, 8), torch.bfloat16, "forward") == (2 * 2 * 32, 32)
    assert variant.pass_cost((4, 8), torch.bfloat16, "forward+backward") == (4 * 2 * 32, 64)
    own = {"forward+backward": dict(bytes_read=1, bytes_written=2, operations=3)}
    (variant,) = operation.read(fake.bench(), lambda shape, dtype: own)
    assert variant.pass_cost((4, 8), torch.float32, "forward+backward") == (3, 3)


def test_peers_may_convert_the_inputs_first():
    handed = []

    def converting(inputs):
        handed.append(inputs)
        return fake.double

    (variant,) = operation.read(fake.bench(peers={"a": converting, "b": lambda: fake.double}), fake.cost)
    inputs = fake.inputs((2,), torch.float32, "cpu")
    providers = variant.providers()
    assert list(providers) == ["ours", "eager", "a", "b"]
    assert providers["a"](inputs) is fake.double and handed == [inputs]
    assert providers["b"](inputs) is fake.double


def test_torch_compile_is_added_unless_declined():
    (variant,) = operation.read(fake.bench(compile=True, eager_name="cuBLAS"), fake.cost)
    assert list(variant.providers()) == ["ours", "cuBLAS", "torch.compile"]


def test_committed_limits_follow_from_cost():
    """A changed `cost` or `BENCH` makes no result stale, so what it says must be what the results say."""
    variants = {(o.name, v.name): v for o in operation.discover() for v in o.variants}
    for path, content in store.committed(ROOT):
        for case in content["cases"]:
            variant, dtype = variants[content["operation"], case["variant"]], getattr(torch, case["dtype"])
            for which, entry in case["passes"].items():
                expected = variant.pass_cost(tuple(case["shape"]), dtype, which)
                assert (entry["bytes"], entry["operations"]) == expected, f"{path.name} {case['shape']} {which}"


def test_where_a_peer_is_ahead_the_kernel_says_so():
    """The generated page points to these notes."""
    for _, content in store.committed(ROOT):
        entries = [entry for case in content["cases"] for entry in case["passes"].values()]
        peers = [(entry["providers"], figures.best_peer(entry)) for entry in entries if "ours" in entry["providers"]]
        if any(best and times[best]["ms"] < pages.LEVEL * times["ours"]["ms"] for times, best in peers):
            assert "here it stays behind" in (ROOT / content["module"]).read_text("utf-8"), content["module"]
