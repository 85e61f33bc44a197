"""The page in a real browser, with the network denied."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_report import HOSTILE, write

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("browser") / "r")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_it_opens_without_a_network_and_without_complaint(browser, page: Path, width: int) -> None:  # type: ignore[no-untyped-def]
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900})
    tab = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("dialog", lambda dialog: messages.append("a script ran"))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page.as_uri())
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert tab.locator("h1 em").text_content() == HOSTILE
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("img").count() == 7
    loaded = "[...document.images].every(i => i.complete && i.naturalWidth > 0)"
    assert tab.evaluate(loaded)
    assert tab.evaluate("[...document.images].every(i => i.alt.length > 20)")
    for link in tab.locator("nav a").all():
        target = (link.get_attribute("href") or "").removeprefix("#")
        assert tab.locator(f"section#{target} h2").count() == 1
    context.close()
