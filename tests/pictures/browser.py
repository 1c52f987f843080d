"""A headless browser that opens a page, does something with it, and says what a person would see."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH")

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,800",
    "--virtual-time-budget=5000",
]

BEFORE = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective + " " + event.blockedURI));
</script>"""

AFTER = """<script>
const all = (selector) => [...document.querySelectorAll(selector)];
const texts = (selector) => all(selector).map((one) => one.textContent);
const point = (target, kind) => {
  const { x, y, width, height } = target.getBoundingClientRect();
  const where = { clientX: x + width / 2, clientY: y + height / 2 };
  target.dispatchEvent(new PointerEvent(kind, { bubbles: true, ...where }));
};
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const seen = (() => { %s })();
const written = document.createElement("pre");
written.id = "seen";
written.textContent = JSON.stringify({ seen, problems });
document.body.append(written);
</script>"""


def seen_in_browser(page: str, script: str, *options: str, suffix: str = ".html") -> Any:
    """Return what a script returns that runs in a page after its own; none of the page's scripts may fail."""
    page = page.replace("<head>", f"<head>{BEFORE}", 1).replace("</body>", AFTER % script + "</body>", 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"page{suffix}"
        path.write_text(page, encoding="utf-8")
        profile = f"--user-data-dir={folder}/profile"
        command = [str(CHROMIUM), *OPTIONS, *options, profile, "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    dom = done.stdout.decode()
    assert '<pre id="seen">' in dom, dom[:2000]
    found = json.loads(html.unescape(dom.split('<pre id="seen">')[1].split("</pre>")[0]))
    assert found["problems"] == []
    return found["seen"]
