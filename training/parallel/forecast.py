"""How long a step will take with each bucket sent this or that way, and which way is the fastest: numbers alone.

A backward pass makes buckets ready one after the other; packing a bucket delays all that follows it, and messages
share one link, each after the one before. So a bucket that travels behind the backward pass gains nothing from being
small, and the last ones gain all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Method = Literal["dense", "top-k", "power-sgd"]
LOW_RANK_PRICE = 0.10  # more steps that PowerSGD needs, measured in short runs at 2 to 8 ranks (docs/log.md)
LARGEST_PRICE = 0.05, 0.02  # the same of top-k: so much, and so much a rank, whose blocks grow with their number


@dataclass(frozen=True)
class Cost:
    """Seconds of one bucket: computing before, between and after its messages, and their time on an idle link."""

    pack: float
    first: float
    between: float = 0.0
    second: float = 0.0
    unpack: float = 0.0

    @property
    def alone(self) -> float:
        """Seconds with nothing else to do."""
        return self.pack + self.first + self.between + self.second + self.unpack


@dataclass(frozen=True)
class Step:
    """Seconds from a dense step's beginning until each bucket was ready and the backward pass was over, and those of
    what follows when all sums are back (clipping, the optimizer)."""

    ready: tuple[float, ...]
    computed: float
    after: float


Options = Sequence[Mapping[Method, Cost]]  # of each bucket; every one has "dense"


def seconds(step: Step, costs: Sequence[Cost]) -> float:
    """Seconds of a step whose buckets cost this."""
    now = link = late = 0.0
    arrived = []
    for ready, cost in zip(step.ready, costs, strict=True):
        now = max(now, ready + late) + cost.pack
        late += cost.pack
        link = max(link, now) + cost.first
        arrived.append(link)
    now = max(now, step.computed + late)
    for at, cost in enumerate(costs):
        if cost.second:
            now = max(now, arrived[at]) + cost.between
            link = max(link, now) + cost.second
            arrived[at] = link
    for at, cost in enumerate(costs):
        now = max(now, arrived[at]) + cost.unpack
    return now + step.after


def price(methods: Sequence[Method], ranks: int) -> float:
    """The share of more steps that gradients sent like this are taken to need: a step must gain more to be worth it."""
    fixed, a_rank = LARGEST_PRICE
    prices = {"dense": 0.0, "power-sgd": LOW_RANK_PRICE, "top-k": fixed + a_rank * ranks}
    return max(prices[method] for method in methods)


def fastest(step: Step, options: Options, ranks: int) -> list[Method]:
    """The method of each bucket. All are dense unless the step becomes faster by more than their `price`.

    From every bucket sent the same way, one bucket after the other changes to what makes all steps together shorter,
    until none does; the best end of these walks is taken. A step is never predicted to be slower than a dense one.
    """
    dense: list[Method] = ["dense"] * len(options)

    def in_all(methods: Sequence[Method]) -> float:
        each = seconds(step, [option[method] for option, method in zip(options, methods, strict=True)])
        return each * (1 + price(methods, ranks))

    best = dense
    for method in dict.fromkeys(method for option in options for method in option):
        walked = walk([method if method in option else "dense" for option in options], options, in_all)
        if in_all(walked) < in_all(best):
            best = walked
    return best


def walk(methods: list[Method], options: Options, in_all: Callable[[Sequence[Method]], float]) -> list[Method]:
    """Change one bucket at a time as long as that shortens all steps together."""
    shortest, changed = in_all(methods), True
    while changed:
        changed = False
        for at, option in enumerate(options):
            for method in option:
                other = [*methods[:at], method, *methods[at + 1 :]]
                if in_all(other) < shortest:
                    methods, shortest, changed = other, in_all(other), True
    return methods
