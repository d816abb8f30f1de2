"""A worker whose second rank is on a device of a fraction of the others' speed: every block takes longer there."""

from __future__ import annotations

import os
import time
from typing import Any

from torch import Tensor

from training.model import Block
from training.parallel.worker import main

if __name__ == "__main__":
    if os.environ["RANK"] == "1":
        plain = Block.forward

        def slow(self: Block, *arguments: Any) -> Tensor:
            time.sleep(0.02)
            return plain(self, *arguments)

        Block.forward = slow  # type: ignore[method-assign]
    main()
