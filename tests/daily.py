"""What `make test` takes of the tests. The rest has the mark `nightly`: the nightly workflow runs it, and
`make check OP=…` runs what is about that operation, before it is pushed.

1. A test in `WHOLE` keeps all of its cases: what decides whether a kernel, an equation or a page is right.
2. A test in `AT_NIGHT` takes long, and a quicker one, which is named there, looks at the same part every time.
3. Of mutants, each a kernel with a mistake, every list keeps its first. (tests/kernels/test_harness.py sees to it that
   the text of the others is still found.)
4. A walk over the public functions keeps the first call of the main function of each lesson, the first in its file.
5. Of three cases and more a test in `A_THIRD` keeps a third, spread over all parameters; but all of the checks that are
   named in tests/kernels, since each of them notices a mistake of its own.

Where kernels run on a card, and with the variable `EVERY_CASE` (`make test-as-another-cpu` sets it), only the third
holds. Names are relative to tests/: a folder, a file or a test, or how it begins.
"""

from __future__ import annotations

import inspect
import os
import zlib
from collections import defaultdict

import pytest

from academy.runtime import device
from academy.judge import public
from academy.judge.mutants import Mutant

ONLY_MUTANTS = not device.INTERPRET or bool(os.environ.get("EVERY_CASE"))
WHOLE = (
    "formulas/test_pages.py",  # derivations, and each kernel beside its formula: twice PyTorch's error at most
    "formulas/test_without_rounding.py::test_the_same_function",  # the same, exactly
)
A_THIRD = ("bench/", "capstone/", "command/", "distributed/", "exact/", "exercises/", "formulas/", "gluon/")
A_THIRD += ("integrations/", "judge/", "kernels/", "traces/")
A_THIRD += ("guides/test_disagreements", "guides/test_for_assistants", "guides/test_snippets")
A_THIRD += ("site/test_accessible", "site/test_explorables", "site/test_finding", "book/test_splitter", "runtime/")
A_THIRD += ("compiler/test_compile.py::test_wrong_use", "learn/test_chapters.py::test_a_chapter_runs")
A_THIRD += ("site/test_generated_pages.py::test_a_downloaded_kernel",)
#: Test -> the quicker one.
AT_NIGHT = {
    "bench/test_batch_invariance.py::test_the_form_that_is_called_invariant_is": "judge/test_batch.py",
    "bench/test_command.py::test_without_a_gpu_it_says_so": "test_list_and_unknown_operation",
    "bench/test_record.py::test_the_run_writes_after_each_row": "the other tests of that file",
    "book/test_splitter.py::test_every_line_of_foreign_code_is_shown_once": "test_every_line_of_a_kernel_is_shown_once",
    "capstone/test_generate.py::test_fewer_bits_are_further_off_along_the_same_text": "test_logits_are_those_of_codes",
    "capstone/test_generate.py::test_the_script": "test_the_likeliest_token",
    "capstone/test_options.py::test_losses_and_gradients_with_a_state": "test_it_learns",
    "capstone/test_options.py::test_losses_and_gradients_with_experts": "test_it_learns",
    "command/test_command_line.py::test_a_file_of_ones_own_may_lie_in_the_clone": "the other tests of that file",
    "command/test_command_line.py::test_a_signal_in_the_middle": "test_stopping_a_command_stops_its_processes",
    "command/test_trouble.py::test_nothing_is_remembered": "site/test_cache.py",
    "compiler/test_compile.py::test_a_script_that_asks_for_a_card": "test_errors_have_the_line_of_the_file",
    "compiler/test_compile.py::test_a_tile_that_is_overtaken_is_a_problem": "test_when_a_tile_is_overtaken",
    "compiler/test_compile.py::test_backward_kernels_of_attention": "formulas/test_pages.py",
    "compiler/test_compile.py::test_what_the_assembler_gets": "test_a_register_that_nothing_has_written_is_noticed",
    "formulas/test_mutants.py::test_a_crash_or_a_hang_ends_one_process": "judge/test_faults.py::test_it_survives",
    "guides/test_compiled_claims.py": "no other: what Triton makes of these small kernels changes with its release",
    "guides/test_error_messages.py::test_it_is_printed": "no other: what Triton prints changes with its release",
    "guides/test_statements.py::test_what_inductor_finds_and_what_it_does_not": "kernels/test_compile.py",
    "integrations/test_as_unpatched.py::test_loaded_by_another_process": "test_as_unpatched[saved_whole-llama]",
    "integrations/test_as_unpatched.py::test_the_report_tells": "integrations/test_huggingface.py::test_report",
    "integrations/test_huggingface.py::test_autocast": "test_results_and_gradients",
    "integrations/test_huggingface.py::test_gradient_checkpointing": "test_results_and_gradients",
    "judge/test_batch.py::test_decoding_has_a_form_in_which_it_holds": "test_the_four_say_whether_it_holds",
    "judge/test_compiled.py::test_a_kernel_of_a_helper": "test_what_does_not_compile_is_named",
    "judge/test_compiled.py::test_what_one_card_lacks_is_a_remark": "test_what_does_not_compile_is_named",
    "judge/test_faults.py::test_a_number_that_all_but_cancels": "test_the_error_of_a_single_number_is_not_left_to_luck",
    "judge/test_faults.py::test_without_its_fault_it_passes": "judge/test_public.py::test_hostile_inputs",
    "judge/test_helper_files.py::test_its_statements_are_recorded": "test_it_is_judged_and_its_own_kernels_are_changed",
    "judge/test_inputs.py::test_the_luck_of_one_draw": "test_a_verdict_does_not_depend_on_the_seed",
    "judge/test_inputs.py::test_without_a_fault_it_passes": "judge/test_public.py::test_hostile_inputs",
    "judge/test_sanitizers.py::test_a_call_runs_in_a_process_under_the_tool": "the other tests of that file",
    "kernels/test_all_reduce.py::test_compiled_for_a_card": "compiler/test_every_kernel.py",
    "kernels/test_causal_conv1d.py::test_rows_are_copied_early": "compiler/test_every_kernel.py",
    "kernels/test_compile.py::test_an_interpreted_kernel_breaks_the_graph": (
        "test_a_full_graph_of_interpreted_kernels_is_refused"
    ),
    "kernels/test_dropout.py::test_wide_loads": "kernels/test_wide_loads.py",
    "kernels/test_launch.py::test_a_replayed_call_makes_the_same_launches": "the other tests of that file",
    "kernels/test_low_bit.py::test_random_configurations": "formulas/test_pages.py",
    "kernels/test_muon_fast.py::test_bits": "test_behaviour",
    "kernels/test_sample.py::test_check_of_rows_over_programs[nothing_to_draw": "test_check",
    "kernels/test_sample.py::test_check_of_rows_over_programs[own_k_for_each_row": "test_check",
    "kernels/test_sample.py::test_check_of_rows_over_programs[temperatures": "test_check",
    "kernels/test_sample.py::test_check_of_rows_over_programs[ties": "test_check",
    "kernels/test_swiglu.py::test_wide_loads": "kernels/test_wide_loads.py",
    "kernels/test_tracing.py": "kernels/test_compile.py",
    "playground/test_on_the_browsers_torch.py::test_kernels_run_as_natively": "site/test_playground.py",
    "site/test_extension.py::test_a_strict_build_fails_on_a_bad_formula": "site/test_syntax_error.py",
    "site/test_home.py::test_a_kernel_plays_above_the_fold_and_nothing_is_cut_or_moves[1440": "the same at 390 pixels",
    "site/test_home.py::test_it_plays_to_the_end_and_pauses": "site/test_recorded_run.py",
    "site/test_home.py::test_one_line_is_changed_and_run_and_kept": "site/test_playground.py",
    "site/test_hostile_links.py::test_the_worker_has_given_up": "test_every_page_forbids_other_hosts",
    "site/test_one_tool.py::test_it_plays_faster_and_to_the_next_load": "site/test_recorded_run.py",
    "site/test_one_tool.py::test_the_cells_to_change": "test_the_result_of_an_edit_is_where_the_edit_is",
    "site/test_one_tool.py::test_the_modes_stand_under": "test_the_result_of_an_edit_is_where_the_edit_is",
    "site/test_playground.py::test_from_a_folder_the_page_is_as_before": "test_without_wasm_the_page_is_as_before",
    "site/test_playground.py::test_nothing_of_the_runtime_loads": "site/test_weight.py::test_pages_are_light",
    "site/test_progress.py::test_a_page_whose_end_was_seen": "the other tests of that file",
    "site/test_reader.py::test_versions_are_asked_for_only_where_mike_publishes": "the other tests of that file",
    "site/test_weight.py::test_links_to_results": "site/test_finish.py::test_every_link_inside_the_site_resolves",
    "site/test_weight.py::test_the_search_comes": "test_pages_are_light",
    "site/test_weight.py::test_the_viewer_comes": "test_pages_are_light",
    "site/test_weight.py::test_what_is_out_of_sight": "test_pages_are_light",
    "test_new_operation.py::test_academy_check_compares_it": "test_nothing_is_missing",
    "test_workflows.py::test_the_pages_are_published": "the other tests of that file",
    "traces/test_command.py::test_a_file_of_a_package_and_what_it_imports": "test_a_kernel_of_the_project_by_its_name",
    "traces/test_inputs.py::test_what_runs_here_and_compiles_nowhere_is_reported": "compiler/test_refused.py",
    "traces/test_store.py::test_nothing_records_on_when": "test_a_crash_is_named_and_the_others_are_recorded",
    "traces/test_viewer.py::test_accessibility": "test_lanes_are_accessible",
    "traces/test_viewer.py::test_lanes_in_another_order": "the other tests of that file",
    "traces/test_viewer.py::test_programs_can_be_picked": "the other tests of that file",
}
#: Of each three cases which one is taken, so that no value of a parameter is left out, be there two or three of them.
TURNS = 0, 0, 2, 2, 1, 1


def main(calls: list[public.Call]) -> set[str]:
    """The main function of each lesson, and its first call."""
    first: dict[str, public.Call] = {}
    for call in calls:
        if not call.module.startswith("fast."):
            first.setdefault(call.module, call)
    return {str(each) for call in first.values() for each in (call, call.public)}


def mark(items: list[pytest.Item]) -> None:
    """Gives the mark `nightly` to what `make test` leaves out, and doesn't have it yet."""
    known = main(public.calls())
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("nightly") and not item.get_closest_marker("site_check"):
            cases[relative(item).partition("[")[0]].append(item)
    for name, several in cases.items():
        for item in left_out(name, several, known):
            item.add_marker(pytest.mark.nightly)


def relative(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


def left_out(name: str, cases: list[pytest.Item], main_functions: set[str]) -> list[pytest.Item]:
    said = [list(case.callspec.params.values()) if hasattr(case, "callspec") else [] for case in cases]
    if any(isinstance(value, Mutant) for value in said[0]):
        first = next((number for number, case in enumerate(cases) if not case.get_closest_marker("gpu")), len(cases))
        return cases[first + 1 :]
    if ONLY_MUTANTS or name.startswith(WHOLE):
        return []
    if any(each.startswith(name) for each in AT_NIGHT) or name.startswith(tuple(AT_NIGHT)):
        return [case for case in cases if relative(case).startswith(tuple(AT_NIGHT))]
    functions = [[each for each in values if isinstance(each, (public.Public, public.Call))] for values in said]
    if any(functions):
        kept = [not main_functions.isdisjoint(map(str, each)) for each in functions]
        return [case for case, stays in zip(cases, kept) if not stays] if any(kept) else cases[1:]
    checks = name.startswith("kernels/") and any(map(inspect.isfunction, said[0]))
    if len(cases) < 3 or checks or not name.startswith(A_THIRD):
        return []
    start = zlib.crc32(name.encode())  # another one of three in each test
    return [case for number, case in enumerate(cases) if number % 3 != (start + TURNS[number // 3 % len(TURNS)]) % 3]
