"""Questions to the segments of an index: which earlier texts a text is equal or near to, and whether they may merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import zstandard

from data.dedup.config import FindConfig
from data.dedup.fold import batches, exact_keys, fold
from data.dedup.jaccard import jaccard
from data.dedup.minhash import band_keys, sign_shingles
from data.dedup.protect import Protector
from data.dedup.segment import Array, Segment, joint_keys
from data.dedup.sign import digest_of, halves, starts_of
from data.dedup.tokens import Ragged, distinct, shingle_hashes, token_hashes

PAIRS = 50_000  # candidates whose shingles are held at once

Key = tuple[int, int]  # 128 bits of BLAKE2b as two halves


@dataclass(frozen=True)
class Ways:
    """How texts are read and compared."""

    find: FindConfig
    protector: Protector


@dataclass(frozen=True)
class Reading:
    """Texts and everything that they are looked up by, in their order."""

    texts: list[str]
    exact: Array  # [n, 2] uint64, zeros for a text of nothing
    shingles: Ragged  # distinct, sorted
    bands: Array  # [b, n] uint64; of no meaning where a text has no shingles
    prints: Array  # [n] uint64, protected fingerprints

    @property
    def signed(self) -> Array:
        """Places of the texts that have shingles."""
        return np.flatnonzero(self.shingles.lengths)


class Near(NamedTuple):
    """An earlier text by its exact key, how similar it is, and the protected difference that forbids a merge."""

    exact: Key
    similarity: float
    veto: str | None


def read(texts: Sequence[str], ways: Ways) -> Reading:
    plan = ways.find.bands
    exact, bands = np.zeros((len(texts), 2), np.uint64), np.zeros((plan.count, len(texts)), np.uint64)
    values, sizes = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for part in batches(texts):
        folded = fold(texts[part])
        exact[part] = halves([key or bytes(16) for key in exact_keys(folded)])
        shingles = distinct(shingle_hashes(token_hashes(folded), ways.find.shingle))
        bands[:, part] = band_keys(sign_shingles(shingles).values, plan.count, plan.rows)
        values.append(shingles.values)
        sizes.append(shingles.lengths)
    prints = np.array([ways.protector.fingerprint(text) for text in texts], np.uint64)
    shingles = Ragged(np.concatenate(values), starts_of(np.concatenate(sizes)))
    return Reading(list(texts), exact, shingles, bands, prints)


def near(reading: Reading, segments: Sequence[Segment], ways: Ways) -> list[list[Near]]:
    """For each text the earlier ones at or above the floor, its equal among them, most similar first."""
    found: list[dict[Key, Near]] = [{} for _ in reading.texts]
    candidates = candidates_of(reading, segments, ways)
    for start in range(0, len(candidates), PAIRS):
        part = candidates[start : start + PAIRS]
        similar = similarities(reading, segments, part)
        for place in np.flatnonzero(similar >= ways.find.floor).tolist():
            at, number, entry = part[place].tolist()
            segment = segments[number]
            veto = ways.protector.veto(reading.texts[at], text_of(segment, entry))
            high, low = segment.exact[segment.owners[entry]].tolist()
            found[at][high, low] = Near((high, low), float(similar[place]), veto)
    for at in np.flatnonzero(known_texts(reading, segments) & reading.exact.any(axis=1)).tolist():
        high, low = reading.exact[at].tolist()
        found[at][high, low] = Near((high, low), 1.0, None)
    return [sorted(own.values(), key=lambda one: (-one.similarity, one.exact)) for own in found]


def candidates_of(reading: Reading, segments: Sequence[Segment], ways: Ways) -> Array:
    """[k, 3] distinct (text, segment, entry): those that share a band and the protected fingerprint, the best ones of a
    large bucket only; and for each band the one entry that represents it, whatever its fingerprint."""
    found = [np.empty((0, 3), np.int64)]
    cap = ways.find.max_bucket
    for band, keys in enumerate(reading.bands):
        joint = joint_keys(keys, reading.prints)
        merging = [
            matches(segment.keys[band], segment.rows[band], joint, reading.signed, number, cap)
            for number, segment in enumerate(segments)
        ]
        stars = [
            matches(*segment.star(band), keys, reading.signed, number, 1) for number, segment in enumerate(segments)
        ]
        found += [best_entries(merging, segments, cap), best_entries(stars, segments, 1)]
    return np.unique(np.concatenate(found), axis=0)


def matches(keys: Array, rows: Array, wanted: Array, asking: Array, number: int, most: int) -> Array:
    """[k, 3] (text, segment, entry): the first `most` entries whose key (sorted) a text wants."""
    left = np.searchsorted(keys, wanted[asking], "left")
    counts = np.minimum(np.searchsorted(keys, wanted[asking], "right") - left, most)
    entries = rows[ranges(left, counts)].astype(np.int64)
    return np.column_stack([np.repeat(asking, counts), np.full(len(entries), number), entries])


def best_entries(parts: Sequence[Array], segments: Sequence[Segment], most: int) -> Array:
    """At most `most` of each text's entries over all segments: those with most shingles, then the smallest keys."""
    if not parts:
        return np.empty((0, 3), np.int64)
    found = np.concatenate(parts)
    if len(parts) == 1 or not len(found):
        return found
    sizes, exact = np.empty(len(found), np.int64), np.empty((len(found), 2), np.uint64)
    for number, segment in enumerate(segments):
        mine = found[:, 1] == number
        entries = found[mine, 2]
        sizes[mine] = segment.shingle_starts[entries + 1] - segment.shingle_starts[entries]
        exact[mine] = segment.exact[segment.owners[entries]]
    found = found[np.lexsort((exact[:, 1], exact[:, 0], -sizes, found[:, 0]))]
    return found[np.arange(len(found)) - np.searchsorted(found[:, 0], found[:, 0], "left") < most]


def similarities(reading: Reading, segments: Sequence[Segment], candidates: Array) -> Array:
    """Exact Jaccard of the candidates, from the shingles that are stored."""
    values, starts = [reading.shingles.values], [reading.shingles.starts]
    sides = np.empty(len(candidates), np.int64)
    for number, segment in enumerate(segments):
        mine = candidates[:, 1] == number
        entries, places = np.unique(candidates[mine, 2], return_inverse=True)
        begins = segment.shingle_starts[entries]
        sizes = segment.shingle_starts[entries + 1] - begins
        sides[mine] = sum(map(len, starts)) - 1 + places
        starts.append(starts[-1][-1] + np.cumsum(sizes))
        values.append(segment.shingles[ranges(begins, sizes)])
    limits = np.concatenate(starts)
    return jaccard(np.concatenate(values), limits[:-1], limits[1:], candidates[:, 0], sides)


def best_member(segments: Sequence[Segment], key: Key) -> str | None:
    """The id of the record that is best by content among those with an exact key; None where there is none."""
    ranked = []
    for segment in segments:
        place = places_of(segment.exact_keys, np.array([key], np.uint64))[0]
        if place >= 0:
            ranked.append(segment.rank(int(segment.exact_rows[place])))
    return min(ranked)[-1] if ranked else None


def places_of(keys: Array, wanted: Array) -> Array:
    """For each wanted key [k, 2] its first place among sorted ones [n, 2], or -1 where it is not there."""
    highs, lows = keys[:, 0], keys[:, 1]
    places = np.searchsorted(highs, wanted[:, 0], "left").astype(np.int64)
    there = np.flatnonzero(places < len(keys))
    there = there[highs[places[there]] == wanted[there, 0]]
    answers = np.full(len(wanted), -1, np.int64)
    equal = lows[places[there]] == wanted[there, 1]
    answers[there[equal]] = places[there[equal]]
    for at in there[~equal].tolist():  # keys that share 64 bits and no more: once in billions
        left, right = np.searchsorted(highs, wanted[at, 0], "left"), np.searchsorted(highs, wanted[at, 0], "right")
        place = int(left + np.searchsorted(lows[left:right], wanted[at, 1]))
        if place < right and lows[place] == wanted[at, 1]:
            answers[at] = place
    return answers


def known_texts(reading: Reading, segments: Sequence[Segment]) -> Array:
    """[n] bool: which texts have an equal in a segment."""
    known = np.zeros(len(reading.texts), bool)
    for segment in segments:
        known |= places_of(segment.exact_keys, reading.exact) >= 0
    return known


def ranges(begins: Array, counts: Array) -> Array:
    """begins[0], begins[0] + 1, ... `counts[0]` of them, then the same of the next."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - counts), counts)


def hashes_of(texts: Sequence[str]) -> Array:
    """[n, 2] uint64."""
    return halves([digest_of(text) for text in texts])


def keys_of(hashes: Array) -> list[Key]:
    return [(high, low) for high, low in hashes.tolist()]


def text_of(segment: Segment, entry: int) -> str:
    return zstandard.decompress(segment.packed_text(entry)).decode()
