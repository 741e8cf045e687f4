"""Every kernel of every public function compiles for cards of several generations, and fits them; no card is needed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from academy import compiler
from academy.book import layout
from academy.compiler.cards import CARDS
from academy.files import cache, dependencies
from academy.judge import public
from academy.traces import store
from tests import python

pytestmark = pytest.mark.skipif(not compiler.available(), reason="Triton's compiler isn't installed")
HERE = Path(__file__).parent
#: In `make test`: the generation that the kernels are measured on. All others nightly.
EVERY_TIME = 90
#: Too old for numbers of eight bits.
OLD = 80
EIGHT_BITS = ("fp8.", "mx.microscaling.")


def compiled(arch: int, *options: str) -> dict:
    """What every_kernel.py says, kept until a kernel or the compiler changes."""
    sources = [*sorted((store.ROOT / "annotated_examples").rglob("*.py")), *layout.operations(store.ROOT)]
    machinery = dependencies.made_by(
        "academy.compiler.worker", "academy.judge.public", "academy.runtime.launch", "package:triton", "package:torch"
    )
    key = [machinery, arch, *options, (HERE / "every_kernel.py").read_text(), *map(Path.read_text, sources)]
    script = HERE / "every_kernel.py"
    return cache.kept("every kernel", key, lambda: python.told(script, str(arch), *options, timeout=3000))


@pytest.fixture(scope="module")
def found() -> dict:
    return compiled(EVERY_TIME)


def assert_fits(arch: int, found: dict) -> None:
    assert found["failed"] == []
    problems = [f"{e['kernel']} {e['constants']}: {p['message']}" for e in found["found"] for p in e["problems"]]
    assert not problems, "\n".join(problems)
    assert all(entry["shared"] <= CARDS[arch].shared or entry["notes"] for entry in found["found"])


def test_every_kernel_fits(found):
    assert_fits(EVERY_TIME, found)


def test_what_a_card_lacks_is_refused_by_name(found):
    """Not by the compiler, in the middle of a launch."""
    lacking = {case.split("(")[0] for case in map(str, public.calls()) if case.startswith(EIGHT_BITS)}
    assert {name.split("(")[0] for name in compiled(OLD, *EIGHT_BITS)["refused"]} == lacking != set()
    assert found["refused"] == []


def test_every_public_function_launched_something(found):
    """Else the test above would say nothing about it. Two files launch only what others define."""
    launched = {Path(entry["file"]) for entry in found["found"]}
    files = {layout.module_name(store.ROOT, path).split(".")[1] for path in launched}
    modules = {case.module.split(".")[1] for case in public.calls()}
    assert modules - files <= {"huggingface", "linear_token_logprobs"}, modules - files


#: Kernels whose inner loop scales and adds (or subtracts) in one instruction: of attention every score (or code), in a
#: product of low-bit weights every partial sum. Everywhere else memory or tensor cores decide, or the kernel says
#: `tl.fma`.
COUNT_ON_FUSION = {
    "fast/flash_attention.py": {"attention_forward_kernel"},
    "fast/flash_attention_backward.py": {"attention_backward_queries_kernel", "attention_backward_keys_kernel"},
    "fast/decode.py": {"decode_split_kernel"},
    "fast/quantized_decode.py": {"quantized_split_kernel"},
    "fast/low_bit/descriptors.py": {"gemm_descriptor_kernel"},
    "fast/low_bit/many_rows.py": {"gemm_plane_order_kernel"},
}
#: The same below Triton. Those are launched on a card only, so the launch itself is read.
GLUON = {"flash_attention.py": "attention_kernel", "flash_attention_backward.py": "attention_backward_kernel"}


def test_what_counts_on_fused_multiply_adds_asks_for_them(found):
    """Triton 3.10 makes none unasked (tests/guides/test_compiled_claims.py counts them)."""
    for file, kernels in COUNT_ON_FUSION.items():
        of_file = [entry for entry in found["found"] if entry["file"].endswith(f"annotated_examples/{file}")]
        asked = {entry["kernel"]: entry["options"].get("enable_fp_fusion") for entry in of_file}
        assert {name: asked.get(name) for name in kernels} == dict.fromkeys(kernels, True), file
    for file, kernel in GLUON.items():
        text = (store.ROOT / "annotated_examples/gluon" / file).read_text("utf-8")
        (launch,) = re.findall(rf"^    {kernel}\[\(.*?^    \)", text, re.M | re.S)
        assert "enable_fp_fusion=True" in launch


@pytest.mark.nightly
def test_numbers_of_every_type_compile():
    """An integer of 1, which is a constant to Triton and has no `.to`; and a Python float as float64, as it arrives in
    `torch.compile`: then nothing of a block may become float64."""
    found = compiled(EVERY_TIME, "hostile")
    assert_fits(EVERY_TIME, found)
    assert not {(entry["file"], entry["kernel"]) for entry in found["found"] if entry.get("float64")}
    assert len({entry["kernel"] for entry in found["found"]}) > 100


@pytest.mark.nightly
@pytest.mark.parametrize("arch", CARDS)
def test_every_configuration_fits(arch):
    found = compiled(arch, "all")
    assert_fits(arch, found)
    refused = {name for name in found["refused"] if not name.startswith(EIGHT_BITS)}
    assert refused == set() and (arch < 89 or found["refused"] == [])


@pytest.mark.nightly
def test_the_lessons_compile_for_an_amd_card():
    command = [sys.executable, str(HERE / "lessons_for_amd.py")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["problems"] == [] and found["kernels"] > 40


def test_the_page_about_compatibility_says_what_is_compiled():
    page = (store.ROOT / "docs" / "compatibility.md").read_text()
    for card in CARDS.values():
        when = "in each test run" if card.arch == EVERY_TIME else "every night"
        ran = ", run and measured on an H200" if card.arch == 90 else ""
        capability = ".".join(map(str, card.capability))
        assert f"| {capability} | {card.names} | {card.shared:,} bytes | compiled {when}{ran} |\n" in page


def test_the_page_about_compatibility_names_what_uses_descriptors():
    page = (store.ROOT / "docs" / "compatibility.md").read_text()
    found = [path for path in layout.kernels(store.ROOT) if layout.group(store.ROOT, path) == "fast"]
    for path in found:
        text = path.read_text()
        signs = ("TensorDescriptor", "import Tiles", "Tiles, cdiv", "attention_tiles", "common.ragged")
        uses = any(sign in text for sign in signs)
        name = layout.module_name(store.ROOT, path).replace(".", "/")
        if "/low_bit" not in name:  # a package: what its parts use, its function decides
            assert (f"`{name}`" in page) == uses, path
    assert "`fast/low_bit`" in page


@pytest.mark.nightly
def test_academy_trace_has_nothing_to_say_about_the_projects_examples():
    for path in store.kernel_files():
        assert compiler.compile_file(path).problems == [], path
