"""Results on disk: saved at once, never another device's, and stale when the kernel changes (and only then)."""

import json
import shutil

import pytest

from academy.book import layout
from academy.results import store
from tests.bench import fake
from tests.kernels.harness import ROOT

KERNEL = '''"""Docstring."""
from academy.runtime import device

import triton


@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    """What it does."""
    # why
    offsets = tl.program_id(0) * BLOCK
    tl.store(x_ptr + offsets, 1.0)


def EXAMPLE():
    return 0


if __name__ == "__main__":
    script.main()
'''


def hashed(source, folder, name="kernel.py"):
    path = folder / name
    path.write_text(source, "utf-8")
    return store.source_hash(path, folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    # why\n", "    # because\n    # it is so\n"),
        ('    """What it does."""\n', ""),
        ('"""Docstring."""', 'r"""Another."""'),
        ("offsets = tl.program_id(0) * BLOCK", "offsets = (tl.program_id(0)\n        * BLOCK)"),
        ("    return 0", "    print('more')\n    return 0"),
        ("from academy.runtime import", "from academy import"),
    ],
)
def test_what_does_not_change_a_speed_keeps_the_hash(old, new, tmp_path):
    assert old in KERNEL
    assert hashed(KERNEL, tmp_path) == hashed(KERNEL.replace(old, new), tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* BLOCK", "* BLOCK * 1"),
        ("1.0", "2.0"),
        ("1.0", "1"),
        ("x_ptr + offsets", "x_ptr - offsets"),
        ("BLOCK: tl.constexpr", "BLOCK"),
        ("@triton.jit", "@triton.jit(debug=True)"),
        ("tl.store(x_ptr + offsets, 1.0)", "tl.store(x_ptr + offsets, None)"),
    ],
)
def test_any_other_change_changes_it(old, new, tmp_path):
    assert old in KERNEL
    assert hashed(KERNEL, tmp_path) != hashed(KERNEL.replace(old, new), tmp_path)


def test_the_hash_is_the_same_on_every_python(tmp_path):
    """The measuring machine and the machine that builds the site may run different versions."""
    assert hashed(KERNEL, tmp_path) == "8ac345060c129907"


def test_imported_kernel_files_count(tmp_path):
    helper = tmp_path / "annotated_examples" / "gemlite" / "gemm.py"
    helper.parent.mkdir(parents=True)
    helper.write_text("def unpack(): return 1\n")
    source = (
        "from annotated_examples.gemlite.gemm import unpack\nfrom annotated_examples.gemlite import gemm\n" + KERNEL
    )
    before = hashed(source, tmp_path)
    helper.write_text("def unpack(): return 2\n")
    second = hashed(source, tmp_path)
    assert second != before
    helper.write_text("from annotated_examples.gemlite.bits import width\ndef unpack(): return 2\n")
    bits = helper.with_name("bits.py")
    bits.write_text("width = 4\n")
    third = hashed(source, tmp_path)
    bits.write_text("width = 8\n")
    assert len({second, third, hashed(source, tmp_path)}) == 3, "what an imported file imports counts too"


#: A file that others import from: `used` needs `indirect` and a table, and nobody asks for `apart`.
HELPERS = """
import math as numbers
TABLE = {}
TABLE["used"] = 1
def indirect(): return numbers.pi
def used():
    from annotated_examples.gemlite.bits import width
    return indirect() + TABLE["used"] + width
def apart(): return 1
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("gemm", "def apart(): return 1", "def apart(): return 2", False),
        ("gemm", "numbers.pi", "numbers.e", True),
        ("gemm", "import math as numbers", "import cmath as numbers", True),
        ("gemm", 'TABLE["used"] = 1', 'TABLE["used"] = 2', True),
        ("gemm", "return indirect() +", "return indirect() -", True),
        ("bits", "width = 4", "width = 8", True),
        ("bits", "height = 4", "height = 8", False),
    ],
)
@pytest.mark.parametrize("by", ["import used", "import used as other", "import apart, used"])
def test_of_an_imported_file_what_is_needed_counts(file, old, new, counts, by, tmp_path):
    folder = tmp_path / "annotated_examples" / "gemlite"
    folder.mkdir(parents=True)
    texts = {"gemm": HELPERS, "bits": "width = 4\nheight = 4\n"}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    source = f"from annotated_examples.gemlite.gemm {by}\n{KERNEL}\ndef launcher():\n    return {by.split()[-1]}()\n"
    before = hashed(source, tmp_path)
    assert old in texts[file]
    (folder / f"{file}.py").write_text(texts[file].replace(old, new))
    changed = hashed(source, tmp_path) != before
    assert changed == (counts or ("apart" in old and "apart" in by))


def record(results, name="double", **case):
    full = dict(variant="", shape=[4, 8], dtype="float32", sources={"lesson": "abc"}, **case)
    return {**results.load(name), "cases": [full]}


def test_a_folder_per_device_and_a_file_per_operation(tmp_path):
    results = store.Results("NVIDIA H200", folder=tmp_path)
    results.save(record(results))
    assert (tmp_path / "nvidia-h200" / "double.json").is_file()
    assert results.load("double")["cases"][0]["shape"] == [4, 8]
    assert results.load("other") == {"operation": "other", "device": "NVIDIA H200", "cases": []}
    assert [p.name for p in (tmp_path / "nvidia-h200").iterdir()] == ["double.json"], "a temporary file was left behind"


def test_one_file_for_all_operations(tmp_path):
    results = store.Results("NVIDIA H200", file=tmp_path / "all.json")
    results.save(record(results, "double"))
    results.save(record(results, "triple"))
    content = json.loads((tmp_path / "all.json").read_text())
    assert content["device"] == "NVIDIA H200" and list(content["operations"]) == ["double", "triple"]
    assert results.load("double")["cases"][0]["sources"] == {"lesson": "abc"}


@pytest.mark.parametrize("single_file", [True, False], ids=["file", "folder"])
def test_results_of_another_device_are_not_touched(single_file, tmp_path):
    def results(device):
        return (
            store.Results(device, file=tmp_path / "x.json") if single_file else store.Results(device, folder=tmp_path)
        )

    first = results("NVIDIA H200")
    first.save(record(first))
    if not single_file:  # somebody renamed the folder
        shutil.move(tmp_path / "nvidia-h200", tmp_path / "nvidia-a100")
    before = [p.read_bytes() for p in tmp_path.rglob("*.json")]
    with pytest.raises(store.OtherDevice, match="holds results of NVIDIA H200, this is NVIDIA A100"):
        results("NVIDIA A100").load("double")
    assert [p.read_bytes() for p in tmp_path.rglob("*.json")] == before


def test_cases_are_replaced_not_repeated_and_keep_an_order():
    content = {"cases": []}
    keys = [("none", (4,), "float32"), ("tanh", (4,), "float32")]
    for variant, ms in (("gone", 0), ("tanh", 1), ("tanh", 2), ("none", 3)):
        store.put_case(content, dict(variant=variant, shape=[4], dtype="float32", ms=ms), keys)
    assert [case["ms"] for case in content["cases"]] == [3, 2, 0], "what BENCH no longer has comes last"
    store.put_case(content, dict(variant="tanh", shape=[5], dtype="float32", ms=4))
    assert len(content["cases"]) == 4


def test_what_is_written_is_json_of_one_measurement_a_line():
    value = {"a": [1, 2], "b": {"c": "µ", "d": [{"x": "y" * 80}, {"x": "z" * 80}]}, "e": [], "f": None}
    text = store.dumps(value)
    assert json.loads(text) == value
    assert all(len(line) <= 110 for line in text.split("\n")) and "µ" in text


def test_stale_results_are_told_in_one_line(tmp_path):
    root = fake.repository(tmp_path)
    kernel = root / "annotated_examples" / "classics" / "double.py"
    results = store.Results("NVIDIA H200", folder=root / "benchmarks" / "results")
    content = record(results)
    content["cases"][0]["sources"] = {"lesson": store.source_hash(kernel, root)}
    results.save(content)
    assert store.stale_note(root) == ""
    kernel.write_text(kernel.read_text().replace("x * 2", "x + x"))
    line = store.stale_note(root)
    assert line == "no error, but measured before the kernel last changed: double (`academy bench` measures again)"
    kernel.write_text("def half_typed(")
    assert store.stale_note(root) == line
    kernel.unlink()
    assert store.stale_note(root) == line


def test_committed_results_are_whole():
    for path, content in store.committed(ROOT):
        assert path.parent.name == store.slug(content["device"]) and path.stem == content["operation"]
        assert layout.facts(ROOT, path.stem).is_file(), f"{path}: its benchmark is gone"
        for case in content["cases"]:
            assert {"variant", "shape", "dtype", "date", "versions", "sources", "copy_tb_s", "passes", "notes"} <= set(
                case
            )
            for entry in case["passes"].values():
                assert entry["limit_ms"] >= entry["copy_ms"] > 0
                for timed in entry["providers"].values():
                    assert timed["low_ms"] <= timed["ms"] <= timed["high_ms"] and timed["repeats"] >= 10
