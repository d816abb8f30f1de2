"""The probe: plainer unless clearly faster, and nothing is measured that is settled."""

import time

import pytest
import torch

from training import precision
from training.precision import Kernel, Precision, choose


class Machine:
    """A machine on which each way takes a known CPU time, in milliseconds."""

    def __init__(self, times: dict[tuple[Precision, Kernel], float]) -> None:
        self.times = times
        self.calls: list[tuple[Precision, Kernel]] = []

    def run(self, precision: Precision, kernel: Kernel) -> None:
        self.calls.append((precision, kernel))
        torch.rand(3)
        end = time.thread_time() + self.times[precision, kernel] / 1000
        while time.thread_time() < end:
            pass


def test_the_fastest_way_is_taken_where_it_is_clearly_faster() -> None:
    machine = Machine({("fp32", "plain"): 12, ("bf16", "plain"): 6, ("bf16", "sdpa"): 3})
    choice = choose(machine.run, 192, None, None)
    assert (choice.precision, choice.attention) == ("bf16", "sdpa")
    assert "fp32 plain" in choice.reason and "bf16 sdpa" in choice.reason


def test_the_plain_way_stays_where_the_other_is_hardly_faster() -> None:
    machine = Machine({("fp32", "plain"): 6, ("bf16", "plain"): 5.7, ("fp32", "sdpa"): 5.7})
    choice = choose(machine.run, 192, None, None)
    assert (choice.precision, choice.attention) == ("fp32", "plain")


def test_bf16_that_is_slower_is_not_taken() -> None:
    machine = Machine({("fp32", "plain"): 2, ("bf16", "plain"): 6, ("fp32", "sdpa"): 4})
    assert choose(machine.run, 192, None, None).precision == "fp32"


def test_a_way_that_is_hopeless_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "PATIENCE_S", 0.02)
    machine = Machine({("fp32", "plain"): 1, ("bf16", "plain"): 30, ("fp32", "sdpa"): 10})
    choice = choose(machine.run, 192, None, None)
    assert choice.precision == "fp32" and "bf16 plain 3" in choice.reason
    tried = {way: machine.calls.count(way) for way in machine.times}
    assert tried == {("fp32", "plain"): 4, ("bf16", "plain"): 1, ("fp32", "sdpa"): 4}, "a little slow is not hopeless"


def test_only_what_is_open_is_measured() -> None:
    machine = Machine({("bf16", "plain"): 1, ("bf16", "sdpa"): 1})
    assert choose(machine.run, 192, "bf16", "sdpa").reason == "as configured"
    assert not machine.calls
    assert choose(machine.run, 192, "bf16", None).precision == "bf16"
    assert ("fp32", "plain") not in machine.calls


def test_randomness_and_threads_are_as_before() -> None:
    machine = Machine(dict.fromkeys([("fp32", "plain"), ("bf16", "plain"), ("fp32", "sdpa")], 0.1))
    torch.manual_seed(0)
    expected = torch.rand(2)
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    choose(machine.run, 192, None, None)
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads


def test_narrow_models_are_not_measured_so_that_all_their_runs_choose_alike() -> None:
    machine = Machine({})
    choice = choose(machine.run, 128, None, None)
    assert (choice.precision, choice.attention) == ("fp32", "plain")
    assert choose(machine.run, 128, "bf16", None).precision == "bf16", "what is configured stays"
    assert not machine.calls
