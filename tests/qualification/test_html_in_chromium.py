"""report.html in a real browser: it fits a phone, and the browser has nothing to complain of."""

import functools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from qualification import html
from tests.qualification import made_run

WIDTHS = (360, 390, 768, 1400)
# each frame is a window of that width to the page in it
OUTER = """<!DOCTYPE html><title>outer</title>
{frames}
<pre id="found"></pre>
<script>
onload = () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument;
    return {{
      width: frame.clientWidth,
      needs: page.documentElement.scrollWidth,
      rows: page.querySelectorAll("tr").length,
      pictures: [...page.images].filter(image => image.src.startsWith("data:")).length,
      one_column: getComputedStyle(page.querySelector(".cards tr")).display === "grid",
    }};
  }});
  document.querySelector("#found").textContent = JSON.stringify(found);
}};
</script>
"""


@pytest.fixture
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return name
    pytest.skip("no Chromium on this machine (Debian: apt install chromium)")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DETSERVE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DETSERVE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "run-1"
    html.write(folder, made_run.write(folder))
    return folder


@pytest.fixture
def served(run: Path) -> Iterator[tuple[str, list[str]]]:
    """The run's folder over HTTP, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, form: str, *details: object) -> None:
            asked.append(self.path)

    handler = functools.partial(Handler, directory=str(run))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
def test_the_page_fits_every_width_and_loads_nothing(
    chromium: str, run: Path, served: tuple[str, list[str]], tmp_path: Path
) -> None:
    frames = "".join(
        f'<iframe src="report.html" style="width:{width}px;border:0"></iframe>' for width in WIDTHS
    )
    (run / "outer.html").write_text(OUTER.format(frames=frames))
    url, asked = served
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu"),  # as root, in a container
        *("--enable-logging=stderr", "--v=0", f"--user-data-dir={tmp_path / 'profile'}"),
    )
    done = subprocess.run(
        [chromium, *options, "--dump-dom", f"{url}/outer.html"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    text = re.search(r'<pre id="found">(.+)</pre>', done.stdout)
    assert text is not None, done.stderr
    for found in json.loads(text[1]):
        assert found["needs"] <= found["width"], found
        assert found["rows"] > 20
        assert found["pictures"] == 8
        assert found["one_column"] == (found["width"] < 800)
    assert "CONSOLE" not in done.stderr
    assert set(asked) - {"/favicon.ico"} == {"/outer.html", "/report.html"}
