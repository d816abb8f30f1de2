"""A real server process on loopback, asked over real connections."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from data.errors import DaymillError
from serving import client, releases
from serving.engine import Engine
from serving.manifest import Bundle, open_bundle
from tests.tiny_bundle import TEXTS, TRUTH, make_bundle

pytestmark = pytest.mark.slow
SERVE = (
    "import sys; from pathlib import Path; from serving.server import main; main(Path(sys.argv[1]), port=0, {knobs})"
)


@contextlib.contextmanager
def running(target: Path, knobs: str = "threads=1", ready: bool = True) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process on a free port: its address and the process."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(knobs=knobs), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removeprefix("listening on ")
        assert url.startswith("http://127.0.0.1:"), process.stderr.read() if process.stderr else ""
        if ready:
            client.wait_until_ready(url, 20)
        yield url, process
    finally:
        process.kill()
        process.communicate(timeout=10)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("server") / "bundle")


@pytest.fixture(scope="module")
def url(built: Bundle) -> Iterator[str]:
    knobs = "threads=1, max_rows=8, request_rows=64, request_text_bytes=2000, request_body_bytes=20000"
    with running(built.folder, knobs) as (url, _):
        yield url


def request_of(*texts: str, **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": list(texts)}], **more}


def outputs_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.status_code == 200, reply.text
    return {tensor["name"]: tensor["data"] for tensor in reply.json()["outputs"]}


def metric(url: str, name: str, **labels: str) -> float:
    """Sum of a metric's samples that have these labels."""
    text = httpx.get(f"{url}/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
    assert samples, f"no metric {name}"
    return sum(s.value for s in samples if labels.items() <= s.labels.items())


def test_the_protocols_endpoints(url: str, built: Bundle) -> None:
    version = built.manifest.version
    assert httpx.get(f"{url}/v2").json()["name"] == "daymill"
    assert httpx.get(f"{url}/v2/health/live").json() == {"live": True}
    assert httpx.get(f"{url}/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/tiny", f"/v2/models/tiny/versions/{version}"):
        about = httpx.get(url + path).json()
        assert about["versions"] == [version] and about["inputs"][0]["datatype"] == "BYTES"
        assert {tensor["name"]: tensor["shape"] for tensor in about["outputs"]} == {
            "label": [-1], "score": [-1], "probabilities": [-1, 2],
        }  # fmt: skip
        assert httpx.get(f"{url}{path}/ready").json() == {"name": "tiny", "ready": True}


def test_answers_are_the_bundles_own(url: str, built: Bundle) -> None:
    reply = httpx.post(f"{url}/v2/models/tiny/infer", json=request_of(*TEXTS, id="a-1"))
    assert reply.json()["id"] == "a-1" and reply.json()["model_version"] == built.manifest.version
    outputs = outputs_of(reply)
    assert outputs["label"] == list(TRUTH)
    expected = Engine(built, threads=1).predict(TEXTS)
    assert outputs["score"] == pytest.approx(expected.score.tolist(), abs=1e-6)
    assert outputs["probabilities"] == pytest.approx(expected.probabilities.ravel().tolist(), abs=1e-6)


def test_outputs_and_threshold_on_request(url: str, built: Bundle) -> None:
    asked = request_of("win money", outputs=[{"name": "score"}])
    reply = httpx.post(f"{url}/v2/models/tiny/versions/{built.manifest.version}/infer", json=asked)
    assert list(outputs_of(reply)) == ["score"]
    for threshold, label in ((0.0, "spam"), (1.0, "ham")):
        asked = request_of("win money", parameters={"threshold": threshold})
        assert outputs_of(httpx.post(f"{url}/v2/models/tiny/infer", json=asked))["label"] == [label]


@pytest.mark.parametrize(
    ("path", "body", "code", "said"),
    [
        ("tiny/infer", {"inputs": []}, 400, "exactly one tensor"),
        ("tiny/infer", request_of(*["a"] * 65), 400, "65 rows"),
        ("tiny/infer", request_of("a" * 2001), 400, "longer than 2000 bytes"),
        ("tiny/infer", request_of(*["a" * 1900] * 12), 400, "larger than 20000 bytes"),
        ("other/infer", request_of("a"), 404, "no model 'other'"),
        ("tiny/versions/9/infer", request_of("a"), 404, "not '9'"),
        ("tiny/predict", request_of("a"), 404, "Not Found"),
    ],
)
def test_errors_have_the_protocols_body(url: str, path: str, body: Any, code: int, said: str) -> None:
    reply = httpx.post(f"{url}/v2/models/{path}", json=body)
    assert reply.status_code == code and list(reply.json()) == ["error"] and said in reply.json()["error"]


def test_a_body_of_unknown_length_is_bounded_too(url: str) -> None:
    """A chunked body has no Content-Length to refuse by."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100_000):
            sent += 1000
            yield b" " * 1000

    with contextlib.suppress(httpx.TransportError):  # the server may close while we still send
        assert httpx.post(f"{url}/v2/models/tiny/infer", content=endless()).status_code == 400
    assert sent < 50_000_000
    assert httpx.get(f"{url}/v2/health/ready").status_code == 200


def test_twenty_rows_go_in_calls_of_eight(url: str) -> None:
    before = {bound: metric(url, "daymill_serving_batch_rows_bucket", le=bound) for bound in ("8.0", "+Inf")}
    reply = httpx.post(f"{url}/v2/models/tiny/infer", json=request_of(*TEXTS[:20]))
    assert outputs_of(reply)["label"] == list(TRUTH[:20])
    after = {bound: metric(url, "daymill_serving_batch_rows_bucket", le=bound) for bound in ("8.0", "+Inf")}
    assert after["+Inf"] - before["+Inf"] == after["8.0"] - before["8.0"] == 3


def test_metrics_count(url: str, built: Bundle) -> None:
    rows = metric(url, "daymill_serving_rows_total", label="spam")
    refused = metric(url, "daymill_serving_errors_total", reason="bad_request")
    httpx.post(f"{url}/v2/models/tiny/infer", json=request_of("win money now", "win money", "see you at lunch"))
    httpx.post(f"{url}/v2/models/tiny/infer", json={})
    assert metric(url, "daymill_serving_rows_total", label="spam") - rows == 2
    assert metric(url, "daymill_serving_errors_total", reason="bad_request") - refused == 1
    assert metric(url, "daymill_serving_model_info", version=built.manifest.version, engine="onnxruntime") == 1
    assert metric(url, "daymill_serving_ready") == 1
    assert metric(url, "daymill_serving_score_count") >= 3


def test_no_text_is_logged(built: Bundle) -> None:
    with running(built.folder) as (url, process):
        httpx.post(f"{url}/v2/models/tiny/infer", json=request_of("canary-3141"))
        httpx.post(f"{url}/v2/models/tiny/infer", content=b'{"inputs": "canary-3141"')
        httpx.post(f"{url}/v2/models/tiny/infer", json=request_of("ok", parameters={"canary-3141": 1}))
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = process.stderr.read()
    assert "serving tiny" in log and "canary" not in log


def test_the_page_loads_nothing_from_elsewhere(url: str) -> None:
    reply = httpx.get(url)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.findall(r"(?:src|href|url\()\s*=?\s*[\"'(]?(?:https?:)?//", reply.text)


def test_the_client_asks(url: str, built: Bundle) -> None:
    first, second = client.ask(url, ["win money now", "see you at lunch"])
    assert (first.label, second.label) == ("spam", "ham") and first.score > 0.5 > second.score
    assert first.version == built.manifest.version and first.milliseconds > 0
    with pytest.raises(DaymillError, match=r"404.*no model 'other'"):
        client.ask(url, ["a"], model="other")
    with pytest.raises(DaymillError, match="no answer from"):
        client.ask("http://127.0.0.1:9", ["a"])


def test_small_answers_do_not_wait_for_an_acknowledgment(url: str) -> None:
    """With Nagle's algorithm left on, every answer on a kept connection takes 40 ms more."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    times = []
    for text in TEXTS[:21]:
        start = time.perf_counter()
        connection.request("POST", "/v2/models/tiny/infer", json.dumps(request_of(text)))
        assert connection.getresponse().read()
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 0.03


def test_a_client_that_hangs_up_costs_nobody_else(url: str) -> None:
    body = json.dumps(request_of(*["see you " * 200] * 10)).encode()
    head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    rude = []
    for _ in range(20):
        connection = socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 0))
        connection.sendall(head + body)
        rude.append(connection)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        polite = [pool.submit(client.ask, url, [text]) for text in TEXTS[:20]]
        for connection in rude:
            connection.close()
        assert [answer.result(20)[0].label for answer in polite] == list(TRUTH[:20])


def test_overload_is_503_with_retry_after(built: Bundle) -> None:
    knobs = "threads=1, queue_rows=64, request_rows=64, max_rows=1, max_wait_ms=0"
    with running(built.folder, knobs) as (url, _), concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = request_of(*["see you at lunch " * 20] * 64)
        replies = list(pool.map(lambda _: httpx.post(f"{url}/v2/models/tiny/infer", json=asked, timeout=30), range(48)))
        codes = {reply.status_code for reply in replies}
        assert codes == {200, 503}
        refused = next(reply for reply in replies if reply.status_code == 503)
        assert refused.headers["retry-after"] == "1" and "overloaded" in refused.json()["error"]
        assert metric(url, "daymill_serving_errors_total", reason="overloaded") == len(
            [reply for reply in replies if reply.status_code == 503]
        )
        assert client.ask(url, ["win money now"])[0].label == "spam"


def test_sigterm_finishes_what_is_under_way(built: Bundle) -> None:
    with running(built.folder, "threads=1, max_wait_ms=700") as (url, process):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(client.ask, url, [text]) for text in TEXTS[:4]]
            time.sleep(0.35)  # all four wait for company
            process.send_signal(signal.SIGTERM)
            assert [answer.result(20)[0].label for answer in asked] == list(TRUTH[:4])
        assert process.wait(10) in (0, -signal.SIGTERM)
        with pytest.raises(DaymillError, match="no answer"):
            client.ask(url, ["a"])


def test_live_but_not_ready_and_why(tmp_path: Path, built: Bundle) -> None:
    """An empty releases folder, then a champion: ready without a restart."""
    with running(tmp_path, "threads=1, poll_s=0.05", ready=False) as (url, _):
        assert httpx.get(f"{url}/v2/health/live").status_code == 200
        wait_for(lambda: "no champion" in httpx.get(f"{url}/v2/health/ready").json().get("error", ""))
        for reply in (
            httpx.get(f"{url}/v2/health/ready"),
            httpx.get(f"{url}/v2/models/tiny"),
            httpx.post(f"{url}/v2/models/tiny/infer", json=request_of("a")),
        ):
            assert reply.status_code == 503 and reply.json()["error"].startswith("not ready: ")
        assert metric(url, "daymill_serving_ready") == 0
        releases.promote(tmp_path, built.folder, "first", who="test")
        client.wait_until_ready(url, 10)
        assert client.ask(url, ["win money now"])[0].version == built.manifest.version


def test_a_bundle_whose_answers_differ_is_never_ready(tmp_path: Path) -> None:
    from serving.manifest import seal
    from tests.tiny_bundle import write_graph

    folder = make_bundle(tmp_path / "bundle").folder
    write_graph(folder / "model.onnx", shift=1.0)
    data = json.loads((folder / "manifest.json").read_text())
    from serving.manifest import file_entry

    data["files"]["model.onnx"] = file_entry(folder / "model.onnx").model_dump()
    body = {key: value for key, value in data.items() if key not in ("format", "version", "digest")}
    (folder / "manifest.json").write_text(json.dumps(seal(body)))
    with running(folder, ready=False) as (url, _):
        wait_for(lambda: "tolerance" in httpx.get(f"{url}/v2/health/ready").json().get("error", ""))
        assert httpx.post(f"{url}/v2/models/tiny/infer", json=request_of("a")).status_code == 503


def test_rollback_changes_the_bytes_that_are_served(tmp_path: Path) -> None:
    """Truxify#8727 only logged; the log says who, when and why."""
    a, b = (make_bundle(tmp_path / name, shift=shift) for name, shift in (("a", 0.0), ("b", 1.0)))
    root = tmp_path / "releases"
    releases.promote(root, a.folder, "first", who="ann")
    releases.promote(root, b.folder, "second", who="ann")
    with running(root, "threads=1, poll_s=0.05") as (url, _):
        before = client.ask(url, ["hello"])[0]
        assert before.version == b.manifest.version
        releases.rollback(root, why="complaints", who="bob")
        wait_for(lambda: client.ask(url, ["hello"])[0].version == a.manifest.version)
        after = client.ask(url, ["hello"])[0]
        assert after.score == pytest.approx(float(Engine(a, 1).predict(["hello"]).score[0]), abs=1e-6)
        assert after.score != pytest.approx(before.score, abs=0.01)
    last = releases.history(root)[-1]
    assert (last.who, last.why, last.version) == ("bob", "complaints", a.manifest.version)


def test_a_damaged_champion_leaves_the_old_one_serving(tmp_path: Path) -> None:
    a, b = (make_bundle(tmp_path / name, shift=shift) for name, shift in (("a", 0.0), ("b", 1.0)))
    root = tmp_path / "releases"
    releases.promote(root, a.folder, "first", who="ann")
    with running(root, "threads=1, poll_s=0.05") as (url, _):
        folder = root / "versions" / b.manifest.version
        releases.keep_version(root, b.folder, b.manifest.version)
        (folder / "model.onnx").write_bytes(b"damaged")
        entry = json.loads((root / "champion.json").read_text()) | {"version": b.manifest.version, "seq": 2}
        (root / "champion.json").write_text(json.dumps(entry))
        wait_for(lambda: metric(url, "daymill_serving_swaps_total", outcome="refused") == 1)
        assert client.ask(url, ["hello"])[0].version == a.manifest.version
        [index] = httpx.post(f"{url}/v2/repository/index").json()
        assert "model.onnx" in index["reason"] and index["state"] == "READY"


def test_swaps_under_load_lose_and_mix_nothing(tmp_path: Path) -> None:
    """20 swaps in 10,000 requests: no failure, and every answer is wholly of the version that it names."""
    bundles = [make_bundle(tmp_path / name, shift=shift) for name, shift in (("a", 0.0), ("b", 1.0))]
    texts = ["hello", "win money", "see you"]
    expected = {b.manifest.version: Engine(b, threads=1).predict(texts).score.tolist() for b in bundles}
    root = tmp_path / "releases"
    releases.promote(root, bundles[0].folder, "first", who="test")
    answered, wrong, lock = dict.fromkeys(expected, 0), [], threading.Lock()
    todo = iter(range(10_000))

    body = json.dumps(request_of(*texts, outputs=[{"name": "score"}]))

    def load(url: str) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
        while True:
            with lock:
                if next(todo, None) is None:
                    return
            connection.request("POST", "/v2/models/tiny/infer", body)
            reply = connection.getresponse()
            data = json.loads(reply.read())
            with lock:
                if reply.status != 200:
                    wrong.append(data)
                    continue
                answered[data["model_version"]] += 1
                if data["outputs"][0]["data"] != pytest.approx(expected[data["model_version"]], abs=1e-5):
                    wrong.append(data)

    with running(root, "threads=1, poll_s=0.02") as (url, process):
        workers = [threading.Thread(target=load, args=(url,)) for _ in range(6)]
        for worker in workers:
            worker.start()
        for at in range(1, 21):
            bundle = bundles[at % 2]
            releases.promote(root, bundle.folder, f"swap {at}", who="test")
            before = sum(answered.values())
            wait_for(lambda at=at: metric(url, "daymill_serving_swaps_total", outcome="ok") == at + 1)
            wait_for(lambda before=before: sum(answered.values()) >= before + 250 or not any_alive(workers))
        for worker in workers:
            worker.join()
        assert process.poll() is None
        assert metric(url, "daymill_serving_requests_total", code="200") == 10_000
    assert wrong == []
    assert sum(answered.values()) == 10_000 and min(answered.values()) >= 2000


def test_an_address_in_use_is_an_error_for_people(url: str, built: Bundle) -> None:
    from serving.server import serve

    with pytest.raises(DaymillError, match="cannot listen on"):
        serve(built.folder, "127.0.0.1", httpx.URL(url).port or 0)
    with pytest.raises(DaymillError, match="no folder"):
        serve(built.folder / "nothing", "127.0.0.1", 0)


def test_a_killed_server_leaves_nothing_behind(built: Bundle) -> None:
    with running(built.folder) as (url, process):
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        with pytest.raises(DaymillError):
            client.ask(url, ["a"])
        open_bundle(built.folder)


def any_alive(workers: list[threading.Thread]) -> bool:
    return any(worker.is_alive() for worker in workers)


def wait_for(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)
