"""What had an address at commit 4d3a2404 is found there today, or leads to where it is."""

from academy.book.layout import ROOT
from academy.site import addresses
from academy.site.library import Library

#: Folder of the site: its pages.
PAGES = """
.: compatibility contributing credits differences-from-pytorch exercises faq getting-started index
benchmarks: all_gather_matmul all_reduce causal_attention causal_conv1d cross_entropy cumsum decode dropout
  flash_attention gated_delta_rule gated_delta_rule_step geglu gemm gemm_splitK gluon_flash_attention gluon_matmul
  grouped_matmul index l2_normalize layernorm linear linear_attention linear_cross_entropy linear_recurrence matmul
  matmul_autotuned matmul_blocked matmul_grouped microscaling moe_mlp mx_matmul quantize rmsnorm rope router sample
  scaled_matmul softmax swiglu tile_copy vector_add vocab_parallel_cross_entropy vocab_parallel_entropy
derivations: all_reduce attention causal_conv1d cross_entropy cumsum dropout float8_linear fp8 gated_delta_rule geglu
  index l2_normalize layernorm linear_attention linear_cross_entropy linear_recurrence matmul microscaling moe moe_mlp
  quantization rmsnorm rope sample softmax swiglu tile_copy vector_add vocab_parallel_cross_entropy
exercises/attention: bottom_right grouped_heads merge_halves stale_tail tiles_computed with_lse
exercises/below: arrive_count asked_too_early enough_buffers expected_bytes fence_place first_wait given_back
  held_sums in_flight missing_wait most_buffers ring_phase store_wait turns which_layout which_phase
exercises/choosing: first_to_arrive infinite_noise order_of_bits shortest_list tie_at_k which_digit
exercises/distributed: global_mean label_here merge_ranks ring_bytes ring_part sum_of_ranks
exercises/eight_bits: lost_nan one_code one_read recovers rounded_logarithm rounded_twice scale_of_a_step
  scales_of_columns scales_past_the_end sets_of_codes stops_growing
exercises/experts: bias_in_the_weights clamped_gate find_my_tile full_experts loss_of_what_is_left past_the_last_row
  selected_softmax stable_rank weight_without_result weights_first whose_row
exercises/fast: add_norm limit persistent three_trips waves words_once
exercises/first_kernel: add_three bytes_saved dropped_tail reverse scale_and_add unmasked_store unwritten_output
  waves_needed
exercises/four_bits: bytes_of_weights exponent_of_a_group saturated two_of_a_byte which_neighbours
exercises/low_bit: group_of nibble signed split_k unpack
exercises/matmul: add_into best_group bias_relu block_of_program diagonal dot_steps fits gradients hard_swish
  ignored_strides k_loop k_mask last_group moving_pointers offset safe_accumulate smallest_square_tile turn_tile
exercises/model: amdahl first_steps logits momentum_step order_of_work step_time two_draws
exercises/operations: column_sums_of_squares keep_words kept_spread overwritten_upstream race rmsnorm_offset
  round_randomly shares swiglu_bytes tiles_of zero_stride_upstream
exercises/own_kernel: overflowing_squares sharp_test stays_inside sum_normalise sum_normalise_gradient
exercises/own_operation: bits_kept kept log_softmax soft_sign telling two_inputs
exercises/recurrences: cache_or_state exclusive gates_one_later join_two look_back normalised overwrite padding_gate
  rounds_of_a_scan segmented short_prompt shortest_chunk squares state_instead_of_keys substitution total_minus_prefix
  two_factors
exercises/rows: half_accumulator logsumexp mean_in_the_padding merge nan_minus_infinity one_trip overflowing_softmax
  softmax_gradient wrapped_offset wrong_other
guides: autotuning best-practice cards debugging from-pytorch glossary how-a-gpu-runs-triton huggingface
  keep-the-card-busy low-precision many-cards measuring numerics profiling should-you-write-a-kernel
  test-your-own-kernel what-a-call-costs what-is-verified what-the-compiler-undoes writing-derivations
kernels: index
kernels/attention: causal_attention decode flash_attention
kernels/capstone: gpt options parallel
kernels/choosing: sample
kernels/classics: cross_entropy dropout geglu layernorm linear_cross_entropy matmul rmsnorm rope swiglu
kernels/distributed: all_gather_matmul all_reduce vocab_parallel_cross_entropy vocab_parallel_entropy
kernels/fast: causal_conv1d cross_entropy cumsum decode flash_attention flash_attention_backward gated_delta_rule
  grouped_matmul layernorm linear_attention linear_cross_entropy linear_recurrence low_bit matmul moe_mlp mx_matmul
  rmsnorm scaled_matmul softmax
kernels/fast/low_bit: descriptors many_rows planes
kernels/fp8: linear quantize scaled_matmul
kernels/gemlite: gemm gemm_splitK
kernels/gluon: flash_attention flash_attention_backward matmul scaled_matmul tile_copy
kernels/moe: grouped_matmul moe_mlp router
kernels/mx: microscaling mx_matmul
kernels/recurrences: causal_conv1d cumsum gated_delta_rule gated_delta_rule_step l2_normalize linear_attention
  linear_recurrence
kernels/tutorials: matmul_autotuned matmul_blocked matmul_grouped softmax vector_add
learn: attention autotuning first_kernel from_profile index l2_reuse overlap own_operation random_numbers reductions
  softmax tiles_and_pointers without_a_cache your_own_kernel
reference: academy annotated_examples index triton-language
"""


def address(uri: str) -> str:
    """`kernels/index.md` -> `kernels/`, `faq.md` -> `faq/`."""
    place = uri.rsplit(".", 1)[0].removeprefix("./")
    return f"{place}/".removesuffix("index/")


OLD = {
    address(f"{folder}/{name}.md")
    for folder, _, names in (line.partition(": ") for line in PAGES.replace("\n  ", " ").strip().split("\n"))
    for name in names.split()
}


def test_every_old_address_works():
    pages = {address(page.uri) for page in Library.read(ROOT).pages.values()}
    docs = ROOT / "docs"
    pages |= {address(path.relative_to(docs).as_posix()) for path in [*docs.rglob("*.md"), *docs.glob("learn/*.py")]}
    leading = {place.removesuffix("index.html") for place in addresses.redirects(pages)}
    assert len(OLD) > 340 and len(leading & OLD) > 30
    assert not OLD - pages - leading


def test_a_redirect_leads_to_the_page_wherever_the_site_is():
    found = addresses.redirects(["kernels/sampling/sample/", "kernels/index/"])
    assert list(found) == ["kernels/choosing/sample/index.html"]
    (text,) = found.values()
    assert 'href="../../../kernels/sampling/sample/"' in text and "location.hash" in text
