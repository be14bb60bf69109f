"""The report in headless Chromium, driven over its debugging pipe: no driver to install."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="the report needs matplotlib: pip install aggmc-beam[report]")

from test_report import SCRIPT, STATES, an_estimate

from aggmc_beam.report import write_report

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
]
# Chromium listens on descriptor 3 and answers on 4.
PLUMBING = """
import os, sys
pipes = [os.dup(os.dup(os.dup(int(n)))) for n in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
# One browser for all tests here, so they belong in one worker.
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; the page is not tested in a browser"),
    pytest.mark.xdist_group("chromium"),
]


class Browser:
    """Chromium with one page at a time, spoken to in JSON over two pipes."""

    def __init__(self, profile: str) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PLUMBING, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.read, self.write = ours_in, ours_out
        self.buffer, self.numbers = b"", itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def start(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]
            self.events.append(reply)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.send(method, self.session, **params)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + 20
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            block = os.read(self.read, 1 << 20)
            assert block, "Chromium has ended"
            self.buffer += block
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, width: int = 1200, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not self.named("Page.loadEventFired"):
            self.events.append(self._next())

    def run(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def named(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]

    def complaints(self) -> list[dict[str, Any]]:
        """Everything that the console would show in red or yellow, and dialogs."""
        self.run("0")
        consoled = [e for e in self.named("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]
        logged = [e for e in self.named("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        return consoled + logged + self.named("Runtime.exceptionThrown", "Page.javascriptDialogOpening")

    def hover(self, selector: str, u: float, v: float) -> str:
        """Move the mouse to the share (u, v) of a drawing's plotted area; what the tip then says."""
        x, y = self.run(f"""(() => {{
            const svg = document.querySelector({json.dumps(selector)});
            svg.scrollIntoView({{block: "center"}});
            const [x, y, w, h] = svg.dataset.box.split(" ").map(Number);
            const p = new DOMPoint(x + {u} * w, y + {v} * h).matrixTransform(svg.getScreenCTM());
            return [p.x, p.y];
        }})()""")
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.at = (x, y)
        return str(self.run('document.getElementById("tip").hidden ? "" : tip.innerText'))

    def click(self) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            x, y = self.at
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, control: str, value: object) -> None:
        self.run(f"""(() => {{ const s = document.getElementById({json.dumps(control)});
            s.value = {json.dumps(str(value))}; s.dispatchEvent(new Event("change")); }})()""")

    def screenshot(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        os.close(self.write)  # Chromium ends when its pipe does
        os.close(self.read)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            browser.start()
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    config = {"name": "mobility", "noise": {"model": "binomial", "alpha": 0.5}}
    write_report([an_estimate()], folder / "single.html", config, {"files": 2})
    windows = [an_estimate(seed=k, window={"start": 6 * k, "end": 6 * k + 24}, cell=6 * k) for k in range(30)]
    write_report(windows, folder / "windows.html", config)
    groups = [an_estimate(seed=k, group={"region": f"R{k}"}, refresh=r) for k in range(4) for r in (1, 2)]
    write_report(groups, folder / "groups.html", config)
    evil = an_estimate(states=(SCRIPT, "</script><svg onload=alert(2)>", "a & b", "$x_{1}"))
    evil["diagnostics"][SCRIPT] = {SCRIPT: SCRIPT}
    other = {**evil, "group": {"region": "<img src=x onerror=alert(3)>"}}
    write_report([evil, other], folder / "evil.html", {"name": SCRIPT, SCRIPT: SCRIPT}, {SCRIPT: 1})
    write_report([an_estimate(states=100)], folder / "hundred.html")
    return folder


KINDS = ["single", "windows", "groups", "evil", "hundred"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_opens_without_complaint_and_asks_nobody_for_anything(browser, pages, kind):
    browser.open(pages / f"{kind}.html")
    assert browser.complaints() == []
    asked = [e["request"]["url"] for e in browser.named("Network.requestWillBeSent")]
    assert asked == [(pages / f"{kind}.html").as_uri()]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_overflows_at_the_width_of_a_phone(browser, pages, kind):
    browser.open(pages / f"{kind}.html", width=380)
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("document.documentElement.scrollWidth") <= 380
    beyond = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg')
        && e.getBoundingClientRect().right > 380.5).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.run(beyond) == []


def test_hovering_a_cell_shows_its_value_and_interval(browser, pages):
    estimate = an_estimate()
    browser.open(pages / "single.html")
    said = browser.hover('svg[data-map="P"]', 0.625, 0.125)
    value, low, high = (100 * estimate[key][0][2] for key in ("transition_matrix", "lower", "upper"))
    assert f"{STATES[0]} → {STATES[2]}" in said
    assert f"{value:.2f}%" in said
    assert f"{low:.2f}% to {high:.2f}%" in said
    assert "naive" in said


def test_hovering_works_where_cells_have_no_numbers(browser, pages):
    estimate = an_estimate(states=100)
    browser.open(pages / "hundred.html", width=380)
    said = browser.hover('svg[data-map="P"]', 0.425, 0.425)
    assert "s42 → s42" in said
    assert f"{100 * estimate['transition_matrix'][42][42]:.2f}%" in said


def test_hovering_a_baseline_names_it(browser, pages):
    browser.open(pages / "single.html")
    assert "identity" in browser.hover('svg[data-map="identity"]', 0.125, 0.125)


def test_arrow_keys_move_over_the_heat_map(browser, pages):
    browser.open(pages / "single.html")
    browser.run("document.querySelector('svg[data-map]').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
    assert f"{STATES[0]} → {STATES[1]}" in browser.run("tip.innerText")


def test_a_state_named_like_a_script_is_shown_and_not_run(browser, pages):
    browser.open(pages / "evil.html")
    assert SCRIPT in browser.run("document.querySelector('h1').innerText")
    assert SCRIPT in browser.run("document.getElementById('matrix').textContent")
    assert SCRIPT in browser.hover('svg[data-map="P"]', 0.1, 0.1)
    browser.choose("choose-group", 1)
    assert SCRIPT in browser.run("document.getElementById('findings').textContent")
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert browser.complaints() == []


def test_text_from_data_is_shown_and_not_run_wherever_it_stands(browser, tmp_path):
    """States, groups, names, files, reasons: each has a trap of its own, which tells if it went off."""
    places = ("state", "column", "group", "name", "key", "setting", "file", "reason", "skipped", "estimator")
    places += ("noise", "count", "flag", "why", "note", "baseline")
    trap = {p: f"</script></title></style>\"'><img src=x onerror=\"window.ran='{p}'\">{p}" for p in places}
    evil = [
        an_estimate(
            states=(trap["state"], "b", "c", "d"), group={trap["column"]: f"{trap['group']}{k}"}, seed=k
        )
        for k in range(2)
    ]
    for e in evil:
        e |= {"estimator": trap["estimator"], "noise": {"model": trap["noise"]}}
        e["counts"] = {**e["counts"], trap["count"]: 1}
        e["baselines"] = {**e["baselines"], trap["baseline"]: e["transition_matrix"]}
        rows = [{"state": trap["state"], "flag": trap["flag"], "why": trap["why"]}]
        e["diagnostics"] = {**e["diagnostics"], "rows": rows, "new": {"note": trap["note"]}}
    config = {"name": trap["name"], trap["key"]: trap["setting"]}
    ledger = {
        "files": {trap["file"]: 1},
        "rejected": {trap["reason"]: 2},
        "skipped": {trap["group"]: trap["skipped"]},
    }
    write_report(evil, tmp_path / "evil.html", config, ledger)
    browser.open(tmp_path / "evil.html")
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    for chosen in (1, 0):
        browser.choose("choose-group", chosen)
        browser.hover('svg[data-map="P"]', 0.1, 0.1)
    shown = browser.run("document.body.innerText + [...document.querySelectorAll('option')].map(o => o.text)")
    missing = [p for p in places if f"window.ran='{p}'" not in shown and p != "flag"]
    assert missing == []
    assert browser.run("document.title").endswith("name")
    assert browser.run("window.ran === undefined")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.complaints() == []
    asked = [e["request"]["url"] for e in browser.named("Network.requestWillBeSent")]
    assert asked == [(tmp_path / "evil.html").as_uri()]


def test_the_content_security_policy_is_in_force(browser, pages):
    browser.open(pages / "single.html")
    browser.run("""(() => {
        const s = document.createElement("script"); s.textContent = "window.ran = 1"; document.body.append(s);
        const p = document.createElement("p"); p.setAttribute("style", "color: red"); document.body.append(p);
        fetch("https://example.org/").catch(() => { window.refused = 1; });
    })()""")
    browser.run("new Promise(r => setTimeout(r, 50))")
    assert browser.run("[window.ran, window.refused]") == [None, 1]
    blocked = " ".join(json.dumps(e) for e in browser.complaints())
    for directive in ("script-src", "style-src", "connect-src"):
        assert directive in blocked


def test_dark_mode_is_applied_and_text_keeps_its_contrast(browser, pages):
    contrast = """(() => {
        const light = (c) => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
            .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const probe = document.createElement("i"); document.body.append(probe);
        const of = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
        const mix = (v) => { const a = of("accent").match(/\\d+/g), b = of("cell").match(/\\d+/g);
            return `rgb(${a.map((x, k) => Math.round(v * x + (1 - v) * b[k]))})`; };
        const found = ["ink", "soft", "act", "look", "fine"].map(n => ratio(light(of(n)), light(of("card"))));
        for (let v = 0; v <= 1; v += 0.025)
            found.push(ratio(light(of(v > 0.66 ? "deep" : "pale")), light(mix(v))));
        return [light(of("page")), Math.min(...found)];
    })()"""
    browser.open(pages / "single.html")
    page, least = browser.run(contrast)
    assert page > 0.8
    assert least > 4.5
    browser.open(pages / "single.html", dark=True)
    page, least = browser.run(contrast)
    assert page < 0.05
    assert least > 4.5


def test_choosing_a_window_redraws_everything(browser, pages):
    estimate = an_estimate(seed=7, window={"start": 42, "end": 66}, cell=42)
    browser.open(pages / "windows.html")
    browser.choose("choose-cell", 7)
    shown = f"{estimate['transition_matrix'][0][0]:.4f}"
    assert browser.run("document.querySelector('#matrix td').firstChild.data") == shown
    shown = f"{estimate['transition_matrix'][0][0]:.3f}"
    assert shown == browser.run("document.querySelector('[data-role=n]').textContent")
    assert browser.complaints() == []


def test_drawing_by_the_script_repeats_that_of_matplotlib(browser, pages):
    # Cells are grouped otherwise by the script; lines, bands, bars and every text must agree.
    script = """[...document.querySelectorAll('svg text[data-role], [data-role=band], [data-role=curve],' +
        '[data-role=bar], [data-role=marks]')].map(e => {
            if (e.tagName === 'text') return e.textContent.trim();
            const b = e.getBBox();
            return [b.x, b.y, b.width, b.height].map(v => Math.round(v)).join(' '); })"""
    browser.open(pages / "windows.html")
    before = browser.run(script)
    browser.choose("choose-cell", 3)
    assert browser.run(script) != before
    browser.choose("choose-cell", 0)
    assert browser.run(script) == before


def test_a_click_draws_that_entry_over_the_windows(browser, pages):
    browser.open(pages / "windows.html")
    browser.hover('svg[data-map="P"]', 0.875, 0.375)
    browser.click()
    assert browser.run("document.getElementById('entry-0').textContent") == f"{STATES[1]} → {STATES[3]}"
    assert "window" in browser.hover("svg[data-series]", 0.5, 0.5)


def test_groups_and_refreshes_are_chosen_and_compared(browser, pages):
    browser.open(pages / "groups.html")
    ways = browser.run("[...document.getElementById('along').options].map(o => o.value)")
    assert ways == ["refresh", "group"]
    browser.choose("along", "group")
    assert "region R2" in browser.hover("svg[data-series]", 0.66, 0.5)
    browser.choose("choose-group", 3)
    assert browser.run("document.getElementById('choose-group').value") == "3"
    assert browser.complaints() == []


def test_printing_gives_light_pages_with_every_detail(browser, pages):
    browser.open(pages / "windows.html", dark=True)
    pdf = browser.call("Page.printToPDF", printBackground=True)["data"]
    assert base64.b64decode(pdf).startswith(b"%PDF")
    assert browser.run("[...document.querySelectorAll('details')].every(d => d.open)")


def set_input(browser, control, value):
    browser.run(f"""(() => {{ const c = document.getElementById({control!r}); c.value = {value!r};
        c.dispatchEvent(new Event("input")); }})()""")


def test_states_are_sorted_and_found_in_maps_and_table(browser, pages):
    browser.open(pages / "single.html")
    e = an_estimate()
    heads = "[...document.querySelectorAll('#matrix tbody th')].map(t => t.textContent)"
    labels = "[...document.querySelectorAll('svg[data-map=P] [data-role=row]')].map(t => t.textContent)"
    corner = "document.querySelector('#matrix td').firstChild.data"
    for how, order in (
        ("name", sorted(range(4), key=lambda i: STATES[i])),
        ("share", sorted(range(4), key=lambda i: -e["stationary"][i])),
        ("stay", sorted(range(4), key=lambda i: -e["transition_matrix"][i][i])),
        ("given", list(range(4))),
    ):
        browser.choose("sort", how)
        assert browser.run(heads) == browser.run(labels) == [STATES[i] for i in order]
        assert browser.run(corner) == f"{e['transition_matrix'][order[0]][order[0]]:.4f}"
    browser.choose("sort", "alike")
    assert sorted(browser.run(labels)) == sorted(STATES)
    set_input(browser, "find", "WOR")
    assert (
        browser.run("[...document.querySelectorAll('#matrix tbody tr')].map(r => r.hidden)").count(False) == 1
    )
    assert browser.run("document.querySelectorAll('svg[data-map=P] .found').length") == 2
    set_input(browser, "find", "")
    assert browser.run("document.querySelectorAll('.found').length") == 0
    assert browser.complaints() == []


def test_people_per_step_are_shown_beside_probabilities(browser, pages):
    browser.open(pages / "single.html")
    e = an_estimate()
    people = 1000 * e["stationary"][0] * e["transition_matrix"][0][0]
    assert "people per step" in browser.hover('svg[data-map="P"]', 0.1, 0.1)
    browser.choose("show", "people")
    shown = browser.run("document.querySelector('svg[data-map=P] [data-role=n]').textContent")
    assert abs(float(shown) - people) < 0.01 * people
    browser.choose("show", "P")
    shown = browser.run("document.querySelector('svg[data-map=P] [data-role=n]').textContent")
    assert shown == f"{e['transition_matrix'][0][0]:.3f}"


def test_a_slider_moves_over_the_cells_and_play_goes_on_by_itself(browser, pages):
    browser.open(pages / "windows.html")
    set_input(browser, "slide", "5")
    assert browser.run("document.getElementById('choose-cell').value") == "5"
    browser.run("document.getElementById('play').click()")
    time.sleep(1.2)
    assert browser.run("Number(document.getElementById('slide').value)") > 5
    browser.run("document.getElementById('play').click()")
    assert browser.complaints() == []


def test_every_group_has_a_line_with_its_interval(browser, pages):
    browser.open(pages / "groups.html")
    assert browser.run("document.querySelectorAll('#groups g').length") == 4
    assert browser.run("document.querySelectorAll('#groups g path').length") == 4
    browser.run("document.querySelectorAll('#groups g')[2].dispatchEvent(new Event('click'))")
    assert browser.run("document.getElementById('choose-group').value") == "2"


def test_tables_and_figures_are_downloaded(browser, pages):
    browser.open(pages / "windows.html")
    browser.run(
        """(() => { window.saved = []; URL.createObjectURL = (b) => { saved.push(b); return "#"; }; })()"""
    )
    browser.run("document.querySelectorAll('button[data-csv], button[data-svg]').forEach(b => b.click())")
    texts = browser.run("Promise.all(saved.map(b => b.text()))")
    e = an_estimate(seed=0)
    first = texts[0].splitlines()
    assert first[0] == "from,to,probability,lower,upper"
    assert abs(float(first[1].split(",")[2]) - e["transition_matrix"][0][0]) < 1e-4
    assert len(first) == 17
    assert sum(t.startswith("<svg") and "http://www.w3.org/2000/svg" in t for t in texts) == 2
    assert not any("class=" in t for t in texts if t.startswith("<svg"))
    assert sum(t.startswith("window,from,to,") or t.startswith("cell,from,to,") for t in texts) == 1


def test_a_report_of_many_groups_and_states_stays_small_and_lists_them_all(browser, tmp_path):
    names = [f"zone {k}" for k in range(50)]
    many = [
        an_estimate(states=names, seed=k, cell=k, group={"g": f"group {g}"})
        for g in range(300)
        for k in range(2)
    ]
    write_report(many, tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < 2_500_000
    browser.open(tmp_path / "many.html")
    assert browser.run("document.querySelectorAll('#all tbody tr').length") == 600
    groups = browser.run("document.getElementById('choose-group').options.length")
    assert browser.run("JSON.parse(document.getElementById('data').textContent).items.length") == 2 * groups
