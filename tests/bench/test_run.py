"""A case: checked before it is timed, on the same values for everyone, and nothing dropped in silence."""

import pytest
import torch

from academy.bench import run
from academy.book import layout
from academy.judge import public
from academy.results import figures
from tests.bench.fake import FakeGpu, operation


def measure(gpu=None, shape=(4, 8), **changes):
    op = operation(**changes)
    return run.measure_case(op, op.variants[0], shape, torch.float32, gpu or FakeGpu())


def test_a_record_has_everything():
    case = measure()
    assert (case["variant"], case["shape"], case["dtype"]) == ("", [4, 8], "float32")
    assert case["sources"] == {"lesson": "abc"}
    assert case["versions"]["torch"] == torch.__version__ and case["date"].count("-") == 2
    assert (case["copy_tb_s"], case["matrix_tflop_s"]) == (4.0, 700.0)
    assert list(case["passes"]) == ["forward", "backward"]
    forward = case["passes"]["forward"]
    assert forward["bytes"] == 2 * 4 * 32 and forward["operations"] == 32
    assert forward["copy_ms"] == forward["limit_ms"] == 2.56e-07
    assert list(forward["providers"]) == ["lesson", "eager"]
    assert forward["providers"]["lesson"] == dict(
        ms=2.0, low_ms=1.8, high_ms=2.2, repeats=3, peak_bytes=4096, wall_ms=4.0
    )
    assert case["notes"] == {}


def test_operations_can_be_the_limit():
    case = measure(
        cost=lambda shape, dtype: {"forward": dict(bytes_read=1, bytes_written=1, operations=7e11)}, passes=["forward"]
    )
    assert case["passes"]["forward"]["limit_ms"] == 1.0


def test_a_wrong_kernel_of_ours_has_no_time():
    gpu = FakeGpu()
    case = measure(gpu, ours=lambda x: x * 2.001)
    assert "out: RMS error" in case["notes"]["lesson"]["failed"]
    assert [list(entry["providers"]) for entry in case["passes"].values()] == [["eager"], ["eager"]]


def test_a_wrong_lesson_takes_the_fast_one_not_along():
    case = measure(ours={"lesson": lambda x: x * 2.001, "fast": lambda x: 2 * x})
    assert list(case["notes"]) == ["lesson"]
    assert list(case["passes"]["forward"]["providers"]) == ["fast", "eager"]


def test_a_wrong_gradient_is_found():
    class WrongGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dout):
            return dout * 1.999

    case = measure(ours=lambda x: WrongGradient.apply(x))
    assert case["notes"]["lesson"]["failed"].startswith("dx: RMS error")


def test_an_inaccurate_peer_is_timed_and_told():
    case = measure(peers={"rough": lambda: lambda x: x * 2.01})
    assert "rough" in case["passes"]["forward"]["providers"]
    assert "RMS error" in case["notes"]["rough"]["inaccurate"]


def test_a_missing_peer_is_named():
    def factory():
        import a_library_that_is_not_there  # noqa: F401

    case = measure(peers={"other": factory})
    assert case["notes"]["other"]["missing"] == "ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
    assert "other" not in case["passes"]["forward"]["providers"]


def test_a_failing_peer_takes_nobody_along():
    def fails(x):
        raise RuntimeError("out of\n   luck")

    case = measure(peers={"unlucky": lambda: fails, "fine": lambda: lambda x: 2 * x})
    assert case["notes"]["unlucky"]["failed"] == "RuntimeError: out of luck"
    assert list(case["passes"]["backward"]["providers"]) == ["lesson", "eager", "fine"]


def test_everybody_gets_the_same_values_even_after_a_peer_that_overwrites_them():
    seen = []

    def overwrites(x):
        seen.append(x.detach().clone())
        out = x * 2
        x.data.zero_()
        return out

    def looks(x):
        seen.append(x.detach().clone())
        return x * 2

    case = measure(peers={"overwrites": lambda: overwrites, "looks": lambda: looks}, shape=(4, 8))
    assert case["notes"]["overwrites"]["writes_inputs"] == ["x"]
    assert "looks" not in case["notes"]
    assert len(seen) > 10 and all(torch.equal(values, seen[0]) for values in seen), "an input was not restored"


def test_forward_and_backward_goes_through_backward():
    leaves = []

    def ours(x):
        leaves.append(x)
        assert x.grad is None, "gradients of earlier repeats must not add up"
        return x * 2

    case = measure(ours=ours, passes=["forward+backward"])
    assert list(case["passes"]) == ["forward+backward"]
    assert leaves[0].grad is not None


def test_without_gradients_nothing_is_recorded_for_autograd():
    def ours(x):
        assert not torch.is_grad_enabled() and not x.requires_grad
        return x * 2

    assert measure(ours=ours, passes=["forward"], differentiable=[])["notes"] == {}


def test_a_scalar_loss_needs_no_upstream_gradient():
    case = measure(ours=lambda x: (x * 2).sum(), eager=lambda x: (x + x).sum(), passes=["backward"])
    assert case["notes"] == {} and "lesson" in case["passes"]["backward"]["providers"]


def test_the_reference_gets_float64():
    asked = []

    def reference(x):
        asked.append(x.dtype)
        return x + x

    measure(reference=reference)
    assert asked == [torch.float64]


def test_every_public_function_has_its_host_time():
    """In the file of the guide "What a call costs", forward and, if it is differentiable, with the backward pass. A new
    operation, or a new fast version, may wait for a GPU, until it has results of its own."""
    measured = {row["function"]: row for row in figures.first(layout.ROOT, "experiments/host_time")["functions"]}
    wanted = {str(each): each for each in public.functions() if not each.module.startswith("distributed.")}
    assert measured.keys() <= wanted.keys(), f"gone: {measured.keys() - wanted.keys()}"
    results = layout.ROOT / layout.RESULTS / figures.PROSE_DEVICE

    def has_results(name):
        group, operation, _ = name.split(".")
        file = results / f"{operation}.json"
        return file.is_file() and (group != "fast" or '"fast": {' in file.read_text("utf-8"))

    missing = [each for each in wanted if each not in measured and has_results(each)]
    assert not missing, f"run python benchmarks/host_time.py on a GPU, which measures {', '.join(missing)}"
    for name, function in wanted.items():
        if name not in measured:
            continue
        for which in ("forward", "forward+backward")[: 1 + function.differentiable]:
            assert measured[name][which].keys() == {"ours", "reference"}, name
            assert all(us > 0 for us in measured[name][which].values())


def test_host_time_of_all_but_torch_compile():
    op = operation(peers={"other": lambda: lambda x: 2 * x}, compile=True)
    host = run.measure_host(op, op.variants[0], FakeGpu())
    assert host["shape"] == [3, 5] and list(host["providers"]) == ["lesson", "eager", "other"]
    assert host["providers"]["lesson"] == {"forward_us": 12.5, "forward+backward_us": 12.5}


@pytest.mark.parametrize("columns", [128, 1000])
def test_a_sample_of_a_large_tensor_has_every_column(columns, monkeypatch):
    monkeypatch.setattr(run, "MOST_CHECKED", 1 << 12)
    values = torch.arange(64 * columns).view(64, columns)
    sample = run.sampled({"out": values})["out"]
    assert 1 << 10 <= sample.numel() < values.numel()
    assert len(set((sample % columns).tolist())) == columns


def test_every_one_of_several_results_is_checked_and_differentiated():
    both = lambda x: (x * 2, x * 3)  # noqa: E731
    changes = dict(eager=both, passes=["forward", "backward", "forward+backward"])
    case = measure(ours=both, peers={"rough": lambda: lambda x: (x * 2, x * 3.01)}, **changes)
    assert all(list(entry["providers"]) == ["lesson", "eager", "rough"] for entry in case["passes"].values())
    assert "lesson" not in case["notes"] and case["notes"]["rough"]["inaccurate"].startswith("out1: RMS error")
    one_path = lambda x: (x * 2, x * 3 + 0 * x if not x.requires_grad else x.detach() * 3 + 0 * x)  # noqa: E731
    assert measure(ours=one_path, **changes)["notes"]["lesson"]["failed"].startswith("dx: RMS error")


def test_a_provider_that_overwrites_the_upstream_gradient_does_so_to_its_own():
    class Overwrites(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dout):
            return dout.mul_(2)

    case = measure(peers={"rude": lambda: lambda x: Overwrites.apply(x), "polite": lambda: lambda x: x * 2})
    assert case["notes"] == {}
