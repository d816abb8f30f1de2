"""The probe: plainer unless clearly faster, and nothing is measured that is settled."""

import time

import torch

from training.precision import Kernel, choose


class Machine:
    """A machine on which each way takes a known CPU time, in milliseconds."""

    def __init__(self, times: dict[tuple[bool, Kernel], float]) -> None:
        self.times = times
        self.calls: list[tuple[bool, Kernel]] = []

    def run(self, bf16: bool, kernel: Kernel) -> None:
        self.calls.append((bf16, kernel))
        torch.rand(3)
        end = time.thread_time() + self.times[bf16, kernel] / 1000
        while time.thread_time() < end:
            pass


def test_the_fastest_way_is_taken_where_it_is_clearly_faster() -> None:
    machine = Machine({(False, "plain"): 12, (True, "plain"): 6, (True, "sdpa"): 3})
    choice = choose(machine.run, 192, None, None)
    assert (choice.bf16, choice.attention) == (True, "sdpa")
    assert "fp32 plain" in choice.reason and "bf16 sdpa" in choice.reason


def test_the_plain_way_stays_where_the_other_is_hardly_faster() -> None:
    machine = Machine({(False, "plain"): 6, (True, "plain"): 5.7, (False, "sdpa"): 5.7})
    choice = choose(machine.run, 192, None, None)
    assert (choice.bf16, choice.attention) == (False, "plain")


def test_bf16_that_is_slower_is_not_taken() -> None:
    machine = Machine({(False, "plain"): 2, (True, "plain"): 6, (False, "sdpa"): 4})
    assert not choose(machine.run, 192, None, None).bf16


def test_only_what_is_open_is_measured() -> None:
    machine = Machine({(True, "plain"): 1, (True, "sdpa"): 1})
    assert choose(machine.run, 192, True, "sdpa").reason == "as configured"
    assert not machine.calls
    assert choose(machine.run, 192, True, None).bf16
    assert (False, "plain") not in machine.calls


def test_randomness_and_threads_are_as_before() -> None:
    machine = Machine(dict.fromkeys([(False, "plain"), (True, "plain"), (False, "sdpa")], 0.1))
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
    assert (choice.bf16, choice.attention) == (False, "plain")
    assert choose(machine.run, 128, True, None).bf16, "what is configured stays"
    assert not machine.calls
