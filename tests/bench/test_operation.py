"""What `operations/<op>.py` says is read strictly: a slip must not measure something else."""

import dataclasses
import inspect

import pytest
import torch

from academy.runtime import device
from academy.bench import operation, run
from academy.book import facts, layout
from academy.results import figures, pages, store
from operations import _attention
from tests.bench import fake
from tests.kernels.harness import ROOT


def test_every_benchmark_can_be_read():
    found = {o.name: o for o in operation.discover()}
    assert {"vector_add", "layernorm"} <= set(found)
    for each in found.values():
        for variant, shape, dtype in each.cases():
            for which in variant.passes:
                total_bytes, operations = variant.pass_cost(shape, dtype, which)
                assert total_bytes > 0 and operations > 0, (each.name, variant.name, shape, which)


#: Variants whose PyTorch refuses to run without a card, or on some CPUs (scales of rows, where oneDNN multiplies).
#: There the reference is taken in its place.
ONLY_ON_A_CARD = {
    ("scaled_matmul", "row"),
    ("scaled_matmul", "block"),
    *((name, variant) for name in ("flash_attention", "gluon_flash_attention") for variant in ("causal", "full")),
}


#: In `make test` every third operation. (`academy bench` judges what it measures, too.)
MEASURED = facts.measured(ROOT)
AT_NIGHT = {*MEASURED} - {*MEASURED[::3]}


@pytest.mark.parametrize(
    "path", [pytest.param(each, id=each.stem, marks=[pytest.mark.nightly] * (each in AT_NIGHT)) for each in MEASURED]
)
def test_ours_pass_the_judge_of_their_benchmark(path):
    """On small inputs. What a benchmark can't call, or compares with something else, shows here, and not on a card."""
    each = operation.Operation.from_file(path)
    for variant in each.variants:
        dtype, reference = variant.dtypes[0], variant.reference
        inputs = variant.inputs(variant.host_shape, dtype, device.DEVICE)
        if device.INTERPRET and (each.name, variant.name) in ONLY_ON_A_CARD:
            variant = dataclasses.replace(variant, eager=lambda **x: reference(**x).to(dtype))  # noqa: B023
        checker = run.Checker(variant, inputs)
        for name, ours in variant.ours.items():
            assert checker.problem(run.Call(ours, inputs, variant)) is None, (variant.name, name)


def test_every_kernel_file_has_a_benchmark():
    named = {file for path in facts.measured(ROOT) for file in facts.shown(path)}
    pages = [path for path in layout.pages(ROOT) if layout.group(ROOT, path) != "capstone"]
    files = {path.relative_to(ROOT).as_posix() for path in pages}
    assert not files - named, f"in no benchmark (LESSON or FAST of operations/<op>.py): {sorted(files - named)}"
    assert not named - files, f"named by a benchmark, but not there or without an EXAMPLE: {sorted(named - files)}"


def test_the_providers_are_lesson_and_fast():
    (softmax,) = (o for o in operation.discover() if o.name == "softmax")
    assert softmax.files == {
        "lesson": "annotated_examples/tutorials/softmax.py",
        "fast": "annotated_examples/fast/softmax.py",
    }
    assert list(softmax.variants[0].providers())[:2] == ["lesson", "fast"]
    assert softmax.sources["lesson"] != softmax.sources["fast"]


def read(bench, cost=fake.cost):
    return operation.read(bench, cost, {"lesson": fake.double})


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
        read(fake.bench(**changes))


@pytest.mark.parametrize("key", sorted(operation.REQUIRED))
def test_missing_keys_are_named(key):
    bench = fake.bench()
    del bench[key]
    with pytest.raises(ValueError, match=f"lacks .*'{key}'"):
        read(bench)


def test_variants_change_what_they_name_and_keep_the_rest():
    twice = lambda function: lambda x: function(function(x))  # noqa: E731
    plus, wide = read(fake.bench(variants={"plus": dict(call=twice), "wide": dict(shapes=[(2, 1000)])}))
    assert (plus.name, wide.name) == ("plus", "wide")
    assert plus.ours["lesson"](1) == 4 and wide.ours == {"lesson": fake.double}
    assert plus.shapes == [(4, 8), (3, 5)] and wide.shapes == [(2, 1000)]
    assert wide.host_shape == (2, 128)


def test_cost_of_both_passes_is_their_sum_unless_given():
    (variant,) = read(fake.bench())
    assert variant.pass_cost((4, 8), torch.bfloat16, "forward") == (2 * 2 * 32, 32)
    assert variant.pass_cost((4, 8), torch.bfloat16, "forward+backward") == (4 * 2 * 32, 64)
    own = {"forward+backward": dict(bytes_read=1, bytes_written=2, operations=3)}
    (variant,) = read(fake.bench(), lambda shape, dtype: own)
    assert variant.pass_cost((4, 8), torch.float32, "forward+backward") == (3, 3)


def test_peers_may_convert_the_inputs_first():
    handed = []

    def converting(inputs):
        handed.append(inputs)
        return fake.double

    (variant,) = read(fake.bench(peers={"a": converting, "b": lambda: fake.double}))
    inputs = fake.inputs((2,), torch.float32, "cpu")
    providers = variant.providers()
    assert list(providers) == ["lesson", "eager", "a", "b"]
    assert providers["a"](inputs) is fake.double and handed == [inputs]
    assert providers["b"](inputs) is fake.double


def test_torch_compile_is_added_unless_declined():
    (variant,) = read(fake.bench(compile=True, eager_name="cuBLAS"))
    assert list(variant.providers()) == ["lesson", "cuBLAS", "torch.compile"]


def test_a_slow_reference_is_not_timed():
    (variant,) = read(fake.bench(time_eager=False))
    assert list(variant.providers()) == ["lesson"] and variant.eager


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
        if any((each.against_best or 1) < pages.LEVEL for each in figures.passes(content["cases"])):
            files = facts.kernels(ROOT / "operations" / f"{content['operation']}.py")
            file = files.get("fast", files["lesson"])
            assert "here it falls behind" in (ROOT / file).read_text("utf-8"), file


def test_no_peer_was_called_by_names_that_it_does_not_have():
    """Such a peer is left out of a run with a note, which nobody may read: so it went with flex attention."""
    records = [record for _, record in store.committed(ROOT)]
    records += [
        {"operation": "", "cases": content["rows"]} for _, content in figures.results(ROOT, "experiments/record")
    ]
    wrong = [
        (record["operation"], peer, note["failed"])
        for record in records
        for case in record["cases"]
        for peer, note in case["notes"].items()
        if "unexpected keyword argument" in note.get("failed", "")
    ]
    assert not wrong
    q = torch.zeros(1, 1, 16, 16)
    assert inspect.signature(_attention.flex(q, q, causal=False)).bind(q=q, k=q, v=q)
