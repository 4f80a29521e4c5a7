"""The inspection page in a browser: silent, quick, usable by keyboard and on a phone, and with the recorded numbers."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from mental_accounts.action_spec import ActionSpec
from mental_accounts.inspect import inspect_page
from mental_accounts.inspect.camera import Film
from mental_accounts.inspect.inspect_page import to_page
from mental_accounts.inspect.inspect_summary import usage
from mental_accounts.inspect.recording import Recording
from tests.inspect.recordings import NO_FILM, config, pictures, played, recording
from tests.policy.helpers import DISCRETE

from .conftest import Watched, accessibility_problems

FIGURES = ("without", "cube", "heat", "traces", "attention", "drift", "histogram", "usage", "error")
READOUTS = (
    "step-value", "now", "cube-readout", "heat-readout", "trace-legend", "attention-readout", "drift-readout",
    "histogram-readout", "usage-readout", "error-readout", "without-readout",
)  # fmt: skip
PRECISION = 6e-4
"""Four significant digits are shown."""


@pytest.fixture(scope="module")
def found() -> Recording:
    return recording(config({"bias_clip": 0.3}))


def opened(watched: Watched, found: Recording, folder: Path, films: list[Film] | None = None) -> Page:
    path = folder / "page.html"
    path.write_text(to_page(found, films or [NO_FILM] * len(found.episodes)), encoding="utf-8")
    watched.page.goto(path.as_uri())
    settled(watched.page)
    watched.page.select_option("#episode", index=0)  # it opens where the accounts mattered most
    settled(watched.page)
    return watched.page


def settled(page: Page) -> None:
    """Two frames later everything asked for has been drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def scrub(page: Page, step: int) -> None:
    page.evaluate(
        "(t) => { const s = document.getElementById('step'); s.value = t; s.dispatchEvent(new Event('input')); }", step
    )
    settled(page)


def drawn(page: Page, names: tuple[str, ...]) -> dict[str, str]:
    return {name: page.evaluate(f"document.getElementById('{name}').toDataURL()") for name in names}


def written(page: Page, names: tuple[str, ...]) -> dict[str, str]:
    return {name: page.locator(f"#{name}").inner_text() for name in names}


def in_text(text: str) -> list[float]:
    return [float(number.replace("−", "-")) for number in re.findall(r"[−-]?\d+(?:\.\d+)?(?:e[−-]?\d+)?", text)]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", "").rstrip(" %"))


def near(value: float) -> object:
    return pytest.approx(value, rel=PRECISION, abs=1e-9)


@pytest.fixture(autouse=True)
def _silent(watched: Watched) -> Iterator[None]:
    yield
    assert watched.errors == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []


def test_scrubbing_updates_every_figure(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)
    page.locator("#attention-details summary").click()
    scrub(page, 10)
    pictures_before, words_before = drawn(page, (*FIGURES, "states")), written(page, READOUTS)
    scrub(page, 31)
    for name, picture in drawn(page, (*FIGURES, "states")).items():
        assert picture != pictures_before[name], f"{name} did not move"
    for name, words in written(page, READOUTS).items():
        assert words != words_before[name], f"{name} still says the same"
    scrub(page, 10)
    assert drawn(page, (*FIGURES, "states")) == pictures_before
    assert written(page, READOUTS) == words_before


def test_the_numbers_shown_are_the_recorded_arrays(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)
    page.locator("#attention-details summary").click()
    assert found.codes is not None
    for place in (1, 0):
        page.select_option("#episode", index=place)
        seen = found.episodes[place]
        held = seen.accounts
        assert held is not None
        for t, layer, head in ((0, 0, 0), (3, 1, 0), (17, 1, 1), (len(seen) - 1, 0, 1)):
            page.select_option("#layer", index=layer)
            page.select_option("#head", index=head)
            scrub(page, t)
            assert number(page.locator("#now-reward").inner_text()) == near(seen.rewards[t])
            assert number(page.locator("#now-return").inner_text()) == near(seen.rewards[: t + 1].sum(dtype=float))
            assert number(page.locator("#now-asked").inner_text()) == near(seen.returns_to_go[t])
            actions = page.locator("#now-action").inner_text().split(", ")
            assert list(map(number, actions)) == [near(value) for value in seen.actions[t]]
            code = int(held.codes[t, 0])
            for name in ("now-code", "cube-readout", "usage-readout"):
                assert f"{code} (" in page.locator(f"#{name}").inner_text()
            assert in_text(page.locator("#cube-readout").inner_text())[-1] == near(held.balances[t, code])
            page.select_option("#code", index=code)
            settled(page)
            said = in_text(page.locator("#heat-readout").inner_text())
            assert said == [code, *map(near, found.codes.centers[code]), near(held.balances[t, code]), t]
            for item in page.locator("#trace-legend li").all()[:-1]:
                own = int(str(item.get_attribute("data-name")))
                assert in_text(item.inner_text())[-1] == near(held.balances[t, own])
            drifts = in_text(page.locator("#drift-readout").inner_text())
            place_at = (t, layer, head)
            bounds = [seen.drift[place_at], seen.sharp_bound[place_at], seen.paper_bound[place_at], seen.drift[t].max()]
            assert drifts == [t, *map(near, bounds)]
            assert ("at its clip" in page.locator("#drift-readout").inner_text()) == bool(seen.clipped[t].any())
            assert in_text(page.locator("#error-readout").inner_text())[:2] == [t, near(held.routing_error[t])]
            rows = [row.locator("th, td").all_inner_texts() for row in page.locator("#attention-table tbody tr").all()]
            names = found.tokens(t)
            assert [row[0] for row in rows] == [name for name in names if name]
            for row, column in zip(rows, [i for i, name in enumerate(names) if name], strict=True):
                index = (*place_at, column)
                without, with_bias = seen.attention_without[index], seen.attention_with[index]
                assert number(row[1]) == near(without)
                assert number(row[2]) == near(with_bias)
                assert number(row[3]) == pytest.approx(with_bias - without, rel=1e-3, abs=2e-7)
                assert number(row[4]) == near(seen.bias[index])
        means = page.locator("#drift-table tbody tr").nth(1).locator("td").nth(0).inner_text().split(", ")
        assert list(map(number, means)) == [near(seen.drift[:, 1, 0].mean()), near(seen.drift[:, 1, 0].max())]
    used = usage(found)
    page.locator("summary", has_text="All codes posted").click()
    for row in page.locator("#usage-table tbody tr").all():
        cells = row.locator("th, td").all_inner_texts()
        code = int(cells[0])
        assert int(cells[2]) == used.posts[code]
        assert number(cells[3]) == near(100 * used.posts[code] / 65)
        assert number(cells[4]) == near(used.mean_reward[code])
    assert page.locator("#usage-table tbody tr").count() == (used.posts > 0).sum()


def test_pointing_at_the_heat_map_tells_a_balance(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)
    held = found.episodes[0].accounts
    assert held is not None
    page.locator("#heat").scroll_into_view_if_needed()
    box = page.locator("#heat").bounding_box()
    assert box is not None
    wide = (box["width"] - 52 - 12) / 40
    for code, step in ((0, 0), (13, 20), (26, 39)):
        page.mouse.move(box["x"] + 52 + (step + 0.5) * wide, box["y"] + (code + 0.5) * 14)
        settled(page)
        said = in_text(page.locator("#heat-readout").inner_text())
        assert (said[0], said[-2], said[-1]) == (code, near(held.balances[step, code]), step)
    page.mouse.click(box["x"] + 52 + 20.5 * wide, box["y"] + 5.5 * 14)
    settled(page)
    assert page.locator("#step").input_value() == "20"
    assert page.locator("#code").input_value() == "5"


def test_keys_go_through_the_episode(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)

    def press(*keys: str) -> tuple[str, str]:
        for key in keys:
            page.keyboard.press(key)
        settled(page)
        return page.locator("#step").input_value(), page.locator("#now-reward").inner_text()

    rewards = found.episodes[0].rewards
    for focus in ("document.getElementById('step').focus()", "document.activeElement.blur()"):
        page.evaluate(focus)
        for keys, step in (
            (["End"], 39), (["ArrowLeft"], 38), (["ArrowRight", "ArrowRight"], 39), (["Home"], 0), (["ArrowLeft"], 0),
            (["ArrowRight"] * 3, 3),
        ):  # fmt: skip
            value, reward = press(*keys)
            assert value == str(step)
            assert number(reward) == near(rewards[step])
    page.focus("#layer")  # what has the focus keeps its own keys
    assert press("ArrowDown")[0] == "3"
    assert page.locator("#layer").input_value() == "1"


def test_play_runs_to_the_end(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)
    scrub(page, 30)
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    expect(page.locator("#step")).to_have_value("39")
    expect(page.locator("#play")).to_have_text("Play")


def test_pictures_follow_the_step(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path, [pictures(40, 8, 64), NO_FILM])
    assert page.locator("#frame").is_visible()
    assert not page.locator("#states").is_visible()
    scrub(page, 3)
    first = page.locator("#frame").get_attribute("src")
    scrub(page, 39)
    assert page.locator("#frame").get_attribute("src") != first
    assert page.locator("#frame").get_attribute("alt") == "Made-up-v0 at step 39"
    assert page.evaluate("document.getElementById('frame').decode().then(() => true)")
    page.select_option("#episode", index=1)
    settled(page)
    assert not page.locator("#frame").is_visible()
    assert page.locator("#states").is_visible()
    assert "No frames: there is no camera in this test." in page.locator("#environment-caption").inner_text()


KINDS = {
    "accounts": config({"bias_clip": 0.3}),
    "odt": config(method="odt"),
    "ledger-odt": config({"beta": 0.05}, method="ledger-odt"),
    "discrete": config(action=DISCRETE),
    "product": config({"codebook": "product", "account_scope": "window"}),
    "critics": config(method="odt"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_everywhere(watched: Watched, tmp_path: Path, kind: str, width: int, scheme: str) -> None:
    watched.page.emulate_media(color_scheme=scheme)
    watched.page.set_viewport_size({"width": width, "height": 800})
    made = recording(KINDS[kind], with_critics=kind == "critics")
    page = opened(watched, made, tmp_path, [pictures(40, 4, 64), NO_FILM])
    for details in page.locator("details summary").all():
        details.click()
    scrub(page, 20)
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # wide tables scroll in their own box
    for figure in page.locator("canvas:not([hidden])").all():
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] >= 300
        assert box["height"] >= 60
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(paper[4:].split(",")[0]) < 100) == (scheme == "dark")
    assert accessibility_problems(page, "label", "select-name", "role-img-alt") == []


def test_colours_change_with_the_scheme(watched: Watched, found: Recording, tmp_path: Path) -> None:
    page = opened(watched, found, tmp_path)
    light = drawn(page, FIGURES)
    page.emulate_media(color_scheme="dark")
    settled(page)
    dark = drawn(page, FIGURES)
    assert all(dark[name] != light[name] for name in FIGURES)


def test_a_policy_without_accounts(watched: Watched, tmp_path: Path) -> None:
    page = opened(watched, recording(config(method="odt")), tmp_path)
    assert page.locator("canvas").count() == 3
    assert "ithout" not in page.locator("body").inner_text().replace("without bias", "")
    assert "keeps no accounts (its method is odt)" in page.locator("#findings").inner_text()
    scrub(page, 5)
    before = drawn(page, ("states", "rewards", "attention"))
    scrub(page, 20)
    after = drawn(page, ("states", "rewards", "attention"))
    assert all(after[name] != before[name] for name in before)


def test_a_policy_that_reads_its_ledger(watched: Watched, tmp_path: Path) -> None:
    page = opened(watched, recording(config({"beta": 0.05}, method="ledger-odt")), tmp_path)
    assert "no drift: this policy reads its ledger" in page.locator("#findings").inner_text()
    figures = ("without", "cube", "heat", "traces", "attention", "usage", "error")
    assert page.locator("canvas").count() == len(figures) + 1
    scrub(page, 5)
    before = drawn(page, figures)
    scrub(page, 20)
    after = drawn(page, figures)
    assert all(after[name] != before[name] for name in figures)
    said = page.locator("#attention-readout").inner_text()
    assert re.fullmatch(r"Step 20, layer 1, head 1: attends most to [Rsa]_\d+, [\d.]+\.", said)
    page.locator("#attention-details summary").click()
    settled(page)
    for row in ("thead tr", "tbody tr:first-child"):
        assert page.locator(f"#attention-table {row}").locator("th, td").count() == 2


@pytest.mark.parametrize("method", ["odt", "ewa-vq-odt"])
def test_a_policy_with_critics(watched: Watched, tmp_path: Path, method: str) -> None:
    found = recording(config(method=method), with_critics=True)
    page = opened(watched, found, tmp_path)
    assert page.locator("#values-legend li").count() == 3
    for place in (1, 0):
        page.select_option("#episode", index=place)
        told, before = found.episodes[place].values, None
        assert told is not None
        assert f"step {np.abs(told.overestimation).argmax()}: " in page.locator("#findings li").last.inner_text()
        for t in (0, 7, len(found.episodes[place]) - 1):
            scrub(page, t)
            said, gap = page.locator("#values-readout").inner_text(), told.overestimation[t]
            shown = [told.values[t], told.discounted_returns[t], *([abs(gap)] if gap else []), told.td_errors[t]]
            assert in_text(said) == [t, *(pytest.approx(x, rel=PRECISION, abs=1e-5) for x in shown if np.isfinite(x))]
            assert ("overestimated" in said, "underestimated" in said) == (gap > 0, gap < 0)
            picture = drawn(page, ("values",))["values"]
            assert picture != before
            before = picture
        assert ("TD error –." in said) == (place == 1)  # the end of an episode that was cut off
    page.locator("#values").click(position={"x": 60, "y": 40})
    settled(page)
    assert page.locator("#step").input_value() == "0"


def test_the_shortest_episodes(watched: Watched, tmp_path: Path) -> None:
    short = config({"account_scope": "window"}, eval_context_length=1)
    page = opened(watched, recording(short, (1, 2), with_critics=True), tmp_path)
    assert page.locator("#step-value").inner_text() == "step 0 of 1"
    page.keyboard.press("End")
    page.select_option("#episode", index=1)
    page.focus("#step")
    page.keyboard.press("End")
    settled(page)
    assert page.locator("#step-value").inner_text() == "step 1 of 2"
    assert page.locator("#drift-readout").inner_text().startswith("Step 1: drift 0, sharp bound 0, the paper's 0;")


def test_attention_too_large_for_a_page_is_left_out(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recording(config())
    monkeypatch.setattr(inspect_page, "FULL_BYTES", 1000)
    monkeypatch.setattr(inspect_page, "MOST_BYTES", found.episodes[0].logits.size * 2)
    page = opened(watched, found, tmp_path)
    page.locator("#attention-details summary").click()
    scrub(page, 20)  # in half precision
    cells = page.locator("#attention-table tbody tr").nth(2).locator("td").all_inner_texts()
    seen = found.episodes[0]
    assert number(cells[0]) == pytest.approx(seen.attention_without[20, 0, 0, 2], rel=2e-3)
    assert number(cells[1]) == pytest.approx(seen.attention_with[20, 0, 0, 2], rel=2e-3)
    page.select_option("#episode", index=1)
    settled(page)
    assert "would make the page too large" in page.locator("#attention-readout").inner_text()


@pytest.mark.parametrize("kind", ["accounts", "ledger-odt", "discrete"])
def test_it_opens_where_the_accounts_mattered_most(watched: Watched, tmp_path: Path, kind: str) -> None:
    made = recording(KINDS[kind], (40, 25, 30))
    found = [episode.without for episode in made.episodes]
    best = int(np.argmax([one.effect.max() for one in found if one]))
    path, page = tmp_path / "page.html", watched.page
    path.write_text(to_page(made, [NO_FILM] * 3), encoding="utf-8")
    page.goto(path.as_uri())
    settled(page)
    assert page.locator("#episode").input_value() == str(best)
    assert page.locator("#step").input_value() == str(found[best].peak)
    for place, without in enumerate(found):
        assert without is not None
        page.select_option("#episode", index=place)
        scrub(page, 3)
        page.locator("#peak").click()
        settled(page)
        t = without.peak
        assert page.locator("#step").input_value() == str(t)
        assert f"step {t}" in page.locator("#peak").inner_text()
        said = in_text(page.locator("#without-readout").inner_text())
        shown = [*np.atleast_1d(without.chosen[t]), *np.atleast_1d(without.actions[t]), without.effect[t]]
        assert said == [t, *map(near, shown)]
        actions = page.locator("#now-without").inner_text().split(", ")
        assert list(map(number, actions)) == [near(value) for value in np.atleast_1d(without.actions[t])]
    page.locator("#without-details summary").click()
    settled(page)
    rows = page.locator("#without-table tbody tr")
    assert rows.count() == 30
    cells = rows.nth(7).locator("th, td").all_inner_texts()
    assert len(cells) == 5  # recorded episodes cannot be played again
    assert [number(cells[3]), number(cells[4])] == [near(found[2].effect[7]), near(made.episodes[2].rewards[7])]
    assert page.locator("#path").count() == 0
    if kind != "discrete":
        before = drawn(page, ("without",))
        page.select_option("#dimension", index=2)
        settled(page)
        assert drawn(page, ("without",)) != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_where_acting_without_accounts_would_have_led(
    watched: Watched, tmp_path: Path, width: int, scheme: str
) -> None:
    watched.page.emulate_media(color_scheme=scheme)
    watched.page.set_viewport_size({"width": width, "height": 900})
    made = played("CartPole-v1")
    page = opened(watched, made, tmp_path)
    without = made.episodes[0].without
    assert without is not None
    assert without.played is not None
    totals = in_text(page.locator("#path-legend").inner_text())
    assert totals == [near(made.episodes[0].total), near(without.played.total)]
    assert f"the episode had return {without.played.total:.1f}" in page.locator("#findings").inner_text()
    page.locator("#without-details summary").click()
    scrub(page, 2)
    said = in_text(page.locator("#path-readout").inner_text())
    assert said == [2, 3, float(without.played.actions[2]), 3]
    rows = page.locator("#without-table tbody tr")
    assert rows.count() == max(len(made.episodes[0]), len(without.played))
    assert number(rows.nth(1).locator("td").nth(4).inner_text()) == without.played.actions[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert accessibility_problems(page) == []


def test_text_of_others_stays_text(watched: Watched, tmp_path: Path) -> None:
    nasty = "</script><script>document.title='bad'</script><img src=x onerror=document.title='bad'><!--"
    page = opened(watched, recording(config(), env_id=nasty), tmp_path, [Film((), (), nasty)] * 2)
    assert nasty in page.locator("h1").inner_text()
    assert nasty in page.locator("#environment-caption").inner_text()
    assert page.title().startswith("Mental accounts: ")
    assert page.locator("img").count() == 1


@pytest.mark.parametrize("context", [5, 20])
def test_a_thousand_steps_of_walker2d_are_small_and_quick(watched: Watched, tmp_path: Path, context: int) -> None:
    """The arrays of ODT's network, 4 layers of 4 heads, on walker2d: 17 states, 6 dimensions of actions, 27 codes."""
    six = ActionSpec("box", 6, (-1.0,) * 6, (1.0,) * 6)
    shape = {"state_dim": 17, "action": six, "layers": 4, "heads": 4, "context_length": 20, "hidden": 16}
    long = recording(config({"beta": 0.05}, **shape, eval_context_length=context), (1000,), "Walker2d-v5")
    path, page = tmp_path / "page.html", watched.page
    path.write_text(to_page(long, [pictures(1000, 180)]), encoding="utf-8")
    size = path.stat().st_size
    start = time.perf_counter()
    page.goto(path.as_uri())
    settled(page)
    opening = time.perf_counter() - start
    assert re.match(r"Step \d+: ", page.locator("#error-readout").inner_text())
    times = page.evaluate(
        """async () => {
          const s = document.getElementById('step'), found = [];
          const frame = () => new Promise((done) => requestAnimationFrame(done));
          for (let t = 3; t < 1000; t += 17) {
            await frame();
            const start = performance.now();
            s.value = t;
            s.dispatchEvent(new Event('input'));
            await frame();
            found.push(performance.now() - start);
          }
          return found;
        }"""
    )
    print(f"\nK = {context}: {size / 1e6:.2f} MB, open {opening:.2f} s, scrub median {np.median(times):.1f} ms, "
          f"largest {max(times):.1f} ms")  # fmt: skip
    assert size < 15e6
    assert opening < 3
    assert np.median(times) < 50
