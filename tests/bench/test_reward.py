"""The chapter on rewards at real size: what is rewarded. tests/learn/test_chapters.py runs its steps, small."""

import pytest
import torch

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
