"""Which precision is the faster one here: peers compute in it, so that none is held to one that this CPU lacks."""

from __future__ import annotations

import time


def bf16_is_faster(width: int) -> bool:
    """Products of a feed-forward network's shapes, in fp32 and in bf16."""
    import torch

    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(2048, width, dtype=dtype), torch.randn(width, 4 * width, dtype=dtype)
        a @ b
        start = time.perf_counter()
        for _ in range(3):
            a @ b
        seconds.append(time.perf_counter() - start)
    return seconds[1] < seconds[0]
