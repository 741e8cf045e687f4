"""What pages say about compiled code is counted in code that is compiled for an H200, without one."""

from functools import cache
from pathlib import Path

import pytest
import triton
from packaging.version import Version
from triton import _utils

from tests import python

ROOT = Path(__file__).resolve().parents[2]
TRITON = Version(triton.__version__)
#: Some counts are those of one release, the one that pages quote.
exactly = pytest.mark.skipif(triton.__version__ != "3.7.1", reason="pages quote what Triton 3.7.1 does")


@cache
def counted() -> dict:
    return python.told(Path(__file__).with_name("compiled_without_gpu.py"), kept=True)


def said(path: str) -> str:
    return " ".join((ROOT / path).read_text("utf-8").replace("\n# ", " ").split())


#: What is counted in any release.
COUNTED = {
    "multiply-adds": {"bf16": {"HFMA2": 8}, "fp32": {"FFMA": 16}},
    "ieee": ["FFMA"],
    "tf32": ["HGMMA"],
    "buffers of three and four stages": {"80": [2, 3], "89": [2, 3], "90": [3, 4], "100": [3, 4], "120": [2, 3]},
    "a loop without a product is pipelined": {
        "None of the loop, 4 of the launch": False, "3 of the loop, 1 of the launch": True,
    },
    "keys compared with 0 in whole tiles": 8,  # of 64 keys, of which the threads load eight at a time
    "cards whose TMA unit gathers rows": [100, 120],
    "cards on which a masked lane is 0": [80, 89, 90, 100, 120],
}  # fmt: skip


@pytest.mark.parametrize("what", COUNTED)
def test_what_is_counted(what):
    assert counted()[what] == COUNTED[what]


#: What stands on pages for it. Numbers in braces are counted.
SAID = {
    "docs/guides/numerics.md": [
        "a chain of 31 additions", "65,536 elements the chain has 511",
        "**From 3.8 on** a thread adds in a tree as well, of 5 levels and of 9",
        "16 multiply-adds are 8 instructions in bfloat16 and 16 in float32", "the other 13 bits are cut off",
        '"ieee": a 32 x 32 tile, in each thread | 256 multiply-adds | 256 |',
        "| `tl.exp`, `tl.log`, `tl.erf` | the same | the same |",
    ],
    "docs/learn/random_numbers.py": [
        "In `tl.randint4x` they take about 75 instructions", "spends about 65 on each element",
    ],
    "docs/reference/triton-language.md": [
        "a polynomial, about 25 instructions, where `tl.exp2` is one",
        "Needs two instructions; the plain `/` takes eight",
        "on Hopper 3.7.1 ignores it with eight warps, and with four it may fail",
    ],
    "annotated_examples/common/exponential.py": ["It takes nine instructions, where `tl.exp` takes five"],
    "annotated_examples/fast/cumsum.py": ["up to three of them are on their way at once"],
    "annotated_examples/ladders/softmax/rung_6_fast.py": [
        "a thread has one load in flight", "Two loads are in flight then",
    ],
    "docs/guides/glossary.md": [
        "so `num_stages - 1` loads are in flight. Each has a buffer in shared memory, and on Hopper and the B200 the "
        "tile in use has one, too.",
    ],
    "docs/learn/autotuning.py": [
        "On Hopper and the B200 the tiles of all stages have to fit into shared memory (elsewhere of one stage fewer",
    ],
    "docs/faq.md": ["A loop without a product is pipelined only if it asks for that itself"],
    "docs/guides/cards.md": ["fail to compile, as with four warps on Hopper and tiles loaded through pointers"],
    "annotated_examples/recurrences/linear_recurrence.py": [
        "it takes 192 exchanges", "832 exchanges in each thread instead of 192", "(From Triton 3.9 on: 320.)",
    ],
    "annotated_examples/fast/linear_recurrence.py": [
        "six exchanges between the lanes of a warp, eleven multiplications or multiply-adds",
    ],
    "annotated_examples/fast/decode.py": ["always true, but the compiler doesn't know that"],
    "annotated_examples/gemlite/gemm.py": ["a step waits once, for all of", "between 2 and 3 not even that"],
    "annotated_examples/fast/mx_matmul.py": [
        "need {kilobytes:.0f} KB of shared memory",
        "of the 876 instructions for 256 weights in each thread, 256 multiply, 257 mask, and 162 move bits",
    ],
    "annotated_examples/fast/flash_attention.py": [
        "some 330 instructions for every warp, of which 230 are the softmax's",
    ],
    "annotated_examples/fast/moe_mlp.py": [
        "fetches rows that lie one after another, so it can't gather a tile of them. (Blackwell's can.)",
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", SAID)
def test_what_pages_say_of_it(path):
    kilobytes = counted()["shared memory of 256 rows"] / 1024
    assert not [words for words in SAID[path] if words.format(kilobytes=kilobytes) not in said(path)]


def test_a_sum_is_a_chain_or_a_tree_in_each_thread_and_a_tree_between_threads():
    # 32 and 512 elements a thread; 5 levels between the lanes of a warp. Between warps sums go through shared memory.
    in_thread = (5, 9) if TRITON >= Version("3.8") else (31, 511)
    assert counted()["additions one after another"] == {"4096": in_thread[0] + 5, "65536": in_thread[1] + 5}


def test_two_16_bit_values_share_a_register():
    registers = counted()["registers of a running maximum"]
    assert registers["float32"] - registers["bfloat16"] > 32


@exactly
def test_registers_are_those_of_the_page():
    wording = "it compiles to {bfloat16} registers in bfloat16 and to {float32} in float32 (Triton 3.7.1, H200)"
    assert wording.format(**counted()["registers of a running maximum"]) in said("docs/guides/numerics.md")


def test_what_random_words_cost():
    instructions = counted()["instructions"]
    assert 60 <= instructions["one_word_kernel"] <= 70 and 70 <= instructions["four_words_kernel"] <= 80


@exactly
def test_how_many_instructions_a_function_takes():
    found = {name: round(count) for name, count in counted()["of each element"].items()}
    assert found == {"log": 25, "exp": 5, "exp2": 1, "libdevice.exp": 9, "quotient": 8, "fast_dividef": 2}


def test_tf32_cuts_and_tf32x3_rounds():
    assert counted()["roundings to tf32"]["tf32"] == 0 < counted()["roundings to tf32"]["tf32x3"]


def test_the_loads_of_several_rounds_are_requested_together():
    assert counted()["loads in flight"]["route_backward"] >= 8


@exactly
def test_how_many_loads_are_in_flight():
    found = {"128 128256": 1, "128 50257": 1, "EL.128 128256": 2, "EL.128 50257": 2, "part of a running sum": 3}
    assert found.items() <= counted()["loads in flight"].items()


@exactly
def test_a_loop_is_split_for_the_b200_and_hardly_elsewhere():
    found = {"80, 4 warps": "ignored", "90, 4 warps": "fails", "90, 8 warps": "ignored", "100, 4 warps": "split"}
    assert counted()["warp_specialize"] == found | {"120, 4 warps": "fails"}


def test_what_a_fused_multiply_add_changes():
    fused, not_fused = counted()["fused"]["True"], counted()["fused"]["False"]
    assert (fused["x * y + z"], not_fused["x * y + z"]) == ({"fma": 1}, {"add": 1, "mul": 1})
    assert {name for name in fused if fused[name] != not_fused[name]} == {"x * y + z"}
    assert fused["tl.fma"] == {"fma": 1} and fused["tl.dot"] == {"fma": 256}


def test_the_release_in_which_fusion_warns_is_the_one_the_page_names():
    assert hasattr(_utils, "FP_FUSION_DEFAULT_WARNING") == (Version("3.9") <= TRITON < Version("3.10"))


def test_what_a_scan_exchanges():
    forward, backward = counted()["a scan"]["False"], counted()["a scan"]["True"]
    assert (forward["SHFL"], backward["SHFL"]) == (6 * 32, 832 if TRITON < Version("3.9") else 320)
    assert round((forward["FMUL"] + forward["FFMA"]) / 32) == 11


def test_when_a_is_loaded_changes_the_order_of_requests_only():
    groups, waits = zip(*counted()["when A is loaded"])
    assert waits == ([4, 0],) * 4, "once in a step, while four loads of the next are on their way, and behind the loop"
    assert [each.index(16) for each in groups] == [1, 0, 0, 0], "the words"
    assert groups[0] != groups[1] != groups[2] == groups[3]


@exactly
def test_what_decoding_four_bits_takes():
    loop = counted()["decoding four bits"]
    assert (sum(loop.values()) - 1, loop["HMUL2"], loop["LOP3"]) == (876, 256, 257), "beside the branch"
    assert 162 <= loop["IMAD"] + loop["SHF"] <= 182, "some twenty of these compute addresses"


@exactly
def test_how_much_of_attention_s_loop_is_the_softmax():
    loop = counted()["attention's loop"]
    softmax = sum(loop.get(name, 0) for name in ("FMUL", "FFMA", "FADD", "FMNMX", "MUFU", "F2FP", "SHFL"))
    assert round(sum(loop.values()), -1) == 330 and round(softmax, -1) == 230


def test_which_atomic_sums_of_16_bits_are_one_instruction():
    """Only of neighbours that one thread holds."""
    in_a_loop = [(dtype, card) for card, dtype, apart in counted()["atomic sums in a loop"] if apart == 1]
    assert in_a_loop == [("bf16", 80), ("bf16", 89)]
    assert len(counted()["atomic sums in a loop"]) == len(in_a_loop) + 10, "all that are no neighbours"
    assert "have an instruction from 9.0 on, for neighbours that one thread holds" in said("docs/guides/cards.md")
    assert "neighbours that one thread holds have an instruction" in said("docs/reference/triton-language.md")
