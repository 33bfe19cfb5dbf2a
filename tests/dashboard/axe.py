"""Accessibility, as axe judges it."""

from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext

ALL_RULES = {"resultTypes": ["violations"]}
# What a colour scheme can break.
CONTRAST = {**ALL_RULES, "runOnly": ["color-contrast"]}
# Where pages must do: a phone and a desk, by day and by night. Other rules look at each layout once.
VIEWS = (
    (360, "light", CONTRAST),
    (360, "dark", ALL_RULES),
    (1280, "light", ALL_RULES),
    (1280, "dark", CONTRAST),
)


def violations(opener: Callable[..., BrowserContext], path: str, *, login: bool = True) -> list[str]:
    """What axe finds wrong at `path`, and whether it is too wide, in each of VIEWS."""
    found: list[str] = []
    page = opener(login=login, bypass_csp=True, reduced_motion="reduce").new_page()
    page.goto(path)
    for width, scheme, rules in VIEWS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        for one in Axe().run(page, options=rules).response["violations"]:
            places = [node["target"] for node in one["nodes"]]
            found.append(f"{path} {width} {scheme}: {one['id']} at {places[:4]}: {one['help']}")
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{path} {width} {scheme}: wider than the window")
    return found
