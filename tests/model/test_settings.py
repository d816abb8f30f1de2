"""`daymill settings` on a tiny project: rates swept, a ladder climbed and not climbed again, batches advised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from data.errors import DaymillError
from flows import cli
from flows.presets import flatten, write_values
from flows.settings import find_root
from tasks import settings
from tasks.pretrain import Pretrain
from tasks.pretrain import main as pretrain
from tasks.tokenize import Tokenize
from tasks.tokenize import main as tokenize
from tests.model.test_training_stages import FINETUNE, PARTS, PRETRAIN, TOKENIZE, context, write_split
from training.largest_batch import Try

pytestmark = pytest.mark.slow

SHIPPED = find_root(Path(__file__).parent)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Splits, tokens and a pretrained checkpoint of the smallest size."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        torch.set_num_threads(1)
        for seed, (part, count) in enumerate(PARTS.items()):
            write_split(root / "artifacts/split" / part, count, seed, ["ham", "spam"])
        (root / "corpus").mkdir()
        (root / "params.yaml").write_bytes((SHIPPED / "params.yaml").read_bytes())
        (root / "dvc.yaml").write_bytes((SHIPPED / "dvc.yaml").read_bytes())
        write_values(root / "params.yaml", dict(flatten({"pretrain": PRETRAIN, "finetune": FINETUNE})))
        tokenize(Tokenize(**TOKENIZE), context("tokenize", "artifacts/tokenize"))
        pretrain(Pretrain(**PRETRAIN), context("pretrain", "artifacts/pretrain"))
    return root


@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
def test_rates_are_swept_and_nothing_is_set(project: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "artifacts")
    before = (project / "params.yaml").read_bytes()
    advice, told = settings.sweep_rates(project, stage, 1e-5, 1.0, 60)
    assert 1e-5 < advice.steepest < 1.0
    assert any(line.startswith(f"to try: {stage}.lr: ") for line in told)
    folder = project / settings.OUT
    first = (folder / f"lr-{stage}.json").read_bytes()
    assert (folder / f"lr-{stage}.png").read_bytes().startswith(b"\x89PNG")
    settings.sweep_rates(project, stage, 1e-5, 1.0, 60)
    assert (folder / f"lr-{stage}.json").read_bytes() == first, "the same sweep again"
    assert (project / "params.yaml").read_bytes() == before


def test_the_ladder_is_climbed_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    climb = ["settings", "ladder", "--depths", "2", "1", "3", "--tokens", "3000"]
    assert cli.main(climb) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"], "from small to large"
    assert len(lines[3].split()) == 7, "the third is told beside what was predicted"
    report = json.loads((project / settings.OUT / "ladder.json").read_text())
    assert [each["predicted"] is None for each in report] == [True, True, False]
    assert report[2]["tokens"] == 3000 > report[1]["tokens"] > report[0]["tokens"]
    rungs = {path: path.stat().st_mtime_ns for path in (project / settings.OUT / "ladder").iterdir()}
    assert len(rungs) == 3
    assert cli.main(climb) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert {path: path.stat().st_mtime_ns for path in (project / settings.OUT / "ladder").iterdir()} == rungs


def test_a_ladder_without_tokens_is_an_error(project: Path) -> None:
    with pytest.raises(DaymillError, match="give --tokens"):
        settings.climb_ladder(project, [1], 0, lambda *_: None)


def test_a_batch_is_advised_that_keeps_the_update(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(job: object, rows: int, longest_s: float) -> Try:
        return Try(rows, rows <= 3, 100.0 * rows, 900.0 if rows == 1 else 500.0, "" if rows <= 3 else "over the limit")

    monkeypatch.setattr(settings, "trial", fake)
    monkeypatch.chdir(project)
    assert cli.main(["settings", "batch", "--limit-gib", "0.5"]) == 0
    told = capsys.readouterr().out
    assert "the largest that fits into 512 MiB: 3 rows" in told
    assert "pretrain.rows: 2, pretrain.accumulate: 2" in told, "4 rows an update as configured"
    assert "1 rows were 1.80x faster than 2" in told
    assert "over the limit" in told
    monkeypatch.setattr(settings, "trial", lambda job, rows, longest_s: Try(rows, False, 1.0, 0.0, "over the limit"))
    assert cli.main(["settings", "batch", "--limit-gib", "0.5"]) == 1
    assert "not even one row" in capsys.readouterr().err
