"""The server's page in a real browser: a person pastes a text and sees label, score, version and latency."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from playwright.sync_api import Page, expect, sync_playwright

from serving import client
from serving.manifest import Bundle
from serving.server import Settings, create_app, listen
from tests.tiny_bundle import make_bundle

pytestmark = pytest.mark.slow
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("page") / "bundle")


@pytest.fixture(scope="module")
def url(built: Bundle) -> Iterator[str]:
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(built.folder, Settings(threads=1)), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client.wait_until_ready(url, 20)
        yield url
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser_path, "these tests need a Chromium: install the system's package chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(15_000)
        yield page
        browser.close()


def test_a_pasted_text_gets_its_answer(page: Page, url: str, built: Bundle) -> None:
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    page.wait_for_selector(".state.up")

    page.get_by_label("Paste a text").fill("win money now")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_selector("#result:not([hidden])")
    assert page.inner_text("#label") == "spam"
    [answer] = client.ask(url, ["win money now"])
    assert page.inner_text("#score") == f"P(spam) = {answer.score:.4f}"
    assert page.inner_text("#version") == built.manifest.version
    assert page.inner_text("#latency").endswith(" ms")
    assert page.inner_text("#engine") == "onnxruntime, fp32"

    page.get_by_label("Paste a text").fill("see you at lunch")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#label")).to_have_text("ham")
    expect(page.locator("#rows tr")).to_have_count(2)
    assert complaints == []  # a block by the content security policy would be one
    assert all(address.startswith(url) for address in asked)


def test_a_text_is_shown_as_text(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(".state.up")
    for asked in (1, 2):
        page.get_by_label("Paste a text").fill("<img src=x onerror=document.title='owned'> win money")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#rows tr")).to_have_count(asked)
    assert page.locator("#rows img").count() == 0 and page.title() == "Daymill"
    assert "<img src=x" in page.inner_text("#rows")


def test_an_error_is_said_to_the_person(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector(".state.up")
    page.route("**/infer", lambda route: route.fulfill(status=503, json={"error": "overloaded: 9 rows wait already"}))
    page.get_by_role("button", name="an offer").click()
    page.wait_for_selector("#error:not([hidden])")
    assert page.inner_text("#error") == "overloaded: 9 rows wait already"
    page.unroute("**/infer")
    page.get_by_role("button", name="an offer").click()
    page.wait_for_selector("#answer:not([hidden])")
    assert page.locator("#error").is_hidden()
