"""Text to token ids: a byte-level BPE, bounded encoding, and token shards that are memory-mapped.

Torch-free, so that training and the server encode with the very same code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from data.errors import DaymillError

PAD, END = "<|pad|>", "<|end|>"
PAD_ID, END_ID = 0, 1

TRAIN, VALID, CORPUS = "train", "valid", "corpus"  # shards: the task's splits, and texts apart from them

Ids = NDArray[np.int32]


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_token_length: int = 24) -> str:
    """The tokenizer.json of a byte-level BPE learned from `texts`, the same for any order of them.

    Every byte is in the vocabulary, so any text can be encoded; each text ends with one END token. PAD and END
    are vocabulary entries without merges and not "added tokens": no text of a record can ever spell them.
    `max_token_length` keeps separators and base64 lines from filling the vocabulary.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 2:
        raise DaymillError(f"vocab_size is {vocab_size}; expected at least {len(alphabet) + 2} (all bytes, pad, end)")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, END],
        initial_alphabet=sorted(alphabet),
        max_token_length=max_token_length,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, END_ID)])
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = []
    return json.dumps(spec, ensure_ascii=False, indent=1) + "\n"


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json file; special tokens spelled out in a text are plain text to it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DaymillError(f"no tokenizer at {path}; run the tokenize stage first") from None
    return parse_tokenizer(text, str(path))


def parse_tokenizer(text: str, where: str = "tokenizer.json") -> Tokenizer:
    """The tokenizer of the content of a tokenizer.json."""
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for every malformed file
        raise DaymillError(f"{where}: not a tokenizer.json ({error})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_len: int, max_chars: int, tail: float = 0.0) -> list[Ids]:
    """Token ids [1..max_len] of each text, between the tokenizer's special tokens.

    A text that does not fit gives its first tokens and, for the share `tail` of the room, its last ones: what a
    text is often shows at its end (signatures, footers). At most `max_chars` characters are looked at, shared out
    alike, so that the work per text is bounded. An empty text gives the special tokens alone (or one token 0
    where a tokenizer has none): never an empty array.
    """
    before, after = special_ids(tokenizer)
    room = max_len - len(before) - len(after)
    if room < 0 or max_len < 1:
        raise DaymillError(f"max_len is {max_len}; expected at least {max(1, len(before) + len(after))} tokens")
    if not 0 <= tail <= 1:
        raise DaymillError(f"tail is {tail}; expected a share from 0 to 1")
    last = int(room * tail)
    rows = (before + ends(ids, room - last, last) + after for ids in plain_ids(tokenizer, texts, max_chars, tail))
    return [np.array(row or [0], dtype=np.int32) for row in rows]


def plain_ids(tokenizer: Tokenizer, texts: Sequence[str], max_chars: int, tail: float = 0.0) -> list[list[int]]:
    """Token ids of each text's window, without special tokens; an empty text has none."""
    clean = [window(text, max_chars, tail).encode("utf-8", "replace").decode() for text in texts]  # no lone surrogates
    return [item.ids for item in tokenizer.encode_batch_fast(clean, add_special_tokens=False)]


def window(text: str, max_chars: int, tail: float) -> str:
    """The at most `max_chars` characters of a text that are looked at, the share `tail` of them from its end."""
    last = int(max_chars * tail)
    return ends(text, max_chars - last, last)


Sliced = TypeVar("Sliced", str, list[int])


def ends(items: Sliced, first: int, last: int) -> Sliced:
    """`items` where it fits into first + last, else that many from its two ends."""
    if len(items) <= first + last:
        return items
    return items[:first] + items[len(items) - last :]


def special_ids(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids that the tokenizer puts before and after every text."""
    probe = tokenizer.encode("a")
    flags = probe.special_tokens_mask
    if 0 not in flags:
        raise DaymillError("the tokenizer gives no token for the text 'a'; expected a vocabulary that covers it")
    first, last = flags.index(0), len(flags) - flags[::-1].index(0)
    return probe.ids[:first], probe.ids[last:]


def pad(rows: Sequence[NDArray[np.integer]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and mask [B, T] of rows padded to the longest one; the mask is 1 for real tokens."""
    longest = max((len(row) for row in rows), default=0)
    ids = np.full((len(rows), longest), PAD_ID, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    return ids, mask


@dataclass(frozen=True)
class TokenShard:
    """All documents of one split as a single memory-mapped array of tokens.

    Document i is `tokens[bounds[i]:bounds[i + 1]]`. `targets` are what each token counts as where it is to be
    predicted, where that is not the token itself: data.batching.IGNORE for one that is only read.
    """

    tokens: NDArray[np.integer]
    bounds: NDArray[np.int64]
    targets: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, document: int) -> NDArray[np.integer]:
        return self.tokens[self.bounds[document] : self.bounds[document + 1]]

    def __iter__(self) -> Iterator[NDArray[np.integer]]:
        return (self[document] for document in range(len(self)))


def write_tokens(folder: Path, name: str, documents: Iterable[NDArray[np.integer]], vocab_size: int) -> int:
    """Write `<name>.bin` and `<name>.idx.npy` and return the count of tokens.

    Ids are uint16 where the vocabulary allows, else uint32 (little-endian). Both files are written beside their
    place and renamed, boundaries last: a shard with boundaries is complete.
    """
    kind = np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
    lengths = [0]
    data, index = folder / f"{name}.bin", folder / f"{name}.idx.npy"
    with data.with_suffix(".writing").open("wb") as out:
        for document in documents:
            if len(document) and not 0 <= int(document.min()) <= int(document.max()) < vocab_size:
                raise DaymillError(f"{data}: document {len(lengths) - 1} has ids outside 0..{vocab_size - 1}")
            out.write(document.astype(kind).tobytes())
            lengths.append(len(document))
    bounds = np.cumsum(np.array(lengths, dtype=np.int64))
    with index.with_suffix(".writing").open("wb") as out:
        np.save(out, bounds)
    data.with_suffix(".writing").replace(data)
    index.with_suffix(".writing").replace(index)
    return int(bounds[-1])


def learned_from(folder: Path) -> str:
    """The shard to pretrain on: the corpus where there is one, else the task's own texts."""
    return CORPUS if (folder / f"{CORPUS}.idx.npy").exists() else TRAIN


def read_tokens(folder: Path, name: str) -> TokenShard:
    """The shard `name` of `folder`; raises DaymillError when it is missing or its two files disagree."""
    data, index = folder / f"{name}.bin", folder / f"{name}.idx.npy"
    if not index.exists() or not data.exists():
        raise DaymillError(f"no token shard {name} in {folder}; run the tokenize stage first")
    bounds = np.load(index, allow_pickle=False)
    total, size = int(bounds[-1]), data.stat().st_size
    if size not in (2 * total, 4 * total):
        raise DaymillError(f"{data}: {size} bytes do not hold the {total} tokens that {index.name} promises")
    if not total:
        return TokenShard(np.empty(0, dtype="<u2"), bounds)
    return TokenShard(np.memmap(data, dtype="<u2" if size == 2 * total else "<u4", mode="r"), bounds)
