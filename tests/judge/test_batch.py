"""A row has the same bits in any batch: what the judge sees, and what the facts of the public functions say."""

import dataclasses

import pytest
import torch

from academy.runtime import device
from academy import judge
from academy.judge import batch, public, subject
from academy.judge.session import File, Session
from academy.judge.trials import Plan
from academy.judge.trying import Attempt, attempt
from tests.judge.test_faults import KERNELS

ROWS = (KERNELS / "rows.py").read_text("utf-8")
#: A sum in another order where there are many rows.
SPLIT = ROWS.replace("e / tl.sum(e, axis=1)[:, None]", "e / tl.sum(e, axis=1)[:, None] * (1.0 + (n_rows > 99) * 2e-7)")
STATED = [each for each in public.functions() if each.batch]


def judged(tmp_path, source):
    (tmp_path / "kernel.py").write_text(source)
    return Session(File(tmp_path / "kernel.py", here=True), ["batch"]).run()


def test_a_row_that_changes_among_many_is_a_remark_and_wrong_where_it_was_promised(tmp_path):
    (one,) = judged(tmp_path, SPLIT).judged
    assert {(each.trial.name, each.state) for each in one.outcomes} == {
        ("rows of rows", "remark"), ("rows of rows, long cols", "remark")}  # fmt: skip
    assert "a row of rows among 129, not 5 has other bits: out[" in one.outcomes[0].message
    promised = judged(tmp_path, SPLIT + 'BATCH_INVARIANT = ("rows",)\n')
    assert not promised.right and "among 129" in str(promised)
    assert judged(tmp_path, ROWS + 'BATCH_INVARIANT = "rows"\n').right


@pytest.mark.parametrize(
    "change, said",
    [
        ("e / (tl.sum(e, axis=1) + (n_rows < 2) * 1e-3)[:, None]", "alone, not among 5"),
        ("e / (tl.sum(e, axis=1) + (rows == 4) * 1e-3)[:, None]", "at place 4, not 1"),
        ("e / (tl.sum(e, axis=1) + 1e-3 * tl.max(tl.max(x, axis=1), axis=0))[:, None]", "other"),
    ],
)
def test_each_change_of_the_batch_is_tried(change, said, tmp_path):
    source = ROWS.replace("e / tl.sum(e, axis=1)[:, None]", change)
    report = judged(tmp_path, source + 'BATCH_INVARIANT = ("rows",)\n')
    assert source != ROWS and said in str(report)


def test_rows_that_hang_on_each_other_are_none(tmp_path):
    (tmp_path / "kernel.py").write_text(ROWS.replace("dim=-1", "dim=0"))
    (one,) = subject.from_file(tmp_path / "kernel.py")
    assert {dim for dim, _ in batch.dims(Attempt(one, Plan(one).trial("odd sizes")))} == {"cols"}


def test_a_reference_gets_no_index_outside(tmp_path):
    """Not while it is found out which dims are rows, either: a card's process doesn't survive one."""
    one = next(each for each in public.functions() if str(each) == "classics.token_logprobs.token_logprobs").subject()
    plain, outside = one.reference, []

    def watched(logits, tokens, **options):
        outside.extend(tokens[tokens >= logits.shape[-1]].tolist())
        return plain(logits, tokens, **options)

    one = dataclasses.replace(one, reference=watched)
    assert [dim for dim, _ in batch.dims(Attempt(one, Plan(one).trial("odd sizes")))] == ["rows", "rows"]
    assert outside == []


def test_a_promise_about_no_dim_is_refused(tmp_path):
    report = judged(tmp_path, ROWS + 'BATCH_INVARIANT = ("row",)\n')
    assert "BATCH_INVARIANT names 'row', which is no dim of softmax: rows, cols" in report.broken


@pytest.mark.parametrize("said", STATED, ids=str)
def test_what_the_facts_say_is_tried(said):
    one = said.subject()
    plan = Plan(one)
    trial = plan.trial("odd sizes", options=tuple(one.combinations()[0].items()))
    assert set(said.batch) <= {dim for dim, _ in batch.dims(Attempt(one, trial))}, "its rows hang on each other"
    files = {name for why in said.batch.values() if isinstance(why, dict) for name in why}
    assert files <= {each.module for each in public.functions() if each.name == said.name}


def test_the_four_say_whether_it_holds():
    known = {str(each): each.varies(dim) for each in STATED for dim in each.batch}
    for name in ("classics.rmsnorm.rmsnorm", "fast.rmsnorm.rmsnorm", "tutorials.matmul_blocked.matmul",
                 "attention.flash_attention.flash_attention"):  # fmt: skip
        assert known[name] == ""
    for name in ("fast.matmul.matmul", "fast.flash_attention.flash_attention", "fast.decode.decode_attention"):
        assert known[name]


def test_decoding_has_a_form_in_which_it_holds(monkeypatch):
    """Sequences that are split by how many there are, and by a number that is given."""
    if device.INTERPRET:
        monkeypatch.setattr(batch, "AMONG", (33,))  # enough for another split
    (said,) = [each for each in public.functions() if str(each) == "fast.decode.decode_attention"]
    one = said.subject()
    plan = Plan(one, batched=[("sequences", "keys")])
    (trial,) = plan.trials(["batch"])
    assert attempt(one, trial).state == "remark"
    one.options["num_splits"] = (4,)
    one.batch_invariant = ("sequences",)
    (trial,) = plan.trials(["batch"])
    assert dict(trial.options) == {"num_splits": 4} and attempt(one, trial).state == "right"


def test_every_dim_of_an_elementwise_function_is_tried():
    report = judge.judge(lambda x: x * 2, lambda x: x * 2, {"x": "rows cols"}, groups=["batch"])
    assert report.right and {each.trial.detail for each in report.judged[0].outcomes} == {"rows", "cols"}


@pytest.mark.gpu
def test_an_index_that_fewer_rows_make_too_large_ends_no_work_on_a_card():
    """Which it does there, for the whole process: the reference is asked on the CPU."""
    (one,) = [each for each in STATED if each.name == "sparse_decode"]
    (trial, *_) = Plan(one.subject()).trials(["sizes"])
    assert batch.dims(Attempt(one.subject(), trial))
    torch.cuda.synchronize()
