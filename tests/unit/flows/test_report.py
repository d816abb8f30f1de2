"""What a person reads of a stage that failed."""

from __future__ import annotations

from flows.report import complaint

SAID = "ERROR: failed to reproduce 'pretrain': failed to run: exec python -m tasks.pretrain, exited with {}"


def test_a_killed_stage_is_told_from_one_that_failed() -> None:
    killed = complaint("pretrain", 255, [SAID.format(-9)]).splitlines()
    assert killed[0] == "stage pretrain failed (exit code 255):"
    assert killed[-1].startswith("pretrain was killed from outside (SIGKILL)") and "memory" in killed[-1]
    for code in (1, -15, 9, 137):
        assert complaint("pretrain", 255, ["error: no", SAID.format(code)]).splitlines()[1:] == [
            "error: no",
            SAID.format(code),
        ]
