"""The walls between the rooms, and what must stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("flows.cli", ["torch", "prefect", "pandas", "pyarrow", "dvc", "great_expectations", "onnxruntime", "numpy"]),
        ("serving.server", ["torch", "pandas", "prefect", "great_expectations", "sklearn"]),
        ("data.expectations", ["great_expectations"]),
        ("tasks.stage", ["torch", "pandas", "prefect", "pyarrow"]),
    ],
)
def test_heavy_imports_stay_where_they_are_needed(module: str, heavy: list[str]) -> None:
    code = f"import sys, {module}; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
