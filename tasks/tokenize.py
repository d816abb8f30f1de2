"""Text to tokens: a byte-level BPE learned from the train split, and token shards for pretraining.

A corpus apart from the task's texts gets a shard of its own, without what the task is judged on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field
from tokenizers import Tokenizer

from data.corpus import Tally, corpus_files, documents
from data.errors import DaymillError
from data.heldout import HeldOut
from data.shards import read_table
from data.tokens import CORPUS, encode, load_tokenizer, train_tokenizer, window, write_tokens
from tasks.params import Params
from tasks.stage import Context, Result, run

SPLIT = Path("artifacts/split")
OUT = Path("artifacts/tokenize")
BATCH = 512  # texts encoded at one time


class Tokenize(Params):
    vocab_size: int = Field(ge=258, le=1 << 20, description="Entries of the vocabulary.")
    max_chars: int = Field(ge=1, description="Characters of a record that are looked at.")
    tail: float = Field(ge=0, le=1, description="Share of them taken from the end of a longer record.")
    max_token_length: int = Field(ge=1, description="Characters of the longest vocabulary entry.")
    corpus: str = Field(min_length=1, description="File or folder of texts to pretrain on; empty: the train split.")


def main(params: Tokenize, ctx: Context) -> Result:
    texts = {name: read_texts(SPLIT / name) for name in ("train", "valid")}
    rows = sum(len(part) for part in texts.values())
    counts: dict[str, int] = {}
    with ctx.out(OUT) as folder:
        folder.mkdir()
        seen = (window(text, params.max_chars, params.tail) for text in texts["train"])
        learned = train_tokenizer(seen, params.vocab_size, params.max_token_length)
        (folder / "tokenizer.json").write_text(learned, encoding="utf-8")
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        with ctx.progress(rows, unit="records") as bar:

            def encoded(part: list[str]) -> Iterator:
                for start in range(0, len(part), BATCH):
                    batch = part[start : start + BATCH]
                    yield from encode(tokenizer, batch, params.max_chars + 1, params.max_chars, params.tail)
                    bar.advance(len(batch))

            for name, part in texts.items():
                counts[name] = write_tokens(folder, name, encoded(part), tokenizer.get_vocab_size())
        apart = write_corpus(folder, params, tokenizer, texts, ctx)
    characters = sum(min(len(text), params.max_chars) for part in texts.values() for text in part)
    total = sum(counts.values())
    metrics: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size(),
        "train_tokens": counts["train"],
        "valid_tokens": counts["valid"],
        "chars_per_token": round(characters / max(total, 1), 3),
    }
    key = f"{total:,} tokens, {characters / max(total, 1):.2f} characters each"
    if apart:
        metrics["corpus"] = apart
        key += f"; corpus {apart['tokens']:,} tokens, {apart['held_out']:,} documents held out"
    return Result(rows, rows, key, metrics)


def write_corpus(
    folder: Path, params: Tokenize, tokenizer: Tokenizer, texts: dict[str, list[str]], ctx: Context
) -> dict[str, int]:
    """The corpus as a token shard; its counts, empty where there is none.

    Raises DaymillError where nothing of it is left.
    """
    files = corpus_files(Path(params.corpus))
    if not files:
        return {}
    held_out = HeldOut([*texts["valid"], *read_texts(SPLIT / "test")], known=texts["train"])
    tally = Tally()
    with ctx.progress(None, unit="documents", label="tokenize corpus") as bar:

        def encoded() -> Iterator:
            for batch in documents(files, params.max_chars, held_out, tally):
                # A character is four bytes at most, and a token one at least: nothing is cut.
                yield from encode(tokenizer, batch, 4 * params.max_chars + 2, params.max_chars)
                bar.advance(len(batch))

        tokens = write_tokens(folder, CORPUS, encoded(), tokenizer.get_vocab_size())
    counts = tally.metrics()
    if not tally.kept:
        raise DaymillError(f"tokenize.corpus: nothing of {params.corpus} is left to train on ({counts})")
    return counts | {"tokens": tokens}


def read_texts(folder: Path) -> list[str]:
    texts: list[str] = read_table(folder, columns=["text"])["text"].to_pylist()
    if not texts and folder.name == "train":
        raise DaymillError(f"{folder} has no records: nothing to learn a vocabulary from")
    return texts


if __name__ == "__main__":
    run("tokenize", Tokenize, main)
