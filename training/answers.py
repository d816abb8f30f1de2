"""From records with dialogues to a model that answers, and how its answers are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from data.dialogues import Message, dialogue_in
from data.errors import DaymillError
from data.shards import read_table, shard_files
from data.strict_json import Refused
from data.tokens import TokenShard
from training.chat import Dialogue, Template, as_shard, last_answer
from training.model import Transformer
from training.rows import has_weights, row_weights


@dataclass(frozen=True)
class Part:
    """The records of a split's part that hold a dialogue; `without` counts the others."""

    ids: list[str]
    messages: list[list[Message]]
    dialogues: list[Dialogue]
    without: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shard(self) -> TokenShard:
        return as_shard(self.dialogues)

    @property
    def scored(self) -> int:
        """Tokens that count as targets."""
        return sum(int(dialogue.scored.sum()) for dialogue in self.dialogues)

    @property
    def answers(self) -> list[str]:
        """The last answer of each dialogue."""
        return [messages[last_answer(messages)].content for messages in self.messages]

    @property
    def questions(self) -> list[str]:
        """What stands before it."""
        return ["\n".join(m.content for m in messages[: last_answer(messages)]) for messages in self.messages]

    def some(self, count: int) -> list[int]:
        """Numbers of `count` records, evenly picked; of all where there are fewer."""
        taken = min(count, len(self))
        return [number * len(self) // taken for number in range(taken)]

    def sizes(self) -> dict[str, int]:
        """What was found and what did not fit."""
        return {
            "dialogues": len(self),
            "without_dialogue": self.without,
            "tokens": sum(len(dialogue.ids) for dialogue in self.dialogues),
            "scored_tokens": self.scored,
            "messages_left_out": sum(dialogue.left_out for dialogue in self.dialogues),
            "messages_cut": sum(dialogue.cut for dialogue in self.dialogues),
        }


def load_part(folder: Path, template: Template) -> Part:
    """The dialogues of a split's part as tokens. Raises DaymillError where there is none, and for weighted records."""
    weighted = all(has_weights(path) for path in shard_files(folder))
    table = read_table(folder, columns=["id", "extra", *(["weight"] if weighted else [])])
    ids: list[str] = table["id"].to_pylist()
    if weighted and row_weights(table["weight"].to_pylist(), ids, folder) is not None:
        raise DaymillError(
            f"{folder}: records have weights, which learning to answer does not know; set clean.bias.mode to off and "
            "clean.domain.target to null, or clean.domain.mode to select"
        )
    found = [dialogue_or_none(extra) for extra in table["extra"].to_pylist()]
    kept = [(id_, messages) for id_, messages in zip(ids, found, strict=True) if messages is not None]
    if not kept:
        raise DaymillError(
            f"{folder}: none of {len(ids)} records holds a dialogue; expected `messages`, or `prompt` and `completion` "
            "(docs/objectives.md), or finetune.objective: classify"
        )
    dialogues = [template.dialogue(messages) for _, messages in kept]
    return Part([id_ for id_, _ in kept], [messages for _, messages in kept], dialogues, len(ids) - len(kept))


def dialogue_or_none(extra: str) -> list[Message] | None:
    """A record's messages; None where it has none, or broken ones beside a text of its own (which ingest took)."""
    try:
        return dialogue_in(extra)
    except Refused:
        return None


def check_causal(backbone: Transformer) -> None:
    """Raises DaymillError for a model that cannot continue a text."""
    if not backbone.config.causal:
        raise DaymillError(
            "the model to start from sees what comes after a token, so it cannot learn to answer; set finetune.from to "
            "pretrain"
        )


def answering_model(backbone: Transformer, vocab_size: int, dropout: float, seed: int) -> Transformer:
    """A model with the weights of `backbone`, its own dropout, and fresh embeddings for tokens that it did not have."""
    torch.manual_seed(seed)
    model = Transformer(replace(backbone.config, vocab_size=vocab_size, dropout=dropout))
    known = dict(backbone.state_dict())
    fresh = model.state_dict()
    for name in {"embed.weight", "output.weight"} & set(known):  # an adopted model may have an output of its own
        words = known[name]
        known[name] = torch.cat([words, fresh[name][len(words) :]])
    model.load_state_dict(known)
    return model


def shown(
    part: Part, chosen: Sequence[int], answers: dict[str, list[str]], count: int, longest: int = 400
) -> list[dict[str, str]]:
    """A few questions with their references and what each system answered, for people to read."""
    questions, references = part.questions, part.answers
    return [
        {"question": questions[at][:longest], "reference": references[at][:longest]}
        | {name: texts[number][:longest] for name, texts in answers.items()}
        for number, at in list(enumerate(chosen))[:count]
    ]
