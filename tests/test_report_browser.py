"""The page in a real browser, with the network denied."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_result import every_result, model as every_model
from marks_to_draw import MARKS, showing
from test_report import HOSTILE, hostile_model, results, write

import interp
from interp import model_hash

playwright = pytest.importorskip("playwright.sync_api")
ROOT = Path(__file__).parent.parent
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
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Tab:
    """A page in a browser without a network, and everything that it complains of or asks for."""

    def __init__(
        self, browser: Any, page: Path, width: int = 1280, hash: str = "", **options: Any
    ) -> None:
        self.context = browser.new_context(
            offline=True, viewport={"width": width, "height": 900}, accept_downloads=True, **options
        )
        self.tab = self.context.new_page()
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.messages.append(message.text))
        self.tab.on("pageerror", lambda error: self.messages.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.messages.append("a script ran"))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(page.as_uri() + hash)
        self.tab.wait_for_selector("html[data-ready=yes]")

    def close(self) -> None:
        assert self.messages == []
        outside = [u for u in self.requests if not u.startswith(("file:", "data:", "blob:"))]
        assert outside == []
        self.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_opens_without_a_network_and_without_complaint(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    one = Tab(browser, page, width, color_scheme=scheme)
    tab = one.tab
    assert tab.locator("h1 em").text_content() == HOSTILE
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for link in tab.locator("nav a").all():
        target = (link.get_attribute("href") or "").removeprefix("#")
        assert tab.locator(f"section#{target} h2").count() == 1
    for view in ("explorer", "atlas", "head"):
        assert tab.locator(f"[data-view={view}] > *").count() > 0, view
    for place in tab.locator("[data-figure]").all():
        assert place.locator("canvas, svg, .empty").count() > 0, place.get_attribute("data-figure")
    one.close()


def test_text_on_its_background_has_contrast_enough(browser: Any, page: Path) -> None:
    """WCAG's ratio of luminances, at least 4.5, for every colour of text in both schemes."""
    ratio = """(names) => names.map(([ink, paper]) => {
      const light = (name) => {
        const probe = document.createElement("canvas").getContext("2d");
        probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
        probe.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255)
          .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    })"""
    pairs = [["--ink", "--paper"], ["--soft", "--paper"], ["--link", "--paper"],
             ["--ink", "--panel"],
             ["--link", "--panel"], ["--ink", "--chip"], ["--soft", "--panel"]]  # fmt: skip
    for scheme in ("light", "dark"):
        one = Tab(browser, page, color_scheme=scheme)
        found = one.tab.evaluate(ratio, pairs)
        assert min(found) >= 4.5, (scheme, found)
        one.close()


def test_a_click_and_the_arrow_keys_move_the_position_everywhere(browser: Any, page: Path) -> None:
    one = Tab(browser, page)
    tab = one.tab
    tab.locator(".ch").nth(3).click()
    assert "pos=3" in tab.url
    assert (
        tab.locator(".ch[aria-pressed=true]").get_attribute("aria-label").startswith("position 3:")
    )
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert "pos=5" in tab.url
    assert "position 5" in tab.locator(".told").text_content()
    tab.keyboard.press("Home")
    assert "pos=0" in tab.url
    tab.keyboard.press("ArrowLeft")
    assert "pos=0" in tab.url
    one.close()


def test_bars_are_the_results_and_sum_to_the_logit(browser: Any, page: Path) -> None:
    read = interp.read_report(page)["results"]
    by = {r.by: r for r in read if isinstance(r, interp.LogitAttribution)}
    one = Tab(browser, page, hash="#pos=6&head=L1.H2")
    tab = one.tab
    for kind in ("block", "head"):
        tab.locator(f"input[name=by][value={kind}]").check()
        rows = tab.locator("[data-view=explorer] .columns > div").nth(1).locator(".bar")
        shown = {r.locator(".name").text_content(): r.locator(".value").text_content()
                 for r in rows.all()}  # fmt: skip
        assert list(shown) == list(by[kind].components)
        for name, text in shown.items():
            assert float(text.replace("−", "-")) == pytest.approx(
                float(by[kind].row(name)[0, 6]), abs=6e-4
            )
        said = tab.locator("[data-view=explorer] .sum").text_content().replace("−", "-")
        numbers = [float(x) for x in re.findall(r"[+-]\d+\.\d+", said)]
        assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)
    tab.locator("input[name=by][value=source]").check()
    rows = tab.locator("[data-view=explorer] .columns > div").nth(1).locator(".bar")
    assert rows.count() == 7  # keys 0 … 6
    value = rows.nth(2).locator(".value").text_content().replace("−", "-")
    assert float(value) == pytest.approx(float(by["source"].row("L1.H2.S2")[0, 6]), abs=6e-4)
    one.close()


def test_attention_colours_the_text_with_exact_values_on_hover(browser: Any, page: Path) -> None:
    patterns = next(r for r in interp.read_report(page.parent / "results.json")["results"]
                    if isinstance(r, interp.AttentionPatterns))  # fmt: skip
    one = Tab(browser, page, hash="#pos=9&head=L1.H0")
    for key in (0, 4, 9):
        tip = one.tab.locator(".ch").nth(key).get_attribute("title")
        assert f"weight of {patterns.patterns[1, 0, 9, key]:.4f}"[:-1] in tip
    assert one.tab.locator(".ch").nth(10).get_attribute("title") == "position 10"
    canvas = one.tab.locator("[data-view=head] canvas")
    canvas.focus()
    for arrow in ["ArrowRight"] * 2 + ["ArrowUp"] * 2:  # from query 9 and no key to query 7, key 2
        one.tab.keyboard.press(arrow)
    said = one.tab.locator("[data-view=head] .readout").text_content()
    assert "query 7 " in said
    assert f"weight of {patterns.patterns[1, 0, 7, 2]:.4f}"[:-1] in said
    one.close()


def test_the_address_restores_the_selection(browser: Any, page: Path) -> None:
    one = Tab(browser, page, hash="#pos=12&head=L1.H1")
    assert one.tab.locator(".card[aria-pressed=true]").get_attribute("data-head") == "L1.H1"
    assert one.tab.locator("[data-view=head] h3").text_content().startswith("L1.H1")
    one.tab.locator(".card[data-head='L0.H2']").click()
    assert one.tab.url.endswith("#pos=12&head=L0.H2")
    one.close()
    wrong = Tab(browser, page, hash="#pos=999999&head=L9.H9")
    assert wrong.tab.locator(".ch[aria-pressed=true]").count() == 1
    wrong.close()


def test_the_atlas_sorts_and_filters(browser: Any, page: Path) -> None:
    one = Tab(browser, page)
    tab = one.tab
    cards = tab.locator(".card")
    assert cards.count() == 6
    selects = tab.locator("[data-view=atlas] select")
    selects.nth(0).select_option("effect")
    shown = [
        float(x.removeprefix("effect ").removesuffix(" nats").replace("−", "-"))
        for x in cards.locator("small").all_text_contents()
    ]
    assert shown == sorted(shown, reverse=True)
    selects.nth(1).select_option("*")
    named = sum(1 for r in interp.read_report(page)["results"] if isinstance(r, interp.HeadLabels)
                for ok in r.confirmed if ok)  # fmt: skip
    assert cards.count() <= named
    one.close()


def test_data_buttons_give_the_embedded_table(browser: Any, page: Path) -> None:
    one = Tab(browser, page)
    with one.tab.expect_download() as waiting:
        one.tab.locator("#effects button.data").first.click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    effects = next(r for r in interp.read_report(page)["results"]
                   if isinstance(r, interp.ComponentEffects)).to_frame()  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["component"] for row in rows] == effects["component"].tolist()
    assert [float(row["total"]) for row in rows] == pytest.approx(effects["total"].tolist())
    one.close()


def test_maps_answer_to_the_keyboard(browser: Any, page: Path) -> None:
    one = Tab(browser, page, hash="#pos=5&head=L0.H0")
    places = [*(f"[data-figure={name}]" for name in ("contributions-by-head", "logit-lens")),
              "[data-view=head]"]  # fmt: skip
    for place in places:
        canvas = one.tab.locator(f"{place} canvas")
        canvas.focus()
        one.tab.keyboard.press("ArrowRight")
        one.tab.keyboard.press("ArrowDown")
        assert one.tab.locator(f"{place} .readout").text_content() != ""
        assert len(canvas.get_attribute("aria-label")) > 20
    one.close()


def test_a_selection_is_quick(browser: Any, page: Path) -> None:
    one = Tab(browser, page)
    spent = one.tab.evaluate("""() => {
      const buttons = [...document.querySelectorAll(".ch")].slice(0, 20), start = performance.now();
      for (const button of buttons) button.click();
      return (performance.now() - start) / buttons.length;
    }""")
    assert spent < 50
    one.close()


def test_printing_gives_pages(browser: Any, page: Path) -> None:
    one = Tab(browser, page)
    pdf = one.tab.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    one.tab.emulate_media(media="print")
    assert not one.tab.locator("nav").is_visible()
    assert one.tab.locator("[data-view=head] canvas").is_visible()
    one.close()


@pytest.mark.parametrize("name", MARKS)
def test_every_kind_of_mark_is_drawn_alone(browser: Any, tmp_path: Path, name: str) -> None:
    model = hostile_model()
    one = Tab(browser, interp.write_report(tmp_path / "r", model, [showing(model, name)]))
    place = one.tab.locator(f"[data-figure={name}]")
    assert place.locator("canvas, svg, .empty").count() > 0
    assert "NaN" not in place.inner_html()
    one.close()


@pytest.mark.parametrize("width", [400, 1280])
def test_texts_on_axes_do_not_cover_each_other(browser: Any, tmp_path: Path, width: int) -> None:
    model = hostile_model()
    one = Tab(browser, interp.write_report(tmp_path / "r", model, [showing(model, *MARKS)]), width)
    assert one.tab.evaluate("document.documentElement.scrollWidth") <= width
    covered = one.tab.evaluate("""() =>
    [...document.querySelectorAll("figure svg")].flatMap((svg) => {
      const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent);
      const boxes = texts.map((text) => text.getBoundingClientRect());
      return texts.flatMap((a, i) => texts.slice(i + 1).filter((b, k) => {
        const [p, q] = [boxes[i], boxes[i + 1 + k]];
        const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        return across > 1 && down > 4;
      }).map((b) => `${a.textContent} | ${b.textContent}`));
    })""")
    assert covered == []
    one.close()


@pytest.mark.parametrize("kept", [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,), (0, 4),
                                  (4, 5), (2, 6), (0, 2)])  # fmt: skip
def test_any_of_the_results_make_a_page(
    browser: Any, tmp_path: Path, kept: tuple[int, ...]
) -> None:
    model = hostile_model()
    all_of_them = results(model, HOSTILE)
    given = [all_of_them[i] for i in kept]
    one = Tab(browser, interp.write_report(tmp_path / "r", model, given))
    for place in one.tab.locator("[data-figure]").all():
        assert place.locator("canvas, svg, .empty").count() > 0
    one.close()


def test_a_head_is_chosen_by_its_name_and_a_position_in_a_map(browser: Any, tmp_path: Path) -> None:
    model = hostile_model()
    given = [showing(model, "bars", "short-map")]
    one = Tab(browser, interp.write_report(tmp_path / "r", model, given))
    one.tab.locator("[data-figure=bars] text.choose", has_text="L1.H1").click()
    assert "head=L1.H1" in one.tab.url
    canvas = one.tab.locator("[data-figure=short-map] canvas")
    canvas.focus()
    one.tab.keyboard.press("ArrowRight")
    one.tab.keyboard.press("Enter")
    assert "pos=6" in one.tab.url  # it begins in the middle of twelve, at 5
    one.close()


@pytest.mark.parametrize("size", [1, 2])
def test_any_kinds_of_result_make_a_page(browser: Any, tmp_path: Path, size: int) -> None:
    """Each kind alone, and pairs drawn at random."""
    own = ("", model_hash(every_model()))
    names = [name for name, one in every_result().items() if one.provenance.model in own]
    rng = np.random.default_rng(0)
    chosen = [tuple(rng.choice(names, size=2, replace=False)) for _ in range(10)]
    for number, some in enumerate([(name,) for name in names] if size == 1 else chosen):
        given = [every_result()[name] for name in some]
        page = interp.write_report(tmp_path / str(number), every_model(), given)
        tab = Tab(browser, page)
        for section in tab.tab.locator("main section").all():
            assert section.locator("canvas, svg, table, button").count() > 0, some
        assert tab.messages == [], some
        tab.close()


def test_the_page_of_the_readmes_tour_opens(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert code is not None
    exec(compile(code[1], "README.md", "exec"), {})  # noqa: S102  # our own tour
    tab = Tab(browser, tmp_path / "reports" / "mine" / "report.html")
    drawn = tab.tab.locator("[data-figure]")
    assert drawn.count() >= 4
    for place in drawn.all():
        assert place.locator("canvas, svg").count() > 0
    assert "nan" not in tab.tab.locator(".findings").inner_text().lower()
    assert tab.messages == []
    tab.close()
