"""How the data stages run: the `data` section of params.yaml. No stage depends on it: the bytes are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field, model_validator

from data.workers import Engine, Local, cores
from tasks.params import Params, load


class Data(Params):
    """Where shards are worked on."""

    engine: Literal["local", "dask"] = Field(description="this machine's cores, or a Dask cluster")
    workers: int | None = Field(ge=1, description="processes of the local engine; null: all CPUs")
    scheduler: str | None = Field(description="address of Dask's scheduler, such as tcp://10.0.0.5:8786")

    @model_validator(mode="after")
    def a_cluster_has_an_address(self) -> Data:
        if self.engine == "dask" and not self.scheduler:
            raise ValueError("engine dask needs the scheduler's address, such as tcp://10.0.0.5:8786")
        return self


@contextmanager
def engine() -> Iterator[Engine]:
    """The engine that params.yaml names."""
    params = load("data", Data)
    if params.engine == "local":
        yield Local(params.workers or cores())
        return
    from data.engine import Dask

    cluster = Dask(params.scheduler or "")
    try:
        yield cluster
    finally:
        cluster.close()
