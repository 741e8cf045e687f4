"""The chapter on rewards at real size: what is rewarded. tests/learn/test_chapters.py runs its steps, small."""

import pytest
import torch

from annotated_examples.capstone.gpt import OURS
from benchmarks import reward


def test_a_token_has_a_space_in_any_of_its_bytes():
    text = torch.frombuffer(bytearray(b"a b  cde"), dtype=torch.uint8).long()
    assert reward.share_of_spaces(text[None], 1).tolist() == [3 / 8]
    assert reward.share_of_spaces((text[0::2] + 256 * text[1::2])[None], 2).tolist() == [3 / 4]


def test_without_a_card_it_says_what_to_run(monkeypatch):
    monkeypatch.setattr("sys.argv", ["reward.py"])
    monkeypatch.setattr(reward.device, "INTERPRET", True)
    with pytest.raises(SystemExit, match="docs/learn/reward.py"):
        reward.main()


def test_the_product_without_a_search_is_the_capstones():
    found = []
    for linear in (reward.CHOSEN.linear, OURS.linear):
        torch.manual_seed(0)
        x, weight = (torch.randn(shape, device=reward.device.DEVICE).requires_grad_() for shape in ((9, 40), (24, 40)))
        y = linear(x, weight)
        found.append((y, *torch.autograd.grad(y.square().sum(), (x, weight))))
    torch.testing.assert_close(*found)
