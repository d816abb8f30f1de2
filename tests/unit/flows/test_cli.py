"""The command line: cheap to import, clear about wrong usage."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.errors import DaymillError
from flows import cli
from flows.presets import UsageError

HEAVY = ("torch", "prefect", "pandas", "dvc", "onnxruntime", "great_expectations", "sklearn", "rich", "ruamel", "numpy")


def test_importing_the_command_imports_nothing_heavy() -> None:
    code = "import flows.cli, sys; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "flows" in loaded
    assert not set(HEAVY) & set(loaded)


def test_help_names_every_command_and_is_quick() -> None:
    started = time.perf_counter()
    told = subprocess.run([sys.executable, "-m", "flows.cli", "--help"], capture_output=True, text=True, check=True)
    print(f"daymill --help: {time.perf_counter() - started:.3f} s")
    commands = "run plan check pairs seen sample why ledger audit settings up status promote rollback serve ask summary"
    for name in commands.split():
        assert f"\n    {name} " in told.stdout


@pytest.mark.parametrize(
    "arguments",
    [[], ["rnu"], ["run", "--until", "nowhere"], ["rollback"], ["serve", "--bundle", "a", "--releases", "b"]],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: daymill" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(DaymillError("no such thing"), 1), (UsageError("no such thing"), 2), (KeyboardInterrupt(), 130)],
)
def test_what_a_user_can_mend_has_no_traceback(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(cli, "plan", fail)
    assert cli.main(["plan"]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("no such thing" in said or "interrupted" in said)


def test_outside_a_checkout_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan"]) == 1
    assert "no dvc.yaml in" in capsys.readouterr().err


def test_check_decides_a_file_as_one_json_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    file = tmp_path / "records.jsonl"
    file.write_text('{"id": "a", "text": "hello there"}\n{"id": "b", "text": \n')
    assert cli.main(["check", "--json", str(file)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert (report["file"], report["kept"], report["quarantined"]) == (str(file), 1, 1)
    assert report["entries"][0]["line"] == 2
    assert cli.main(["check", str(file)]) == 0
    assert "records.jsonl" in capsys.readouterr().out
    assert cli.main(["check", str(tmp_path / "missing.jsonl")]) == 1
