"""What pages say about compiled code is counted in code that is compiled for an H200, without one."""

from functools import cache
from pathlib import Path

from tests import python

ROOT = Path(__file__).resolve().parents[2]


@cache
def counted() -> dict:
    return python.told(Path(__file__).with_name("compiled_without_gpu.py"), kept=True)


def said(path: str) -> str:
    return " ".join((ROOT / path).read_text("utf-8").replace("\n# ", " ").split())


def test_a_sum_is_a_chain_or_a_tree_in_each_thread_and_a_tree_between_threads():
    import triton
    from packaging.version import Version

    chains = counted()["additions one after another"]
    # 32 and 512 elements a thread; 5 levels between the lanes of a warp. Between warps sums go through shared memory.
    in_thread = (5, 9) if Version(triton.__version__) >= Version("3.8") else (31, 511)
    assert chains == {"4096": in_thread[0] + 5, "65536": in_thread[1] + 5}
    text = said("docs/guides/numerics.md")
    assert "a chain of 31 additions" in text and "65,536 elements the chain has 511" in text
    assert "**From 3.8 on** a thread adds in a tree as well, of 5 levels and of 9" in text


def test_two_16_bit_values_share_an_instruction():
    assert counted()["multiply-adds"] == {"bf16": {"HFMA2": 8}, "fp32": {"FFMA": 16}}
    assert "16 multiply-adds are 8 instructions in bfloat16 and 16 in float32" in said("docs/guides/numerics.md")


def test_two_16_bit_values_share_a_register():
    registers = counted()["registers of a running maximum"]
    assert registers["float32"] - registers["bfloat16"] > 32
    wording = "it compiles to {bfloat16} registers in bfloat16 and to {float32} in float32 (Triton 3.7.1, H200)"
    import triton

    if triton.__version__ == "3.7.1":
        assert wording.format(**registers) in said("docs/guides/numerics.md")


def test_what_random_words_cost():
    instructions = counted()["instructions"]
    assert 60 <= instructions["one_word_kernel"] <= 70 and 70 <= instructions["four_words_kernel"] <= 80
    text = said("docs/learn/random_numbers.py")
    assert "In `tl.randint4x` they take about 75 instructions" in text and "spends about 65 on each element" in text


def test_a_float32_product_uses_tensor_cores_only_as_tf32():
    assert counted()["ieee"] == ["FFMA"] and counted()["tf32"] == ["HGMMA"]


def test_how_many_instructions_a_function_takes():
    import triton

    found = {name: round(count) for name, count in counted()["of each element"].items()}
    if triton.__version__ == "3.7.1":
        assert found == {"log": 25, "exp": 5, "exp2": 1, "libdevice.exp": 9, "quotient": 8, "fast_dividef": 2}
    index = said("docs/reference/triton-language.md")
    assert "a polynomial, about 25 instructions, where `tl.exp2` is one" in index
    assert "Needs two instructions; the plain `/` takes eight" in index
    assert "It takes nine instructions, where `tl.exp` takes five" in said("annotated_examples/common/exponential.py")


def test_tf32_cuts_and_tf32x3_rounds():
    assert counted()["roundings to tf32"]["tf32"] == 0 < counted()["roundings to tf32"]["tf32x3"]
    assert "the other 13 bits are cut off" in said("docs/guides/numerics.md")


def test_how_many_loads_are_in_flight():
    import triton

    found = counted()["loads in flight"]
    assert found["route_backward"] >= 8, "the loads of several rounds are requested together"
    if triton.__version__ == "3.7.1":
        assert found == found | {"128 128256": 1, "128 50257": 1, "EL.128 128256": 2, "EL.128 50257": 2}
        assert found["part of a running sum"] == 3
    assert "up to three of them are on their way at once" in said("annotated_examples/fast/cumsum.py")
    text = said("annotated_examples/ladders/softmax/rung_6_fast.py")
    assert "a thread has one load in flight" in text and "Two loads are in flight then" in text


def test_a_loop_has_a_buffer_for_each_stage_on_hopper_and_the_b200_and_one_less_elsewhere():
    found = counted()["buffers of three and four stages"]
    assert found == {"80": [2, 3], "89": [2, 3], "90": [3, 4], "100": [3, 4], "120": [2, 3]}
    assert (
        "so `num_stages - 1` loads are in flight. Each has a buffer in shared memory, and on Hopper and the "
        "B200 the tile in use has one, too." in said("docs/guides/glossary.md")
    )
    assert (
        "On Hopper and the B200 the tiles of all stages have to fit into shared memory (elsewhere of one stage fewer"
        in said("docs/learn/autotuning.py")
    )


def test_a_loop_without_a_product_is_pipelined_only_if_it_asks():
    found = counted()["a loop without a product is pipelined"]
    assert found == {"None of the loop, 4 of the launch": False, "3 of the loop, 1 of the launch": True}
    assert "A loop without a product is pipelined only if it asks for that itself" in said("docs/faq.md")


def test_a_loop_is_split_for_the_b200_and_hardly_elsewhere():
    import triton

    if triton.__version__ == "3.7.1":
        found = {"80, 4 warps": "ignored", "90, 4 warps": "fails", "90, 8 warps": "ignored", "100, 4 warps": "split"}
        assert counted()["warp_specialize"] == found | {"120, 4 warps": "fails"}
    text = said("docs/guides/cards.md")
    assert "fail to compile, as with four warps on Hopper and tiles loaded through pointers" in text
    assert "on Hopper 3.7.1 ignores it with eight warps, and with four it may fail" in said(
        "docs/reference/triton-language.md"
    )


def test_what_a_fused_multiply_add_changes():
    fused, not_fused = counted()["fused"]["True"], counted()["fused"]["False"]
    assert (fused["x * y + z"], not_fused["x * y + z"]) == ({"fma": 1}, {"add": 1, "mul": 1})
    assert {name for name in fused if fused[name] != not_fused[name]} == {"x * y + z"}
    assert fused["tl.fma"] == {"fma": 1} and fused["tl.dot"] == {"fma": 256}
    text = said("docs/guides/numerics.md")
    assert '"ieee": a 32 x 32 tile, in each thread | 256 multiply-adds | 256 |' in text
    assert "| `tl.exp`, `tl.log`, `tl.erf` | the same | the same |" in text


def test_the_release_in_which_fusion_warns_is_the_one_the_page_names():
    import triton
    from packaging.version import Version
    from triton import _utils

    warns = hasattr(_utils, "FP_FUSION_DEFAULT_WARNING")
    assert warns == (Version("3.9") <= Version(triton.__version__) < Version("3.10"))


def test_what_a_scan_exchanges():
    import triton

    found = counted()["a scan"]
    assert found["True"]["SHFL"] > 3 * found["False"]["SHFL"] and found["False"]["SHFL"] >= 6 * 32
    if triton.__version__ == "3.7.1":
        per_pair = {name: count / 32 for name, count in found["False"].items()}
        assert per_pair["SHFL"] == 6 and round(per_pair["FMUL"] + per_pair["FFMA"]) == 11
        assert found["False"]["SHFL"] == 192 and found["True"]["SHFL"] == 832
    lesson = said("annotated_examples/recurrences/linear_recurrence.py")
    assert "it takes 192 exchanges" in lesson and "832 exchanges in each thread instead of 192" in lesson
    fast = said("annotated_examples/fast/linear_recurrence.py")
    assert "six exchanges between the lanes of a warp, eleven multiplications or multiply-adds" in fast


def test_the_compiler_does_not_know_that_keys_of_whole_tiles_are_none_below_0():
    assert counted()["keys compared with 0 in whole tiles"] == 8, "64 keys, of which the threads load eight at a time"
    assert "always true, but the compiler doesn't know that" in said("annotated_examples/fast/decode.py")


def test_when_a_is_loaded_changes_the_order_of_requests_only():
    groups, waits = zip(*counted()["when A is loaded"])
    assert waits == ([4, 0],) * 4, "once in a step, while four loads of the next are on their way, and behind the loop"
    assert [each.index(16) for each in groups] == [1, 0, 0, 0], "the words"
    assert groups[0] != groups[1] != groups[2] == groups[3]
    text = said("annotated_examples/gemlite/gemm.py")
    assert "a step waits once, for all of" in text and "between 2 and 3 not even that" in text


def test_a_large_tile_of_four_bits_needs_nearly_all_shared_memory():
    wording = "need {:.0f} KB of shared memory"
    assert wording.format(counted()["shared memory of 256 rows"] / 1024) in said("annotated_examples/fast/mx_matmul.py")


def test_what_decoding_four_bits_takes():
    import triton

    loop = counted()["decoding four bits"]
    if triton.__version__ == "3.7.1":
        branch = 1
        assert (sum(loop.values()) - branch, loop["HMUL2"], loop["LOP3"]) == (876, 256, 257)
        assert 162 <= loop["IMAD"] + loop["SHF"] <= 182, "some twenty of these compute addresses"
    text = said("annotated_examples/fast/mx_matmul.py")
    assert "of the 876 instructions for 256 weights in each thread, 256 multiply, 257 mask, and 162 move bits" in text


def test_how_much_of_attention_s_loop_is_the_softmax():
    import triton

    loop = counted()["attention's loop"]
    softmax = sum(loop.get(name, 0) for name in ("FMUL", "FFMA", "FADD", "FMNMX", "MUFU", "F2FP", "SHFL"))
    if triton.__version__ == "3.7.1":
        assert round(sum(loop.values()), -1) == 330 and round(softmax, -1) == 230
    text = said("annotated_examples/fast/flash_attention.py")
    assert "some 330 instructions for every warp, of which 230 are the softmax's" in text


def test_which_atomic_sums_of_16_bits_are_one_instruction():
    """Only of neighbours that one thread holds."""
    in_a_loop = [(dtype, card) for card, dtype, apart in counted()["atomic sums in a loop"] if apart == 1]
    assert in_a_loop == [("bf16", 80), ("bf16", 89)]
    assert len(counted()["atomic sums in a loop"]) == len(in_a_loop) + 10, "all that are no neighbours"
    assert "have an instruction from 9.0 on, for neighbours that one thread holds" in said("docs/guides/cards.md")
    assert "neighbours that one thread holds have an instruction" in said("docs/reference/triton-language.md")


def test_which_cards_gather_rows_by_tma():
    assert counted()["cards whose TMA unit gathers rows"] == [100, 120]
    text = said("annotated_examples/fast/moe_mlp.py")
    assert "fetches rows that lie one after another, so it can't gather a tile of them. (Blackwell's can.)" in text
