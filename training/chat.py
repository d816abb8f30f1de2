"""The chat template: a dialogue as tokens, of which only the assistant's count as targets.

A message is the token of its role, the tokens of its content, and END. The role tokens have no merges and are no "added
tokens", as PAD and END in data/tokens.py: no text can spell them, so nobody ends his message and speaks as another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from data.batching import IGNORE
from data.dialogues import ASSISTANT, ROLES, SYSTEM, Message
from data.errors import DaymillError
from data.tokens import END, END_ID, PAD_ID, Ids, TokenShard, ends, parse_tokenizer, plain_ids

MARKS = {role: f"<|{role}|>" for role in ROLES}
FRAME = 2  # tokens of a message beside its content


def with_roles(tokenizer_json: str) -> str:
    """The same tokenizer with the role tokens behind its vocabulary; what texts give does not change.

    Where it has them it stays as it is. Raises DaymillError for a tokenizer that is not our byte-level BPE, or under
    which a text could spell one of them.
    """
    spec = json.loads(tokenizer_json)
    model = spec.get("model", {})
    vocab = model.get("vocab")
    if model.get("type") != "BPE" or not isinstance(vocab, dict) or vocab.get(END) != END_ID:
        raise DaymillError(
            "the tokenizer is not one of the tokenize stage; expected a byte-level BPE with its end token"
        )
    for mark in MARKS.values():
        vocab.setdefault(mark, max(vocab.values()) + 1)
    extended = json.dumps(spec, ensure_ascii=False, indent=1) + "\n"
    tokenizer = parse_tokenizer(extended)
    for mark in MARKS.values():
        if tokenizer.token_to_id(mark) in tokenizer.encode(mark, add_special_tokens=False).ids:
            raise DaymillError(f"the tokenizer makes its token {mark} of a text that holds it; learn a new vocabulary")
    return extended


@dataclass(frozen=True)
class Limits:
    """How much of a dialogue is learned from and answered: tokens, and characters of a message that are looked at.

    `tail` is the share that comes from the end of a message which does not fit. Answers keep their beginning.
    """

    length: int  # of a whole dialogue
    answer: int  # of an answer's content
    max_chars: int
    tail: float = 0.5

    def __post_init__(self) -> None:
        if self.prompt < 2 * FRAME:
            raise DaymillError(
                f"{self.length} tokens of a dialogue leave {self.prompt} for the prompt beside an answer of "
                f"{self.answer}; expected at least {2 * FRAME}: raise finetune.max_len or lower finetune.answer.tokens"
            )

    @property
    def prompt(self) -> int:
        """Tokens before the role token of the last answer."""
        return self.length - self.answer - FRAME


@dataclass(frozen=True)
class Turn:
    """A message as tokens, role token first and END last; `cut` where its content is not whole."""

    role: str
    ids: list[int]
    cut: bool = False


@dataclass(frozen=True)
class Dialogue:
    """Tokens of a dialogue, which of them are targets, and what did not fit."""

    ids: Ids
    scored: NDArray[np.bool_]
    left_out: int = 0  # messages
    cut: int = 0  # messages


class Template:
    """Dialogues to tokens and tokens to text, with one tokenizer and one set of limits."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits) -> None:
        self.tokenizer, self.limits = tokenizer, limits
        found = {role: tokenizer.token_to_id(mark) for role, mark in MARKS.items()}
        self.marks = {role: mark for role, mark in found.items() if mark is not None}
        if missing := [MARKS[role] for role in ROLES if role not in self.marks]:
            raise DaymillError(f"the tokenizer has no role tokens ({', '.join(missing)}); expected one of with_roles")

    @property
    def unspeakable(self) -> list[int]:
        """Tokens that no answer holds."""
        return [PAD_ID, *self.marks.values()]

    def dialogue(self, messages: Sequence[Message]) -> Dialogue:
        """A dialogue to learn from, at most `length` tokens, at least one of them scored.

        What follows the last answer is left out. An answer keeps its first tokens, and where it is cut its END is not
        scored, so that nobody learns to stop in the middle. Before the last answer stands what `history` keeps.
        """
        last = last_answer(messages)
        turns = self.turns(messages[: last + 1])
        history = self.history(turns[:-1])
        kept = [*history, turns[-1]]
        ids = [id_ for turn in kept for id_ in turn.ids]
        scored = [flag for turn in kept for flag in counts(turn)]
        return Dialogue(
            np.array(ids, dtype=np.int32),
            np.array(scored, dtype=np.bool_),
            len(messages) - len(kept),
            sum(turn.cut for turn in kept),
        )

    def question(self, messages: Sequence[Message]) -> Ids:
        """What the last answer answers, up to the assistant's role token: where generation begins."""
        history = self.history(self.turns(messages[: last_answer(messages)]))
        return np.array([*(id_ for turn in history for id_ in turn.ids), self.marks[ASSISTANT]], dtype=np.int32)

    def text(self, ids: Sequence[int]) -> str:
        """What some content says."""
        return str(self.tokenizer.decode(list(ids)))

    def turns(self, messages: Sequence[Message]) -> list[Turn]:
        return [self.turn(message) for message in messages]

    def turn(self, message: Message) -> Turn:
        answers = message.role == ASSISTANT
        tail = 0.0 if answers else self.limits.tail
        (ids,) = plain_ids(self.tokenizer, [message.content], self.limits.max_chars, tail)
        whole = len(message.content) <= self.limits.max_chars
        room = self.limits.answer if answers else self.limits.prompt
        return framed(self.marks[message.role], message.role, ids, room, tail, whole)

    def history(self, turns: list[Turn]) -> list[Turn]:
        """The turns before the last answer in at most `prompt` tokens.

        The oldest messages are left out, whole, but for a system's, and with them an answer whose question is gone;
        where the system's and the last message alone are too long, each is cut to its two ends, the system's to half
        of the room.
        """
        room = self.limits.prompt
        system = turns[:1] if turns and turns[0].role == SYSTEM else []
        others = turns[len(system) :]
        whole = len(others)
        while len(others) > 1 and (
            size(system) + size(others) > room or (len(others) < whole and others[0].role == ASSISTANT)
        ):
            others = others[1:]
        if size(system) + size(others) <= room:
            return system + others
        if system and others:
            half = max(FRAME, room // 2, room - size(others))
            system = [self.shortened(system[0], half)]
        left = room - size(system)
        return system + [self.shortened(turn, left) for turn in others] if others else [self.shortened(system[0], room)]

    def shortened(self, turn: Turn, room: int) -> Turn:
        """A turn in at most `room` tokens, frame included."""
        if len(turn.ids) <= room:
            return turn
        tail = 0.0 if turn.role == ASSISTANT else self.limits.tail
        return framed(turn.ids[0], turn.role, turn.ids[1:-1], room - FRAME, tail, not turn.cut)


def framed(mark: int, role: str, ids: list[int], room: int, tail: float, whole: bool) -> Turn:
    """A turn whose content has at most `room` tokens."""
    last = int(room * tail)
    kept = ends(ids, room - last, last)
    return Turn(role, [mark, *kept, END_ID], not whole or len(kept) < len(ids))


def counts(turn: Turn) -> list[bool]:
    """Which tokens of a turn are targets."""
    answers = turn.role == ASSISTANT
    return [False, *[answers] * (len(turn.ids) - FRAME), answers and not turn.cut]


def size(turns: Sequence[Turn]) -> int:
    return sum(len(turn.ids) for turn in turns)


def last_answer(messages: Sequence[Message]) -> int:
    """Where the last message of the assistant stands. Raises ValueError where there is none behind the first."""
    found = [number for number, message in enumerate(messages) if number and message.role == ASSISTANT]
    if not found:
        raise ValueError("a dialogue without an answer")
    return found[-1]


def as_shard(dialogues: Sequence[Dialogue]) -> TokenShard:
    """Dialogues as documents whose unscored tokens are only read."""
    bounds = np.cumsum([0, *(len(dialogue.ids) for dialogue in dialogues)]).astype(np.int64)
    if not dialogues:
        return TokenShard(np.empty(0, np.int32), bounds, np.empty(0, np.int32))
    tokens = np.concatenate([dialogue.ids for dialogue in dialogues])
    scored = np.concatenate([dialogue.scored for dialogue in dialogues])
    return TokenShard(tokens, bounds, np.where(scored, tokens, IGNORE).astype(np.int32))
