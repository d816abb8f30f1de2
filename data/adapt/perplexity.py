"""A small interpolated trigram model whose training texts can be weighed anew in milliseconds.

What the pool's texts say of the n-grams that the target asks for is counted once, text by text; a model for any weights
of the texts is then one product of a sparse matrix with the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from data.adapt.features import Hashes, Tokens, joined

Floats = NDArray[np.float64]

ORDERS = 3
START = np.uint64(0x5DEECE66D)  # stands before the first token of a text
# How many tokens of evidence the shorter context counts for; each model takes what is best on the texts it may see.
STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass(frozen=True)
class Evidence:
    """Counts of the pool's texts, a row a text, for the n-grams and contexts that stand in the target's texts.

    `grams[o]` and `contexts[o]` are for order o + 1; the context of a single word is empty, so `contexts[0]` has one
    column, a text's number of tokens. `gram_of[o]` and `context_of[o]` name the columns of each of the target's tokens.
    """

    grams: list[csr_matrix]
    contexts: list[csr_matrix]
    gram_of: list[NDArray[np.int64]]
    context_of: list[NDArray[np.int64]]
    rows: NDArray[np.int64]  # of each of the target's tokens its text
    texts: int  # of the target
    vocabulary: int  # distinct tokens of the pool, and one that stands for all others


def gather(pool: Sequence[Tokens], asked: Tokens) -> Evidence:
    """Count the tokens of the pool's texts, given in parts, for what the target's tokens ask."""
    gram_keys, gram_of, context_keys, context_of = [], [], [], []
    for grams, contexts in orders(asked):
        keys, of = np.unique(grams, return_inverse=True)
        gram_keys.append(keys)
        gram_of.append(of)
        keys, of = np.unique(contexts, return_inverse=True)
        context_keys.append(keys)
        context_of.append(of)
    found: list[list[csr_matrix]] = [[] for _ in range(2 * ORDERS)]
    vocabulary = np.zeros(0, np.uint64)
    for tokens in pool:
        vocabulary = np.union1d(vocabulary, tokens.hashes)
        rows = tokens.rows
        for order, (grams, contexts) in enumerate(orders(tokens)):
            found[order].append(counted(gram_keys[order], grams, rows, len(tokens)))
            found[ORDERS + order].append(counted(context_keys[order], contexts, rows, len(tokens)))
    stacked = [csr_matrix(vstack(parts, format="csr")) for parts in found]
    return Evidence(
        stacked[:ORDERS], stacked[ORDERS:], gram_of, context_of, asked.rows, len(asked), len(vocabulary) + 1
    )


def orders(tokens: Tokens) -> list[tuple[Hashes, Hashes]]:
    """For orders 1 to 3 the n-gram that ends at each token, and its context: the n-gram without that token."""
    words = tokens.hashes
    before = shifted(words, tokens, 1)
    pair = joined(shifted(words, tokens, 2), before)
    return [
        (words, np.zeros(len(words), np.uint64)),
        (joined(before, words), before),
        (joined(pair, words), pair),
    ]


def shifted(words: Hashes, tokens: Tokens, by: int) -> Hashes:
    """The word `by` places before each token, START where the text begins later."""
    result = np.full(len(words), START)
    result[by:] = words[:-by] if len(words) > by else words[:0]
    place = np.arange(len(words)) - np.repeat(tokens.starts[:-1], np.diff(tokens.starts))
    result[place < by] = START
    return result


def counted(keys: Hashes, found: Hashes, rows: NDArray[np.int64], texts: int) -> csr_matrix:
    """float32 [texts, keys]: how often each key was found in each text."""
    if not len(keys):
        return csr_matrix((texts, 0), dtype=np.float32)
    columns = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
    hit = keys[columns] == found
    ones = np.ones(int(hit.sum()), np.float32)
    matrix = csr_matrix((ones, (rows[hit], columns[hit])), shape=(texts, len(keys)))
    matrix.sum_duplicates()
    return matrix


def losses(evidence: Evidence, weights: NDArray[np.float32]) -> Floats:
    """float64 [strengths, target texts]: the sum over a text's tokens of -ln p, under the model of weighed texts.

    p(w | context) = (count(context w) + strength * p(w | shorter context)) / (count(context) + strength), down to a
    uniform distribution over the vocabulary (MacKay and Peto 1995); counts are sums of weights.
    """
    grams = [evidence.grams[o].T @ weights.astype(np.float64) for o in range(ORDERS)]
    contexts = [evidence.contexts[o].T @ weights.astype(np.float64) for o in range(ORDERS)]
    result = np.zeros((len(STRENGTHS), evidence.texts))
    for place, strength in enumerate(STRENGTHS):
        chance = np.full(len(evidence.rows), 1 / evidence.vocabulary)
        for o in range(ORDERS):
            hits, seen = grams[o][evidence.gram_of[o]], contexts[o][evidence.context_of[o]]
            chance = (hits + strength * chance) / (seen + strength)
        result[place] = np.bincount(evidence.rows, -np.log(chance), minlength=evidence.texts)
    return result


def token_counts(evidence: Evidence) -> NDArray[np.int64]:
    """Tokens of each of the target's texts."""
    return np.bincount(evidence.rows, minlength=evidence.texts)
