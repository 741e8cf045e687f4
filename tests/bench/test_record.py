"""One record: what the run asks for, what it writes, and that the page says nothing else."""

import json
import math
import re
import types

import pytest

from academy.bench import run
from academy.book.layout import ROOT
from academy.results import experiments, figures, record
from benchmarks import record as script
from tests.bench import fake
from tests.bench.fake import FakeGpu

SMALL = script.Row("double", (4, 8))


@pytest.fixture
def double(monkeypatch):
    """The small operation of these tests, whose fast version alone is ours, with a peer that isn't there."""

    def missing():
        raise ImportError("no module named missing")

    found = fake.operation({"lesson": fake.double, "fast": fake.double}, peers={"quack": missing})
    monkeypatch.setattr(script, "operation_of", lambda name: found)
    return found


@pytest.fixture(scope="module")
def committed() -> dict:
    return figures.first(ROOT, "experiments/record")


def test_each_row_is_a_case_of_its_operation():
    for row in script.ROWS:
        variant = script.variant_of(row)
        assert row.shape in {tuple(shape) for shape in variant.shapes}, row
        assert len(variant.ours) == 1 and {*row.without} <= {*variant.providers()}, row
    assert len({*script.ROWS}) == len(script.ROWS)


def test_a_row_has_the_form_of_a_measured_case(double):
    """What the pages read of a case, but for its date and versions, which the whole record has; and one time more."""
    variant = script.variant_of(SMALL)
    case = run.measure_case(double, variant, SMALL.shape, variant.dtypes[0], FakeGpu())
    found = script.measured(SMALL, script.checked(SMALL), FakeGpu())
    assert {*case} - {*found} == {"date", "versions", "copy_tb_s", "matrix_tflop_s"}
    assert found["notes"] == case["notes"] == {"quack": {"missing": "ImportError: no module named missing"}}
    for which, entry in case["passes"].items():
        for name, times in entry["providers"].items():
            more = found["passes"][which]["providers"][name].items() - times.items()
            assert more <= {("both_wall_ms", 4.0)}
    assert "1.00x" in script.one_line(found)
    assert [line.waited() for line in map(record.Line, figures.passes([found]))] == ["1.00", "1.00"]


def test_the_run_writes_after_each_row_and_names_what_it_had_no_time_for(double, monkeypatch, tmp_path):
    monkeypatch.setattr(script.device, "INTERPRET", False)
    monkeypatch.setattr(script.device, "describe", lambda: "a fake")
    monkeypatch.setattr(script.experiment, "machine", lambda: "NVIDIA Fake 1")
    monkeypatch.setattr(script, "Gpu", lambda **_: FakeGpu())
    monkeypatch.setattr(script, "prepared", lambda rows, processes, seconds: {SMALL: script.checked(SMALL)})
    late = script.Row("double", (3, 5))
    monkeypatch.setattr(script, "ROWS", [late, SMALL])
    monkeypatch.setattr(script, "warm_up", lambda seconds: None)
    clock = iter((0.0, 1.0, 1.5, 99.0, 99.5, 0.0, 1.0, 1.5, 2.0))
    monkeypatch.setattr(script, "time", types.SimpleNamespace(monotonic=lambda: next(clock)))
    seen = []
    write = script.experiment.write_experiment
    monkeypatch.setattr(script.experiment, "write_experiment", lambda *a: (seen.append(len(a[2]["rows"])), write(*a)))

    def ran(*arguments):
        monkeypatch.setattr("sys.argv", ["record.py", "--seconds", "50", "--results", str(tmp_path), *arguments])
        script.main()
        return json.loads((tmp_path / "nvidia-fake-1/experiments/record.json").read_text("utf-8"))

    content = ran()
    assert [row["shape"] for row in content["rows"]] == [[4, 8]] and content["left"] == [str(late)]
    assert seen == [1, 1] and "why" in content["rivals"]["gemlite"] and content["rivals"]["PyTorch"]["version"]
    assert any("had no time for double 3x5" in line for line in record.markdown(content))
    content = ran("--continue")
    assert [row["shape"] for row in content["rows"]] == [[4, 8], [3, 5]] and not content["left"]
    assert [each["rows"] for each in content["runs"]] == [1, 1]
    assert any("stopped and was continued" in line for line in record.markdown(content))


def test_a_part_of_a_search_is_compiled(double, monkeypatch):
    """A row with three parts: the second process tries the second and the fifth of five configurations."""
    from triton.runtime.autotuner import Autotuner

    tried = []
    monkeypatch.setattr(Autotuner, "prune_configs", lambda self, arguments: [1, 2, 3, 4, 5])
    monkeypatch.setattr(run.Call, "results", lambda self, upstream: tried.append(Autotuner.prune_configs(None, {})))
    script.compile_part(script.Row("double", (4, 8), parts=3), 1)
    assert tried == [[2, 5], [2, 5]]  # ours, and PyTorch
    assert Autotuner.prune_configs(None, {}) == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- the page
def test_each_number_of_the_table_is_in_the_file(committed):
    """Calculated here from the raw file; the worst ratio comes first, and each that is behind says so."""
    wanted = []
    for row in committed["rows"]:
        for which, entry in row["passes"].items():
            times = {name: found["ms"] for name, found in entry["providers"].items()}
            ours = times.pop("fast", None) or times.pop("lesson")
            wanted.append((min(times.values()) / ours if times else math.inf, ours, which, row["operation"]))
    shown = [line for line in experiments.markdown("record", ROOT) if line.startswith("| [")]
    assert len(shown) == len(wanted)
    for line, (ratio, ours, _, name) in zip(shown, sorted(wanted)):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert f"({name}.md)" in cells[0] and cells[2].replace("\u00a0", " ") == figures.milliseconds(ours)
        assert re.sub("<[^>]+>", "", cells[1]) == ("–" if math.isinf(ratio) else f"{ratio:.2f}")
        assert ("behind" in cells[1]) == (ratio < 0.99)


def test_every_rival_is_named_with_its_version_or_why_it_did_not_run(committed):
    page = "\n".join(experiments.markdown("record", ROOT))
    assert {*committed["rivals"]} == {*script.RIVALS}
    for name, found in committed["rivals"].items():
        assert re.search(rf"^\| {re.escape(name)} \| .+ \| (\d+|none.+) \|$", page, re.M), name
        assert found["version"] or found.get("why"), name


def test_the_pages_of_the_same_day_agree_with_it(committed):
    """Where kernel and libraries are the same. Two runs of one kernel differ, short ones the most."""
    compared = 0
    for row in committed["rows"]:
        for case in (figures.first(ROOT, row["operation"]) or {"cases": []})["cases"]:
            same = all(case[key] == row[key] for key in ("variant", "shape", "dtype", "sources"))
            if (
                not same
                or case["date"] != committed["date"]
                or case["versions"]["triton"] != committed["versions"]["triton"]
            ):
                continue
            for which, entry in row["passes"].items():
                for name in entry["providers"].keys() & case["passes"].get(which, entry)["providers"].keys():
                    here, there = (each["providers"][name]["ms"] for each in (entry, case["passes"][which]))
                    assert here == pytest.approx(there, rel=0.1), (row["operation"], which, name)
                    compared += 1
    assert compared
