"""`daymill serve`: the inference server with the knobs of params.yaml, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from data.errors import DaymillError
from flows.settings import RELEASES, find_root
from tasks.params import PARAMS_FILE, Params, load

if TYPE_CHECKING:
    from serving.server import Settings


class Serve(Params):
    """params.yaml, `serve`."""

    threads: int | None = Field(ge=1, description="threads of the model; null: all CPUs that the container grants")
    max_rows: int = Field(ge=1, description="rows of a model call")
    max_tokens: int = Field(ge=1, description="tokens of a model call, padding included")
    max_wait_ms: float = Field(ge=0, description="milliseconds that a row waits for company while the model is idle")
    queue_rows: int = Field(ge=1, description="rows waiting; beyond that requests are refused")
    request_rows: int = Field(ge=1, description="texts of one request")
    request_text_bytes: int = Field(ge=1, description="UTF-8 bytes of one text")
    request_body_bytes: int = Field(ge=1, description="bytes of a request's body")
    poll_s: float = Field(gt=0, description="seconds between looks at the champion pointer")
    drain_s: int = Field(ge=0, description="seconds that requests under way may take after SIGTERM")

    def settings(self) -> Settings:
        from serving.batcher import Limits
        from serving.protocol import RequestLimits
        from serving.server import Settings

        return Settings(
            threads=self.threads,
            call=Limits(self.max_rows, self.max_tokens, self.max_wait_ms, self.queue_rows),
            request=RequestLimits(self.request_rows, self.request_text_bytes, self.request_body_bytes),
            poll_s=self.poll_s,
            drain_s=self.drain_s,
        )


def serve_model(bundle: Path | None, store: Path | None, host: str, port: int) -> int:
    """Serve until Ctrl-C: a bundle, a releases folder, or this checkout's champion.

    A bundle can be served anywhere; only in a checkout does params.yaml have its say.
    """
    from serving.server import serve

    root = None
    try:
        root = find_root()
    except DaymillError:
        if not bundle and not store:
            raise
    settings = load("serve", Serve, root / PARAMS_FILE).settings() if root else None
    serve(bundle or store or (root or Path()) / RELEASES, host, port, settings)
    return 0
