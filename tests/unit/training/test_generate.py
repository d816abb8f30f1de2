"""Decoding: with the cache as without it, bounded, ended by END, the same whatever shares a pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from data.tokens import END_ID, PAD_ID, Ids
from training.config import LayerShape, ModelConfig
from training.generate import Decoding, Memory, generate, last_logits, next_tokens, padded_before, remembering
from training.model import Attention, Transformer

SHAPE = ModelConfig(40, 32, (LayerShape(4, 48), LayerShape(2, 32)), head_dim=8, max_len=64)
LEARNED = replace(SHAPE, position="learned", norm="layer", norm_place="post", activation="gelu", bias=True)


def model_of(shape: ModelConfig = SHAPE, kernel: str = "plain") -> Transformer:
    """Random weights, large enough that answers vary."""
    torch.manual_seed(3)
    model = Transformer(shape).to(torch.float64)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(12)
    model.set_attention("sdpa" if kernel == "sdpa" else "plain")
    return model


def prompts(count: int = 7) -> list[Ids]:
    rng = np.random.default_rng(0)
    return [rng.integers(2, 40, size).astype(np.int32) for size in rng.integers(1, 20, count)]


SHARED = replace(SHAPE, layers=(LayerShape(4, 48, 2, 0.3), LayerShape(2, 32, 1, 0.3)), activation="dsrelu", tied=False)


@pytest.mark.parametrize("shape", [SHAPE, LEARNED, SHARED], ids=["rotary", "learned", "shared keys"])
@pytest.mark.parametrize("kernel", ["plain", "sdpa"])
@pytest.mark.parametrize("decoding", [Decoding(24), Decoding(24, 1.3, 0.9, seed=4)], ids=["greedy", "drawn"])
def test_with_the_cache_as_without_it(shape: ModelConfig, kernel: str, decoding: Decoding) -> None:
    model = model_of(shape, kernel)
    fast = generate(model, prompts(), decoding, rows=3)
    assert fast == generate(model, prompts(), decoding, rows=3, cache=False)
    assert len({tuple(answer) for answer in fast}) > 3, "answers differ, so that equality says something"


def test_a_forgetful_cache_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a cache that loses a token gives other answers."""
    model = model_of()
    right = generate(model, prompts(), Decoding(12))
    whole = Memory.__call__

    def forgets(self: Memory, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = whole(self, k, v)
        keys[:, :, -2] = 0
        return keys, values

    monkeypatch.setattr(Memory, "__call__", forgets)
    assert generate(model, prompts(), Decoding(12)) != right


def test_logits_are_those_of_training() -> None:
    """The last logits of prompts padded before are those of each prompt alone in an ordinary pass."""
    model = model_of().eval()
    found = prompts(4)
    ids, real = padded_before(found)
    with torch.no_grad():
        together = last_logits(model, ids, real, ids.shape[1])
        for row, prompt in enumerate(found):
            alone = model.lm_logits(model.hidden(torch.from_numpy(prompt).long()[None]))[0, -1]
            assert torch.allclose(together[row], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("decoding", [Decoding(16), Decoding(16, 1.0, 0.95)], ids=["greedy", "drawn"])
def test_an_answer_owes_nothing_to_its_company(decoding: Decoding) -> None:
    model = model_of()
    assert generate(model, prompts(), decoding, rows=1) == generate(model, prompts(), decoding, rows=32)


def test_answers_are_bounded_and_stop_at_the_end() -> None:
    model = model_of()
    free = generate(model, prompts(40), Decoding(20, 1.0))
    ended = [answer for answer in free if len(answer) < 20]
    assert ended and any(len(answer) == 20 for answer in free), "some stop at END, some at the bound"
    assert all(END_ID not in answer for answer in free)
    assert max(len(answer) for answer in generate(model, prompts(40), Decoding(5, 1.0))) == 5
    short, long = (generate(model, prompts(), Decoding(tokens)) for tokens in (5, 9))
    assert short == [answer[:5] for answer in long]


def test_banned_tokens_are_never_given() -> None:
    model = model_of()
    banned = [PAD_ID, *range(20, 40)]
    free = {t for answer in generate(model, prompts(20), Decoding(20, 2.0)) for t in answer}
    held = {t for answer in generate(model, prompts(20), Decoding(20, 2.0), banned=banned) for t in answer}
    assert free & set(banned) and not held & set(banned)
    assert not {t for a in generate(model, prompts(20), Decoding(20), banned=banned) for t in a} & set(banned)


def test_the_seed_decides_what_is_drawn() -> None:
    model = model_of()
    one, same, other = (generate(model, prompts(), Decoding(20, 1.5, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_drawing_follows_the_probabilities_and_top_p() -> None:
    p = torch.tensor([0.5, 0.2, 0.2, 0.1])
    logits = p.log().expand(20_000, 4).clone()
    draws = np.random.default_rng(0).random(20_000)
    drawn = next_tokens(logits, Decoding(1, 1.0), draws)
    assert np.bincount(drawn, minlength=4) / 20_000 == pytest.approx([0.5, 0.2, 0.2, 0.1], abs=0.012)
    drawn = next_tokens(logits, Decoding(1, 1.0, top_p=0.6), draws)
    assert np.bincount(drawn, minlength=4) / 20_000 == pytest.approx([0.5 / 0.7, 0.2 / 0.7, 0, 0], abs=0.012)
    assert set(next_tokens(logits, Decoding(1, 1.0, top_p=0.1), draws)) == {0}, "the likeliest is always among them"
    sharper = np.bincount(next_tokens(logits, Decoding(1, 0.5), draws), minlength=4) / 20_000
    assert sharper == pytest.approx(np.array([25, 4, 4, 1]) / 34, abs=0.012)
    assert next_tokens(logits[:2], Decoding(1, 1.0), np.array([0.0, 1 - 2**-53])).tolist() == [0, 3]


def test_attention_forgets_afterwards_even_after_an_error() -> None:
    model = model_of()
    generate(model, prompts(), Decoding(3))
    with pytest.raises(RuntimeError), remembering(model, 4):
        raise RuntimeError
    assert all(module.memory is None for module in model.modules() if isinstance(module, Attention))
    assert not generate(model, [], Decoding(3))


def test_what_cannot_be_answered_is_an_error() -> None:
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        generate(model_of(), [np.array([3]), np.array([], dtype=np.int32)], Decoding(3))
    with pytest.raises(ValueError, match="60 \\+ 5 tokens"):
        generate(model_of(), [np.full(60, 3)], Decoding(5))
    with pytest.raises(ValueError, match="only a causal one"):
        generate(model_of(replace(SHAPE, causal=False)), prompts(), Decoding(3))
