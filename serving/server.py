"""The server: a bundle, or a releases folder whose champion it follows, behind the Open Inference Protocol V2.

Loopback by default and without authentication: put a proxy of your own before it to serve others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from data.errors import DaymillError
from serving import protocol
from serving.batcher import Batcher, Limits, ModelFailed, Overloaded
from serving.engine import Engine
from serving.metrics import CONTENT_TYPE, Metrics
from serving.page import PAGE, PAGE_HEADERS
from serving.protocol import BadRequest, RequestLimits
from serving.watch import Watch

log = logging.getLogger("daymill.serving")
Answer = TypeVar("Answer")
NAME = "daymill"
REASONS = {400: "bad_request", 404: "not_found"}


@dataclass(frozen=True)
class Settings:
    """Knobs of the server. `threads` None takes the CPU quota."""

    threads: int | None = None
    call: Limits = field(default_factory=Limits)
    request: RequestLimits = field(default_factory=RequestLimits)
    poll_s: float = 0.5  # how often the champion pointer is read
    drain_s: int = 30  # how long requests under way may take after SIGTERM

    def __post_init__(self) -> None:
        if self.request.rows > self.call.queue_rows:
            raise DaymillError(
                f"a request may have {self.request.rows} rows but the queue holds {self.call.queue_rows}: "
                "expected queue_rows to be at least rows"
            )


class Refusal(Exception):
    """An HTTP error with the protocol's body; `reason` is its name in the metrics."""

    def __init__(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.headers = code, reason, message, headers


class ClientGone(Exception):
    """The client closed the connection before its answer."""


def main(target: Path, host: str = "127.0.0.1", port: int = 8080, threads: int | None = None, **knobs: Any) -> None:
    """Serve `target` until SIGTERM or Ctrl-C (`daymill serve`); `knobs` as in `settings_of`."""
    serve(target, host, port, settings_of(threads=threads, **knobs))


def settings_of(threads: int | None = None, poll_s: float = 0.5, drain_s: int = 30, **limits: Any) -> Settings:
    """Settings from flat knobs: those of Settings, batcher.Limits and, with `request_` before, RequestLimits."""
    request = {name.removeprefix("request_"): limits.pop(name) for name in list(limits) if name.startswith("request_")}
    return Settings(threads, Limits(**limits), RequestLimits(**request), poll_s, drain_s)


def serve(target: Path, host: str, port: int, settings: Settings | None = None) -> None:
    """Listen and answer until SIGTERM or SIGINT, then finish what is under way; port 0 takes a free one.

    The listening line on stdout names the address. Raises DaymillError when the target or the address cannot be used.
    """
    settings = settings or Settings()
    if not target.is_dir():
        raise DaymillError(f"no folder {target}: expected a bundle or a releases folder; run the pipeline first")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its pool would come on top of the model's threads
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        listener = listen(host, port)
    except OSError as error:
        raise DaymillError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    if host not in ("127.0.0.1", "localhost", "::1"):
        log.warning("listening on %s: whoever reaches this address can ask; there is no authentication", host)
    config = uvicorn.Config(
        create_app(target, settings),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.drain_s,
        server_header=False,
    )
    with listener:
        name = f"[{host}]" if ":" in host else host
        print(f"listening on http://{name}:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections answer at once.

    asyncio turns Nagle's algorithm off only where the socket says that it is TCP, which socket.create_server() leaves
    open: every second small answer would wait 40 ms for the client's delayed acknowledgment.
    """
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def create_app(target: Path, settings: Settings | None = None) -> FastAPI:
    """The application; its model is loaded while it already answers that it is live but not ready."""
    settings = settings or Settings()
    metrics = Metrics()
    watch = Watch(target, settings.threads, settings.poll_s, metrics.serving, metrics.swaps.labels("refused").inc)
    state: dict[str, Batcher] = {}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # For tokenizing and loading; model calls have a thread of their own. More would exceed the CPU quota.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2, thread_name_prefix="side"))
        batcher = state["batcher"] = Batcher(settings.call, metrics.called)
        metrics.queue_rows.set_function(lambda: batcher.depth)
        batcher.start()
        following = asyncio.create_task(watch.follow(), name="watch")
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await batcher.close()

    # The interactive docs load scripts from elsewhere.
    app = FastAPI(title="Daymill", version=metadata.version(NAME), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.watch, app.state.metrics = watch, metrics

    def current(name: str | None = None, version: str | None = None) -> Engine:
        """The engine that answers, if it is the one asked for."""
        engine = watch.engine
        if engine is None:
            raise Refusal(503, "not_ready", f"not ready: {watch.reason}", {"Retry-After": "1"})
        manifest = engine.manifest
        if name is not None and name != manifest.name:
            raise Refusal(404, "not_found", f"no model {name!r}; this server has {manifest.name!r}")
        if version is not None and version != manifest.version:
            raise Refusal(404, "not_found", f"{name} has version {manifest.version} here, not {version!r}")
        return engine

    @app.get("/v2")
    async def server_metadata() -> dict[str, Any]:
        return {"name": NAME, "version": app.version, "extensions": ["model_repository"]}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        current()
        return {"ready": True}

    @app.post("/v2/repository/index")
    async def repository() -> list[dict[str, str]]:
        """What this server has (Triton's extension): how a client learns the model's name."""
        engine = watch.engine
        if engine is None:
            return []
        manifest = engine.manifest
        return [{"name": manifest.name, "version": manifest.version, "state": "READY", "reason": watch.reason}]

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def model_metadata(name: str, version: str | None = None) -> dict[str, Any]:
        engine = current(name, version)
        return protocol.describe(engine.manifest, engine.runtime)

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str | None = None) -> dict[str, Any]:
        return {"name": current(name, version).manifest.name, "ready": True}

    @app.post("/v2/models/{name}/infer")
    @app.post("/v2/models/{name}/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        engine = current(name, version)  # taken once: the whole answer comes from this version
        body = await read_body(request, settings.request.body_bytes)
        with metrics.seconds.time():
            asked = protocol.parse(body, settings.request, engine.manifest.binary)
            rows = await asyncio.to_thread(engine.encode, asked.texts)
            logits = await unless_gone(request, state["batcher"].infer(engine, rows))
            answers = engine.answers(logits, asked.threshold)
            response = JSONResponse(protocol.respond(asked, answers, engine.manifest))
        metrics.answered(engine.manifest.version, answers)
        metrics.requests.labels("200").inc()
        return response

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(PAGE, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)

    def refuse(request: Request, refusal: Refusal) -> JSONResponse:
        """The protocol's error body; refused inference is counted."""
        if request.url.path.endswith("/infer"):
            metrics.requests.labels(str(refusal.code)).inc()
            metrics.errors.labels(refusal.reason).inc()
        return JSONResponse({"error": refusal.message}, refusal.code, refusal.headers)

    @app.exception_handler(Refusal)
    async def on_refusal(request: Request, error: Refusal) -> JSONResponse:
        return refuse(request, error)

    @app.exception_handler(BadRequest)
    async def on_bad_request(request: Request, error: BadRequest) -> JSONResponse:
        return refuse(request, Refusal(400, "bad_request", str(error)))

    @app.exception_handler(Overloaded)
    async def on_overload(request: Request, error: Overloaded) -> JSONResponse:
        return refuse(request, Refusal(503, "overloaded", f"overloaded: {error}", {"Retry-After": "1"}))

    @app.exception_handler(ModelFailed)
    async def on_model_failure(request: Request, error: ModelFailed) -> JSONResponse:
        return refuse(request, Refusal(500, "model", str(error)))

    @app.exception_handler(ClientGone)
    async def on_gone(request: Request, _: ClientGone) -> JSONResponse:
        return refuse(request, Refusal(499, "gone", "the client closed the connection"))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        reason = REASONS.get(error.status_code, "bad_request")
        return refuse(request, Refusal(error.status_code, reason, f"{error.detail}: {request.url.path}", headers))

    @app.exception_handler(Exception)
    async def on_anything(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s", type(error).__name__, request.url.path, exc_info=error)
        return refuse(request, Refusal(500, "internal", f"internal error ({type(error).__name__}); see the log"))

    return app


async def read_body(request: Request, limit: int) -> bytes:
    """The body, never more than `limit` bytes and a chunk of it in memory. Raises Refusal beyond that."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            too_large(limit)
    return bytes(body)


def too_large(limit: int) -> NoReturn:
    """Refuse, and close the connection: the rest of the body is not worth reading."""
    message = f"the body is larger than {limit} bytes; send fewer texts a request"
    raise Refusal(400, "bad_request", message, {"Connection": "close"})


async def unless_gone(request: Request, answer: Awaitable[Answer]) -> Answer:
    """Await an answer, and give it up when the client closes the connection; others' answers are not touched."""
    asked = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(until_disconnect(request))
    try:
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise ClientGone
    finally:
        asked.cancel()
        gone.cancel()


async def until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
