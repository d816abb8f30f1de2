"""What `daymill settings` prints: settings of training, found by trying them on this machine and these tokens."""

from __future__ import annotations

from collections.abc import Sequence

from flows.settings import find_root


def show_batch(limit_gib: float | None, most: int, seconds: float, device: str | None) -> int:
    from tasks.settings import find_batch
    from training.largest_batch import Try

    def tell(found: Try) -> None:
        speed = f"{found.tokens_per_s:,.0f}" if found.tokens_per_s else "-"
        print(f"{found.rows:>6}{found.peak_mib:>11,.0f}{speed:>10}  {'fits' if found.fits else found.why}", flush=True)

    limit = None if limit_gib is None else round(limit_gib * 1024)
    print(f"{'rows':>6}{'peak MiB':>11}{'tokens/s':>10}", flush=True)
    told = find_batch(find_root(), limit, most, seconds, device, tell)
    print("\n".join(["", *told]))
    return 0


def show_rates(stage: str, low: float, high: float, steps: int) -> int:
    from tasks.settings import sweep_rates

    _, told = sweep_rates(find_root(), stage, low, high, steps)
    print("\n".join(told))
    return 0


def show_ladder(depths: Sequence[int], tokens: int | None) -> int:
    from tasks.settings import climb_ladder
    from training.ladder import Rung

    def tell(rung: Rung, predicted: float | None) -> None:
        beside = "" if predicted is None else f"{predicted:>11.4f}{100 * (rung.loss / predicted - 1):>+8.2f} %"
        print(f"{rung.depth:>5}{rung.parameters:>12,}{rung.tokens:>12,}{rung.loss:>9.4f}{beside}", flush=True)

    print(f"{'depth':>5}{'parameters':>12}{'tokens':>12}{'loss':>9}{'predicted':>11}{'off':>8}", flush=True)
    print("\n".join(climb_ladder(find_root(), depths, tokens, tell)))
    return 0
