"""The report as a browser shows it: on a phone and a desk, in light and dark, and on paper."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from megalabel import report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no Chromium here to open the page in"
)

# Measures the page in a frame as wide as a screen, and tells the page around it. What a click
# unfolds must fit, too.
PROBE = """<script>
  document.querySelectorAll("button[data-open]")[0].click();
  for (const details of document.querySelectorAll("details")) details.open = true;
  const page = document.documentElement;
  parent.postMessage([page.scrollWidth, page.clientWidth, getComputedStyle(document.body)
    .backgroundColor, document.querySelectorAll(".tree details[open]").length].join(" | "), "*");
</script>"""
FRAME = """<!doctype html><iframe src="probed.html" style="width:{width}px;height:900px;border:0">
</iframe><script>addEventListener("message", (e) => document.title = e.data)</script>"""


def browse(page, *options):
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += [f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.fixture(scope="module")
def page(tree_tagger, corpus, tmp_path_factory):
    return report.write(tree_tagger, corpus, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1280, False)])
def test_it_fits_the_screen(page, width, dark):
    html = page.read_text(encoding="utf-8")
    html = re.sub("<meta http-equiv[^>]*>", "", html)  # which would refuse the probe
    probed = page.with_name("probed.html")
    probed.write_text(html.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(width=width), encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    done = browse(
        frame, "--window-size=1400,1000", scheme, "--virtual-time-budget=3000", "--dump-dom"
    )
    [measured] = re.findall("<title>(.*?)</title>", done.stdout)
    scrolled, shown, paper, unfolded = measured.split(" | ")
    assert int(shown) <= width
    assert scrolled == shown
    assert paper == ("rgb(22, 24, 29)" if dark else "rgb(251, 250, 247)")
    assert int(unfolded) > 1


SEARCH = """<script>
  const box = document.querySelector(".labels"), search = box.querySelector("input");
  const names = () => [...box.querySelectorAll("tbody th")].map((cell) => cell.textContent);
  const counts = () => [...box.querySelectorAll("tbody td:nth-child(3)")].map(
    (cell) => Number(cell.textContent));
  const said = [names().length];
  box.querySelectorAll("thead button")[0].click();
  said.push(names().join());
  box.querySelectorAll("thead button")[2].click();
  said.push(counts().join());
  search.value = "RES";
  search.dispatchEvent(new Event("input"));
  said.push(names().join(), box.querySelector(".controls span").textContent);
  search.value = "";
  search.dispatchEvent(new Event("input"));
  box.querySelector("button[data-turn='1']").click();
  said.push(names().length, box.querySelectorAll("button:disabled").length);
  document.title = said.join(" | ");
</script>"""


def test_labels_are_searched_sorted_and_paged(tree_tagger, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("megalabel.report.labels.PAGE", 6)
    html = re.sub("<meta http-equiv[^>]*>", "", report.render(tree_tagger, corpus))
    page = tmp_path / "searched.html"
    page.write_text(html.replace("</body>", SEARCH + "</body>"), encoding="utf-8")
    done = browse(page, "--virtual-time-budget=2000", "--dump-dom")
    title = re.findall("<title>(.*?)</title>", done.stdout)[0]  # SVG has some, too
    shown, by_name, by_count, matches, counted, after, disabled = title.split(" | ")
    names, counts = corpus.labels.names.to_pylist(), corpus.label_counts
    assert int(shown) == 6
    assert by_name.split(",") == sorted(names)[:6]
    assert [int(n) for n in by_count.split(",")] == sorted(counts, reverse=True)[:6]
    holding = [name for name in names if "res" in name]
    assert sorted(matches.split(",")) == sorted(holding)[:6]
    assert counted == f"{len(holding)} labels"
    assert int(after) == min(6, len(names) - 6)
    assert int(disabled) == (len(names) <= 12)


def test_its_own_script_may_run_and_nothing_is_fetched(page):
    done = browse(page, "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom")
    assert "Content Security Policy" not in done.stderr
    assert "Refused" not in done.stderr
    assert "<main>" in done.stdout


def test_it_prints(page):
    paper = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={paper}")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(content) > 20_000
