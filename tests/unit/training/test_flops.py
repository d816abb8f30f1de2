"""FLOPs counted from a model's shape are those that torch counts while it trains."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from training.config import LayerShape, ModelConfig
from training.flops import backbone_flops, classifying_flops, pretraining_flops, weights
from training.loader import TokenBatch
from training.model import Classifier, Transformer
from training.ranks import token_loss_sum

ROWS, TOKENS, VOCAB = 3, 24, 80
OURS = ModelConfig.from_depth(2, VOCAB, max_len=TOKENS)
PRUNED = replace(OURS, layers=(LayerShape(1, 40), LayerShape(3, 24)))
BERT = ModelConfig(
    VOCAB, 64, (LayerShape(4, 96),) * 2, head_dim=16, max_len=TOKENS, norm="layer", norm_place="post",
    activation="gelu", position="learned", causal=False, bias=True,
)  # fmt: skip


def counted(config: ModelConfig, kernel: str = "plain") -> int:
    """What torch counts of a step in which every place is real."""
    model = Transformer(config)
    model.set_attention(kernel)  # type: ignore[arg-type]
    ids = torch.randint(0, VOCAB, (ROWS, TOKENS))
    batch = TokenBatch(ids, ids, torch.zeros_like(ids))
    with FlopCounterMode(display=False) as counter:
        token_loss_sum(model, batch, "fp32").backward()
    return counter.get_total_flops()


SHARED = replace(OURS, layers=(LayerShape(4, 64, kv_heads=2),) * 2, activation="relu2", tied=False)


@pytest.mark.parametrize(
    "config", [OURS, PRUNED, BERT, SHARED], ids=["ours", "pruned", "bert", "grouped queries, untied"]
)
def test_a_step_takes_what_torch_counts(config: ModelConfig) -> None:
    assert pretraining_flops(config, TOKENS, ROWS * TOKENS, ROWS * TOKENS) == counted(config)


def test_a_classifier_takes_what_torch_counts_but_for_its_head() -> None:
    model = Classifier(Transformer(OURS), classes=3)
    ids = torch.randint(0, VOCAB, (ROWS, TOKENS))
    with FlopCounterMode(display=False) as counter:
        model(ids, torch.ones_like(ids)).sum().backward()
    head = 3 * 2 * ROWS * OURS.width * 3
    assert classifying_flops(OURS, TOKENS) * ROWS + head == counter.get_total_flops()


def test_attention_counts_by_the_length_of_a_row() -> None:
    """A control: without attention's own products the count above would be too low."""
    short, long = (backbone_flops(OURS, tokens) for tokens in (TOKENS, 2 * TOKENS))
    assert long - short == sum(4 * TOKENS * shape.heads * OURS.head_dim for shape in OURS.layers) > 0


def test_tokens_without_a_target_count_but_for_the_output() -> None:
    """As in a prompt: they go through the blocks, and nothing is asked of them."""
    asked, read = (pretraining_flops(OURS, TOKENS, 10, targets) for targets in (10, 0))
    assert asked - read == 3 * 2 * 10 * OURS.width * VOCAB


def test_counting_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    weights.cache_clear()
    assert pretraining_flops(OURS, TOKENS, 1, 1) > 0
    assert torch.equal(torch.get_rng_state(), before)
