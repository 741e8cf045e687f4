"""What could be imported at commit 4d3a2404 can be imported today: files that somebody downloaded run.

But academy.site.social, which drew a picture for links to each page: no file that is published ever imported it.
"""

import subprocess
import sys
from importlib.util import find_spec

import pytest

import academy
from academy.book.layout import ROOT
from tests import python

#: Package: its modules.
NAMES = """
academy: accuracy autograd cache checks cli collecting device geometry imports launch misspelt progress script
  setup_environment simulate textfiles timing traffic vendored watching
academy.bench: command experiment ladder_run notebook operation run
academy.book: benchmarks comments directives exercise_files front_matter layout learning_path maths operations
  problems reviewed splitter syntax tex texts
academy.compiler: cards catching command launches machine_code messages overtaken refused service stand_in worker
academy.exercises: allowed answer apart command marking provenance questions rounds shown watch wire
academy.formulas: cases project reports verify
academy.formulas.comparing: case_reader citations coverage equations kernels result
academy.formulas.meaning: environment formula names positions rules transforms values
academy.formulas.mutation: engine equal_values equations
academy.formulas.reading: declarations displays expressions page stream tree
academy.gluon: along_axis errors functions lanes layouts linear machine rewriting shared units values
academy.interpreter: arithmetic bits casts external internals kinds launches libdevice memory mistakes moves operators
  reductions repairs speed
academy.judge: command compare elements fences interpreted kernel_mutants layouts mutants non_finite process recorded
  report session subject trials trying waits
academy.playground: bundle run vendor
academy.practice: house_rules kernel_file kernel_rules linter
academy.results: figures ladder measured_code overview pages plots store tables training
academy.site: addresses beforehand broken_links change_it chapters citations conversion exercise_pages explained
  extension generated_pages glossary helper helpers highlighting katex kernel_page l2_picture ladder_page
  language_index library lint markdown_copies page_facts page_tree path_map pictures playground_page plugin
  project_parts reading_time rung_code search_text serving stylesheet variable_marks variables
academy.traces: births browser_memory command comments faults inputs instrument literals memory native_memory observer
  page proof quotes recorder recording simulated store watched_memory worker
annotated_examples.attention: causal_attention decode flash_attention
annotated_examples.capstone: gpt options parallel
annotated_examples.choosing: sample
annotated_examples.classics: cross_entropy dropout geglu layernorm linear_cross_entropy matmul rmsnorm rope swiglu
annotated_examples.common: activations attention attention_tiles chunks constants experts fp8 gated hopper hopper_sums
  launching logits mx norms opaque opaque_attention opaque_loss packed products ragged ranks rows seeds sequences
  symmetric tile_order transposed
annotated_examples.distributed: all_gather_matmul all_reduce vocab_parallel_cross_entropy vocab_parallel_entropy
annotated_examples.fast: causal_conv1d cross_entropy cumsum decode flash_attention flash_attention_backward
  gated_delta_rule grouped_matmul layernorm linear_attention linear_cross_entropy linear_recurrence matmul moe_mlp
  mx_matmul rmsnorm scaled_matmul softmax
annotated_examples.fast.low_bit: descriptors many_rows planes
annotated_examples.fp8: linear quantize scaled_matmul
annotated_examples.gemlite: gemm gemm_splitK
annotated_examples.gluon: flash_attention flash_attention_backward matmul scaled_matmul tile_copy
annotated_examples.integrations: huggingface
annotated_examples.ladders.cross_entropy: rung_1_loss_then_gradient rung_2_one_pass rung_3_strips rung_4_exp2
  rung_5_label_last rung_6_fast
annotated_examples.ladders.flash_attention: rung_1_two_trips rung_2_one_trip rung_3_by_descriptor
  rung_4_two_tiles_ahead rung_5_fast
annotated_examples.ladders.layernorm: rung_1_three_trips rung_2_two_trips rung_3_one_trip rung_4_fast
annotated_examples.ladders.layernorm_backward: rung_1_two_kernels rung_2_one_trip rung_3_ahead rung_4_fast
annotated_examples.ladders.matmul: rung_1_one_element rung_2_tiles rung_3_large_tiles rung_4_pipelined rung_5_grouped
  rung_6_descriptors rung_7_persistent rung_8_fast
annotated_examples.ladders.matmul_backward: rung_1_gate_in_the_loads rung_2_gate_apart rung_3_fast tried_one_launch
annotated_examples.ladders.softmax: rung_1_three_trips rung_2_two_trips rung_3_vectors rung_4_a_sum_for_each_vector
  rung_5_backwards rung_6_fast tried_one_trip
annotated_examples.moe: grouped_matmul moe_mlp router
annotated_examples.mx: microscaling mx_matmul
annotated_examples.recurrences: causal_conv1d cumsum gated_delta_rule gated_delta_rule_step l2_normalize
  linear_attention linear_recurrence
annotated_examples.tutorials: matmul_autotuned matmul_blocked matmul_grouped softmax vector_add
"""
OLD = [
    f"{package}.{module}"
    for package, _, modules in (line.partition(": ") for line in NAMES.replace("\n  ", " ").strip().split("\n"))
    for module in modules.split()
]
#: What a lesson began with, and names in modules.
DOWNLOADED = """
from academy import autograd, checks, device, script
from academy.autograd import once_differentiable
import academy.checks, academy.accuracy as rule
import sys
import academy.runtime.device
assert once_differentiable is autograd.once_differentiable
assert academy.device is device is academy.runtime.device is sys.modules["academy.device"]
assert device.__spec__.name == device.__name__ == "academy.runtime.device"
assert checks.INTERPRET is device.INTERPRET and script and rule.RMS_FLOOR
"""


def test_every_name_leads_to_a_module():
    assert len(OLD) > 330
    assert not {old: now for old in OLD if not find_spec(now := academy.current(old))}


@pytest.mark.parametrize("old", academy.MOVED)
def test_it_is_in_the_table_because_it_was_there(old):
    assert old in OLD or any(name.startswith(f"{old}.") for name in OLD)


def test_a_downloaded_file_runs_and_says_once_where_things_are(tmp_path):
    (tmp_path / "mine.py").write_text(DOWNLOADED)
    done = python.run(["mine.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line.partition(": ")[2] for line in done.stderr.split("\n") if "Warning" in line]
    assert said == [
        "DeprecationWarning: academy.autograd is academy.runtime.autograd now",
        "DeprecationWarning: academy.accuracy is academy.judge.accuracy now",
    ]


def test_it_costs_nothing_where_no_old_name_is_used():
    code = "import sys, academy; print(*sorted(name for name in sys.modules if name.startswith('academy')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["academy", "academy.runtime", "academy.runtime.plugs"]
