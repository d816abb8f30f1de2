"""What a text measures: every number that a quality rule can be about, taken once and stored.

Nothing is decided here: a changed threshold decides anew over the stored numbers (data/quality/rules.py). All measures
hold for any script: a character of a script without spaces is a token of its own, and half a word. Shares lie between
0 and 1. A measure is null where a text has nothing to measure, and then no rule about it applies.

Sources: Gopher (Rae et al. 2021, table A1), C4 (Raffel et al. 2020, section 2.2), FineWeb (Penedo et al. 2024, section
3.5), RedPajama-V2's quality annotations (Weber et al. 2024). Measures without a source are this module's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data.quality import characters, hashing, lines, words
from data.quality.languages import identify
from data.quality.phrases import BOILERPLATE, LOREM_IPSUM, STOP_WORDS
from data.quality.scripts import letter_pairs, table

# Repetition and shares are only told where there is enough of a text to have them.
MIN_LINES, MIN_TOKENS, MIN_LETTERS, MIN_WORDS, MIN_PAIRS, MIN_HAN = 4, 20, 20, 5, 60, 5
TABLE_PLACES = 2_048  # of stop words and phrases, a power of two and several times their number

Numbers = NDArray[np.float64]


def measures_of(of: SimpleNamespace) -> dict[str, Numbers]:
    """The measures by name, from the counts of data/quality/{characters,lines,words}.py; NaN: nothing to measure."""
    visible, tokens = np.maximum(of.chars - of.spaces, 1), np.maximum(of.tokens, 1)
    word_count = of.tokens - of.unspaced / 2
    enough = of.tokens >= MIN_TOKENS
    latin = of.latin_letters >= 0.9 * (of.letters + of.unspaced)

    def repeated(count: Numbers, of_what: Numbers) -> Numbers:
        return np.where(enough, np.minimum(count / np.maximum(of_what, 1), 1), 0)

    return {
        # how much there is: Gopher keeps 50 to 100,000 words
        "chars": of.chars,
        "words": word_count,
        "lines": of.lines,
        "sentences": of.sentences,  # C4 keeps 3 and more
        # characters
        "symbol_ratio": of.symbols / visible,  # visible characters that are no letters, marks or digits
        "broken_ratio": of.broken / np.maximum(of.chars, 1),  # left by a wrong decoding: U+FFFD, controls, mojibake
        "invisible_ratio": of.invisible / np.maximum(of.chars, 1),  # zero-width and other formatting characters
        "digit_ratio": of.digits / visible,
        "upper_ratio": share(of.uppers, of.uppers + of.lowers, MIN_LETTERS),  # RedPajama-V2 counts words
        "space_ratio": of.spaces / np.maximum(of.chars, 1),
        "char_runs": of.in_runs / visible,  # visible characters in runs of five and more of the same
        "rare_han": share(of.rare_han, of.han, MIN_HAN),  # Han outside the everyday levels of GB 2312, Big5 and JIS
        # words; inner_symbols: b!ts of other signs in a w#rd
        "mean_word_length": share(of.letters, of.letter_words, 1),  # letters a word; Gopher keeps 3 to 10
        "mean_sentence_words": word_count / np.maximum(of.sentences, 1),
        "unique_words": share(of.unique, of.tokens, 1),  # distinct among the tokens; RedPajama-V2
        "word_entropy": of.entropy,  # of the tokens' frequencies, bits; RedPajama-V2
        "stop_words": of.stop_words,  # distinct common English words; Gopher keeps 2 and more
        "stop_word_share": of.stop_tokens / tokens,  # RedPajama-V2
        "alpha_words": of.letter_chunks / np.maximum(of.chunks, 1),  # chunks with a letter; Gopher keeps 0.8 and more
        "symbol_words": of.dots / np.maximum(word_count, 1),  # # and ellipses a word; Gopher keeps up to 0.1
        "inner_symbols": np.minimum(of.inner_symbols / np.maximum(of.letter_words - of.inner_symbols, 1), 1),
        "inner_caps": of.inner_caps / np.maximum(of.letter_words, 1),  # wOrds with capitals after small letters
        "mixed_script_words": of.mixed_words / np.maximum(of.letter_words, 1),  # letters of two alphabets in a word
        # letters that are no language (Latin script)
        "letter_fit": np.where(latin, share(of.fit, of.pairs, MIN_PAIRS), np.nan),  # mean log2 chance of a letter
        "vowelless_words": share(of.vowelless, of.latin_words, MIN_WORDS),
        "home_row": share(of.home_row, of.latin_letters, MIN_LETTERS),  # letters of a keyboard's middle row
        # lines
        "bullet_lines": of.bullets / np.maximum(of.lines, 1),  # Gopher keeps up to 0.9
        "ellipsis_lines": of.ellipses / np.maximum(of.lines, 1),  # Gopher keeps up to 0.3
        "terminal_lines": of.terminals / np.maximum(of.lines, 1),  # end as sentences; FineWeb keeps above 0.12
        "short_lines": of.short / np.maximum(of.lines, 1),  # FineWeb keeps below 0.67
        "newline_ratio": of.newlines / np.maximum(word_count, 1),  # line ends a word; FineWeb keeps up to 0.3
        "open_end": of.open_end,  # 1 where the text does not end as a sentence does
        # repetition: all Gopher's; it keeps up to 0.2, 0.3, 0.2, 0.18, 0.16 and 0.15 down to 0.10
        "repeated_lines": of.repeated_chars / np.maximum(of.line_chars, 1) * (of.lines >= MIN_LINES),
        "repeated_paragraphs": of.repeated_paragraphs / np.maximum(of.paragraphs, 1) * (of.paragraphs >= MIN_LINES),
        "repeated_ngrams": repeated(of.again_4, of.tokens - 3),  # runs of four tokens that were there before
        "top_2gram": repeated(of.top_2, of.token_chars),  # characters of the commonest run of two tokens
        "top_3gram": repeated(of.top_3, of.token_chars),
        "top_4gram": repeated(of.top_4, of.token_chars),
        "repeated_5grams": repeated(of.covered_5, of.token_chars),  # characters in runs that were there before
        "repeated_6grams": repeated(of.covered_6, of.token_chars),
        "repeated_7grams": repeated(of.covered_7, of.token_chars),
        "repeated_8grams": repeated(of.covered_8, of.token_chars),
        "repeated_9grams": repeated(of.covered_9, of.token_chars),
        "repeated_10grams": repeated(of.covered_10, of.token_chars),
        "stuttered": of.stuttered / tokens,  # tokens in runs of up to eight that stand right before them as well
        # what is no text
        "boilerplate": of.boilerplate / tokens,  # tokens beside a phrase of every page's footer; C4 drops such lines
        "lorem_ipsum": of.lorem_ipsum,  # its phrases; C4 keeps 0
        "curly_ratio": of.curly / visible,  # C4 keeps 0
        "markup_ratio": of.markup / np.maximum(of.chars, 1),  # characters in tags and entities
        "url_ratio": of.address / visible,  # characters of web and mail addresses
        "encoded_ratio": np.minimum(of.encoded / visible, 1),  # characters of base64, hexadecimal and escapes
    }


COUNTS = ("chars", "lines", "sentences", "stop_words", "lorem_ipsum")
LANGUAGE = (("language", pa.string()), ("language_p", pa.float32()))  # ISO 639 code or "und", and its probability


def share(part: Numbers, whole: Numbers, least: int) -> Numbers:
    """part / whole, or NaN where the whole is less than `least`."""
    return np.where(whole >= least, part / np.maximum(whole, 1), np.nan)


def measure_batch(texts: Sequence[str | None]) -> pa.Table:
    """A row of MEASURES for each text, in order; a missing text measures as an empty one.

    White space at both ends of a text does not count.
    """
    stripped = [(text or "").strip() for text in texts]
    measured = measures_of(counts_of(stripped))
    columns = [
        pa.array(values.astype(np.int32)) if name in COUNTS else pa.array(values.astype(np.float32), from_pandas=True)
        for name, values in measured.items()
    ]
    return pa.table([*columns, *identify(stripped)], schema=MEASURES)


def measure(text: str) -> dict[str, Any]:
    """The measures of one text by name. For many texts measure_batch is far faster a text."""
    return measure_batch([text]).to_pylist()[0]


def counts_of(texts: Sequence[str]) -> SimpleNamespace:
    """All counts by name, an array each."""
    chars = np.fromiter(map(len, texts), np.int64, len(texts))
    offsets = np.concatenate([[0], np.cumsum(chars)])
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    flags, folded, latin = table()
    found = {kernel: np.zeros((len(texts), len(kernel.COUNTS))) for kernel in (characters, lines, words)}
    characters.count_characters(codes, offsets, flags, latin, letter_pairs(), found[characters])
    lines.count_lines(codes, offsets, flags, found[lines])
    words.count_words(codes, offsets, flags, folded, *word_table(), found[words])
    named = {name: counts[:, at] for kernel, counts in found.items() for at, name in enumerate(kernel.COUNTS)}
    return SimpleNamespace(chars=chars.astype(np.float64), **named)


@cache
def word_table() -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Stop words, boilerplate and lorem ipsum by the hashes of their tokens."""
    meanings = {phrase_hashes(word)[0]: number for number, word in enumerate(STOP_WORDS)}
    for phrases, meaning in ((BOILERPLATE, words.PHRASE), (LOREM_IPSUM, words.LOREM)):
        for *beginnings, whole in map(phrase_hashes, phrases):
            meanings[whole] = meaning + meanings.get(whole, 0) // words.PREFIX * words.PREFIX
            for beginning in beginnings:
                meanings[beginning] = meanings.get(beginning, words.NOTHING) % words.PREFIX + words.PREFIX
    keys, values = np.zeros(TABLE_PLACES, np.uint64), np.zeros(TABLE_PLACES, np.int64)
    for key, meaning in meanings.items():
        place = key % TABLE_PLACES
        while keys[place]:
            place = (place + 1) % TABLE_PLACES
        keys[place], values[place] = key, meaning
    return keys, values


def phrase_hashes(phrase: str) -> list[int]:
    """The hashes of the runs of tokens that begin a phrase, the whole last."""
    flags, folded, _ = table()
    codes = np.frombuffer(phrase.encode("utf-32-le"), np.uint32)
    hashes, sizes, starts = np.empty(len(codes), np.uint64), *(np.empty(len(codes), np.int64) for _ in range(2))
    count = hashing.tokenize(codes, flags, folded, hashes, sizes, starts)
    keys = [int(hashes[0])]
    for token in range(1, count):
        keys.append(int(hashing.extended(np.uint64(keys[-1]), hashes[token])))
    return keys


def names() -> list[str]:
    counts = {name: np.empty(0) for kernel in (characters, lines, words) for name in kernel.COUNTS}
    return list(measures_of(SimpleNamespace(chars=np.empty(0), **counts)))


MEASURES = pa.schema([(name, pa.int32() if name in COUNTS else pa.float32()) for name in names()] + list(LANGUAGE))
