"""Ask a running server: what the pipeline does with its three questions, and `daymill ask`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from data.errors import DaymillError


@dataclass(frozen=True)
class Answered:
    """One text's label and score, the version that gave them, and the milliseconds of the whole request."""

    label: str
    score: float
    version: str
    milliseconds: float


def ask(url: str, texts: Sequence[str], model: str | None = None, timeout_s: float = 30.0) -> list[Answered]:
    """Answers to `texts` by the server at `url`, in one request.

    Raises DaymillError when nothing listens there or the server refuses.
    """
    tensor = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}
    wanted = [{"name": "label"}, {"name": "score"}]
    with httpx.Client(base_url=url, timeout=timeout_s, trust_env=False) as client:
        try:
            name = model or only_model(client)
            start = time.perf_counter()
            reply = client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor], "outputs": wanted})
            milliseconds = (time.perf_counter() - start) * 1e3
        except httpx.HTTPError as error:
            raise DaymillError(f"no answer from {url} ({error}): is `daymill serve` running there?") from None
    answer = checked(reply)
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    return [
        Answered(label, float(score), answer["model_version"], milliseconds)
        for label, score in zip(outputs["label"], outputs["score"], strict=True)
    ]


def wait_until_ready(url: str, timeout_s: float = 60.0) -> None:
    """Return when the server at `url` answers. Raises DaymillError with the server's reason after `timeout_s`."""
    deadline, reason = time.monotonic() + timeout_s, "nothing listens"
    with httpx.Client(base_url=url, timeout=5.0, trust_env=False) as client:
        while time.monotonic() < deadline:
            try:
                reply = client.get("/v2/health/ready")
                if reply.status_code == httpx.codes.OK:
                    return
                reason = reply.json()["error"]
            except httpx.TransportError as error:
                reason = str(error)
            time.sleep(0.05)
    raise DaymillError(f"{url} is not ready after {timeout_s:g} s: {reason}")


def only_model(client: httpx.Client) -> str:
    models = checked(client.post("/v2/repository/index"))
    if not models:
        checked(client.get("/v2/health/ready"))  # says why there is none
        raise DaymillError(f"{client.base_url} has no model")
    return str(models[0]["name"])


def checked(reply: httpx.Response) -> Any:
    """The JSON of a reply. Raises DaymillError with the server's own words when it refused."""
    try:
        data = reply.json()
    except ValueError:
        raise DaymillError(f"{reply.url} answered {reply.status_code} without JSON: not a Daymill server") from None
    if reply.is_error:
        raise DaymillError(f"{reply.url} answered {reply.status_code}: {data.get('error', data)}")
    return data
