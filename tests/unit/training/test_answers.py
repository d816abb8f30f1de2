"""Learning to answer in the pretraining loop: token-exact, no leak, the best weights, exact resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from data.batching import IGNORE, pack_documents
from data.dialogues import Message
from data.errors import DaymillError
from data.tokens import TokenShard, parse_tokenizer, train_tokenizer
from training.answers import Part, answering_model, check_causal
from training.chat import Limits, Template, as_shard, with_roles
from training.config import ModelConfig
from training.history import Progressed
from training.knobs import PretrainConfig
from training.loader import TokenBatch, batch_of
from training.model import Transformer
from training.optim import make_adamw
from training.pretrain import pretrain, validation_loss
from training.ranks import token_loss_sum
from training.state import load_state, part, save_state
from training.step import Trainer

WORDS = ["red", "green", "blue", "black", "white"]
TOKENIZER = parse_tokenizer(with_roles(train_tokenizer([" ".join(WORDS)] * 3, 280)))
TEMPLATE = Template(TOKENIZER, Limits(48, 16, 200))
VOCAB = TOKENIZER.get_vocab_size()
CONFIG = PretrainConfig(
    tokens=24 * 2 * 2 * 48,
    length=48,
    rows=2,
    accumulate=2,
    lr=2e-2,
    evaluations=6,
    valid_tokens=0,
    save_every_s=0,
    keep_best=True,
    precision="fp32",
    save_share=0.0,
    attention="plain",
)


def said(count: int, seed: int) -> TokenShard:
    """The answer repeats the question's word as often as there are questions: unequal lengths, and learnable."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        messages = []
        for _ in range(int(rng.integers(1, 4))):
            word = WORDS[int(rng.integers(len(WORDS)))]
            times = int(rng.integers(1, 4))
            messages += [Message("user", f"{times} {word}"), Message("assistant", " ".join([word] * times))]
        found.append(TEMPLATE.dialogue(messages))
    return as_shard(found)


def fresh(dropout: float = 0.2) -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig.from_depth(1, VOCAB, max_len=48, dropout=dropout))


def test_only_answers_are_paid_for() -> None:
    """The loss of a row is the sum over its scored tokens, worked out from the logits."""
    model = fresh().eval()
    batch = batch_of(pack_documents(said(5, 0), 48, 0), 0, 100)
    hidden = model.hidden(batch.ids, None, batch.docs)
    log_p = model.lm_logits(hidden).log_softmax(-1)
    scored = batch.targets != IGNORE
    expected = -log_p[scored].gather(1, batch.targets[scored][:, None]).sum()
    assert 0 < int(scored.sum()) < int((batch.docs >= 0).sum()), "some tokens are only read"
    assert token_loss_sum(model, batch, "fp32").item() == pytest.approx(expected.item(), rel=1e-5)


def one_step(batches: list[TokenBatch]) -> tuple[float, dict[str, Tensor]]:
    model = fresh(0.0).to(torch.float64)
    trainer = Trainer(model, make_adamw(model, 0.0), 1e9)
    report = trainer.step(batches, lambda b: token_loss_sum(model, b, "fp32"), lambda b: b.tokens, 1e-3)
    return report.loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_accumulation_is_exact_with_unequal_counts_of_scored_tokens() -> None:
    packed = pack_documents(said(30, 1), 48, 0)
    whole = batch_of(packed, 0, 6)
    parts = [batch_of(packed, start, end) for start, end in ((0, 1), (1, 2), (2, 6))]
    counts = [batch.tokens for batch in parts]
    assert len(set(counts)) == 3, f"unequal: {counts}"
    loss, gradient = one_step([whole])
    again, summed = one_step(parts)
    assert again == pytest.approx(loss, rel=1e-12)
    for name, tensor in gradient.items():
        assert torch.allclose(tensor, summed[name], rtol=1e-9, atol=1e-12), name
    means = [one_step([batch])[0] for batch in parts]
    assert abs(sum(means) / 3 - loss) > 1e-5, "the control: a mean of means is another number"


def test_a_dialogue_sees_nothing_of_its_neighbors() -> None:
    model = fresh().eval()
    packed = pack_documents(said(12, 2), 48, 0)
    batch = max((batch_of(packed, row, row + 1) for row in range(len(packed))), key=lambda row: int(row.docs.max()))
    assert int(batch.docs.max()) > 0, "several dialogues share the row"
    own = TokenBatch(batch.ids, torch.where(batch.docs == 0, batch.targets, IGNORE), batch.docs)
    other = torch.where(batch.docs == 0, batch.ids, (batch.ids + 7) % VOCAB)
    with torch.no_grad():
        before = token_loss_sum(model, own, "fp32")
        assert torch.equal(before, token_loss_sum(model, replace(own, ids=other), "fp32"))
        changed = torch.where(batch.docs == 0, (batch.ids + 7) % VOCAB, batch.ids)
        assert not torch.equal(before, token_loss_sum(model, replace(own, ids=changed), "fp32")), "the control"
        unseen = replace(own, ids=other, docs=torch.zeros_like(batch.docs))
        mixed = token_loss_sum(model, replace(own, docs=torch.zeros_like(batch.docs)), "fp32")
        late = TokenBatch(batch.ids, torch.where(batch.docs == 1, batch.targets, IGNORE), batch.docs)
        assert not torch.equal(
            token_loss_sum(model, late, "fp32"), token_loss_sum(model, replace(late, docs=unseen.docs), "fp32")
        ), "the control: without document masks the second dialogue sees the first"
        assert torch.equal(mixed, before), "and the first one of a row sees none in either case"


class Killed(BaseException):
    """Stands for a kill: nothing of the run may catch it."""


def run(state: Path, kill_at: int | None = None, config: PretrainConfig = CONFIG) -> tuple[Transformer, Progressed]:
    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    model = fresh()
    return model, pretrain(model, said(60, 0), said(20, 1), config, state=state, on_step=on_step)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("whole") / "state"
    run(state)
    return state


def final(state: Path) -> dict[str, Tensor]:
    saved = load_state(state)
    assert saved is not None
    return saved[0]


def differing(a: Path, b: Path) -> list[str]:
    first, second = final(a), final(b)
    assert first.keys() == second.keys()
    return [name for name, tensor in first.items() if not torch.equal(tensor, second[name])]


def test_it_learns_to_answer(uninterrupted: Path) -> None:
    model = fresh()
    before = validation_loss(model, said(20, 1), CONFIG, "fp32")
    model.load_state_dict(part(final(uninterrupted), "best"))
    after = validation_loss(model, said(20, 1), CONFIG, "fp32")
    assert after < 0.5 * before
    _, meta = load_state(uninterrupted) or ({}, {})
    assert after == pytest.approx(min(v["valid/loss"] for _, v in meta["points"] if "valid/loss" in v), rel=1e-6)


@pytest.mark.parametrize("kill_at", [1, 9, 21])
def test_a_cut_run_ends_bit_equal(tmp_path: Path, uninterrupted: Path, kill_at: int) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at)
    torch.manual_seed(99)  # whatever the next process draws first
    run(tmp_path / "state")
    assert differing(uninterrupted, tmp_path / "state") == []


def forget_tensor(name: str, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    found = [key for key in tensors if key.startswith(name)]
    assert found
    for key in found:
        tensors[key] = torch.zeros_like(tensors[key])


def forget_position(_: dict[str, Tensor], meta: dict[str, Any]) -> None:
    meta["position"] = {"epoch": 0, "row": 0}


def forget_step(_: dict[str, Tensor], meta: dict[str, Any]) -> None:
    meta["step"] -= 1


def forget_rng(tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
    tensors["rng"] = torch.Generator().manual_seed(5).get_state()


@pytest.mark.parametrize(
    "forget",
    [
        partial(forget_tensor, "model/blocks.0.attn.q"),
        partial(forget_tensor, "optimizer/embed"),
        forget_rng,
        forget_position,
        forget_step,
    ],
    ids=["weights", "moments", "rng", "position", "step"],
)
def test_forgetting_any_part_of_the_state_shows(
    tmp_path: Path, uninterrupted: Path, forget: Callable[..., None]
) -> None:
    with pytest.raises(Killed):
        run(tmp_path / "state", kill_at=11)
    tensors, meta = load_state(tmp_path / "state") or ({}, {})
    forget(tensors, meta)
    save_state(tmp_path / "state", tensors, meta)
    run(tmp_path / "state")
    assert differing(uninterrupted, tmp_path / "state")


def overfitting(state: Path, kill_at: int | None = None) -> Progressed:
    """Few dialogues and a high rate: validation is best early, and the run ends before its steps do."""
    config = replace(CONFIG, tokens=60 * 4 * 48, evaluations=30, patience=3, lr=3e-2, warmup=0.0)

    def on_step(step: int) -> None:
        if step == kill_at:
            raise Killed

    return pretrain(fresh(0.0), said(6, 0), said(20, 1), config, state=state, on_step=on_step)


def test_a_run_ends_early_and_keeps_its_best_weights_over_a_kill(tmp_path: Path) -> None:
    done = overfitting(tmp_path / "whole")
    assert 0 < done.best_step < done.step < 60 and done.waiting == 3
    with pytest.raises(Killed):
        overfitting(tmp_path / "cut", kill_at=done.best_step + 1)
    assert overfitting(tmp_path / "cut").step == done.step
    assert differing(tmp_path / "whole", tmp_path / "cut") == []
    with pytest.raises(Killed):
        overfitting(tmp_path / "forgotten", kill_at=done.best_step + 1)
    tensors, meta = load_state(tmp_path / "forgotten") or ({}, {})
    forget_tensor("best/", tensors, meta)
    save_state(tmp_path / "forgotten", tensors, meta)
    overfitting(tmp_path / "forgotten")
    assert differing(tmp_path / "whole", tmp_path / "forgotten"), "the control: the best weights are state too"
    again = overfitting(tmp_path / "whole")
    assert again.step == done.step, "a finished run stays finished"


def test_only_the_best_differs_from_a_run_without_it(tmp_path: Path, uninterrupted: Path) -> None:
    """What keeping the best adds changes nothing of the run itself."""
    run(tmp_path / "plain", config=replace(CONFIG, keep_best=False))
    with_best = {name: tensor for name, tensor in final(uninterrupted).items() if not name.startswith("best/")}
    plain = final(tmp_path / "plain")
    assert plain.keys() == with_best.keys()
    assert all(torch.equal(tensor, with_best[name]) for name, tensor in plain.items())


def test_new_tokens_get_fresh_embeddings_and_the_rest_its_weights() -> None:
    torch.manual_seed(1)
    backbone = Transformer(ModelConfig.from_depth(1, VOCAB - 3, max_len=48))
    model = answering_model(backbone, VOCAB, 0.1, seed=0)
    assert torch.equal(model.embed.weight[:-3], backbone.embed.weight)
    assert model.embed.weight[-3:].abs().min() > 0 and model.config.vocab_size == VOCAB
    assert torch.equal(model.blocks[0].attn.q.weight, backbone.blocks[0].attn.q.weight)
    same = answering_model(backbone, VOCAB, 0.1, seed=0)
    assert torch.equal(model.embed.weight, same.embed.weight)
    untied = Transformer(replace(backbone.config, tied=False))
    adopted = answering_model(untied, VOCAB, 0.1, seed=0)
    assert torch.equal(adopted.output_weight[:-3], untied.output_weight) and len(adopted.output_weight) == VOCAB


def test_a_model_that_sees_ahead_cannot_answer() -> None:
    config = replace(ModelConfig.from_depth(1, VOCAB, max_len=48), causal=False)
    with pytest.raises(DaymillError, match=r"set finetune\.from to pretrain"):
        check_causal(Transformer(config))


@pytest.mark.parametrize(("records", "asked", "expected"), [(290, 200, 200), (5, 200, 5), (7, 3, 3), (0, 3, 0)])
def test_as_many_records_are_answered_as_are_asked_for(records: int, asked: int, expected: int) -> None:
    chosen = Part([str(number) for number in range(records)], [], [], 0).some(asked)
    assert len(set(chosen)) == len(chosen) == expected
    assert chosen == sorted(chosen) and all(0 <= number < records for number in chosen)
    gaps = np.diff([*chosen, records])
    assert not chosen or (chosen[0] == 0 and gaps.max() - gaps.min() <= 1)
