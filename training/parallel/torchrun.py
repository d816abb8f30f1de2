"""torchrun for one machine: its stores listen on loopback alone, and it does not outlive who started it.

`python -m training.parallel.torchrun ...` takes torchrun's arguments. By itself torchrun listens on every interface.
"""

from __future__ import annotations

import socket
from typing import Any

import torch.distributed as dist

from data.parent import end_with_parent

LOOPBACK = "127.0.0.1"


class LoopbackStore(dist.TCPStore):
    """A store whose server, where it has one, is bound to loopback."""

    def __init__(
        self, host_name: str, port: int = 0, world_size: int | None = None, is_master: bool = False, **more: Any
    ) -> None:
        del host_name  # this one
        if is_master and more.get("master_listen_fd") is None:
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listening.bind((LOOPBACK, port))
            listening.listen(socket.SOMAXCONN)
            port = listening.getsockname()[1]
            more["master_listen_fd"] = listening.detach()
        super().__init__(LOOPBACK, port, world_size, is_master, **more)


def main() -> None:
    end_with_parent()
    setattr(dist, "TCPStore", LoopbackStore)  # noqa: B010 (torchrun has no argument for it; mypy sees a type)
    from torch.distributed import run
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend

    setattr(c10d_rendezvous_backend, "TCPStore", LoopbackStore)  # noqa: B010
    run.main()


if __name__ == "__main__":
    main()
