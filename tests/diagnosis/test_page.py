"""The report in a real browser: it opens quietly, its controls work with mouse and keys, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.diagnosis import diagnose
from octavo.graph import Encoder
from tests.diagnosis.browser import AVAILABLE, Browser, browser
from tests.diagnosis.conftest import PLANTED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not AVAILABLE, reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)"
    ),
]
LEFT, RIGHT, DOWN = "\ue012", "\ue014", "\ue015"
HOSTILE = "<script>window.hacked = 1</script> </script><img src=x onerror=window.hacked=2>"


@pytest.fixture(scope="module")
def page(planted: Encoder, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("page")
    panels = {HOSTILE: texts[:2]}
    found = diagnose(planted, texts, output=folder / "report", panels=panels, source=HOSTILE)
    assert found.report is not None
    with browser(folder / "profile") as tab:
        tab.open(found.report)
        yield tab


def text(page: Browser, name: str) -> str:
    return str(page.run("return document.getElementById(arguments[0]).textContent", name))


def pixels(page: Browser, name: str) -> str:
    return str(page.run("return document.getElementById(arguments[0]).toDataURL()", name))


def test_it_opens_without_complaints(page: Browser) -> None:
    assert page.run("return document.documentElement.dataset.ready") == "yes"
    assert page.complaints() == []


def test_text_from_the_data_is_only_text(page: Browser) -> None:
    assert page.run("return window.hacked === undefined")
    assert HOSTILE in page.run("return document.body.textContent")


def test_the_map_is_read_with_keys(page: Browser) -> None:
    page.run("document.getElementById('map').focus()")
    page.press(RIGHT, RIGHT, DOWN)
    assert "layers.1.ffn_output, dimension 2" in text(page, "map-out")
    page.press(LEFT)
    assert "dimension 1 " in text(page, "map-out")


def test_largest_jumps_to_the_planted_dimension(page: Browser) -> None:
    page.run("document.getElementById('map-jump').click()")
    assert f"layers.1.ffn_output, dimension {PLANTED} " in text(page, "map-out")
    assert "outlier in 6 of 6 texts" in text(page, "map-out")
    page.run("document.getElementById('token-jump').click()")
    assert f"dimension {PLANTED}" in text(page, "token-out")


def test_hovering_shows_values(page: Browser) -> None:
    page.run(
        "const box = document.getElementById('map').getBoundingClientRect();"
        "document.getElementById('map').dispatchEvent(new MouseEvent('mousemove',"
        "{clientX: box.left + box.width / 2, clientY: box.top + 8}))"
    )
    assert "layers.0.ffn_output, dimension" in text(page, "tip")


def test_another_tensor_gives_another_map(page: Browser) -> None:
    change = (
        "const s = document.getElementById(arguments[0]); s.value = '1'; s.dispatchEvent(new Event('change'))"
    )
    for select, canvas in (("map-role", "map"), ("token-site", "tokens-map"), ("query", "neurons")):
        before = pixels(page, canvas)
        page.run(change, select)
        assert pixels(page, canvas) != before, select


def test_a_head_is_chosen(page: Browser) -> None:
    page.run("document.querySelector('#heads button[data-head=\"1.2\"]').click()")
    assert text(page, "head-out").startswith("Head 1.2")
    assert page.run("return document.querySelectorAll('#head-view line').length") > 10
    assert page.run("return document.querySelector('#heads [aria-pressed=true]').dataset.head") == "1.2"


def test_tables_sort(page: Browser) -> None:
    click = (
        "const t = document.querySelector('#ranking table'); t.querySelectorAll('thead button')[2].click();"
    )
    column = "return [...t.tBodies[0].rows].map((row) => parseFloat(row.cells[2].textContent))"
    rising = page.run(click + column)
    assert rising == sorted(rising)
    assert page.run(click + column) == rising[::-1]


def test_every_control_is_reached_by_tab_and_named(page: Browser) -> None:
    assert page.run(
        "return [...document.querySelectorAll('canvas, select, button')].every((e) => e.tabIndex >= 0 &&"
        "(e.getAttribute('aria-label') || e.textContent || e.closest('label')))"
    )


def test_dark_and_print_change_the_colours(page: Browser) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    found = {}
    for name, media in {"light": "screen", "dark": "screen", "print": "print"}.items():
        scheme = "dark" if name == "dark" else "light"
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        page.devtools("Emulation.setEmulatedMedia", media=media, features=feature)
        found[name] = (page.run(colour), pixels(page, "map") if media == "screen" else "")
    page.devtools("Emulation.setEmulatedMedia", media="", features=[])
    assert len(set(found.values())) == 3, found


def test_a_phone_needs_no_sideways_scrolling(page: Browser) -> None:
    size = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    page.devtools("Emulation.setDeviceMetricsOverride", **size)
    wide = page.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    page.devtools("Emulation.clearDeviceMetricsOverride")
    assert wide <= 0


def test_a_screenshot_can_be_taken_and_still_nobody_complained(page: Browser, tmp_path: Path) -> None:
    page.screenshot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 20_000
    assert page.complaints() == []
