"""Renders pages in headless Chromium. Fails without Chromium."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
_CONSOLE = re.compile(r":CONSOLE[:(].*")
_FOUND = re.compile(r'<pre id="found">(.+?)</pre>', re.DOTALL)

_LOOK = """
const picture = document.getElementById('picture');
picture.onload = () => {
  const canvas = document.createElement('canvas');
  canvas.width = picture.naturalWidth;
  canvas.height = picture.naturalHeight;
  const drawn = canvas.getContext('2d');
  drawn.drawImage(picture, 0, 0);
  const { data } = drawn.getImageData(0, 0, canvas.width, canvas.height);
  const pixels = new Uint32Array(data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  const [paper] = [...counts].reduce((most, each) => each[1] > most[1] ? each : most);
  const inked = Array(10).fill(0);
  pixels.forEach((pixel, n) => {
    if (pixel !== paper) inked[Math.floor(n * 10 / pixels.length)] += 10 / pixels.length;
  });
  const rgb = [paper & 255, paper >> 8 & 255, paper >> 16 & 255];
  document.getElementById('found').textContent = JSON.stringify(
    { colours: counts.size, paper: rgb, inked });
};
"""


@dataclass(frozen=True)
class Browser:
    """Chromium with a profile below `folder`."""

    folder: Path

    def run(self, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program is not None, "no Chromium is installed; its package is chromium"
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--allow-file-access-from-files", "--enable-logging=stderr"]
        command += [f"--user-data-dir={self.folder / 'profile'}", *options, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)

    def console(self, page: Path) -> list[str]:
        """Return the messages on the console."""
        return _CONSOLE.findall(self.run(page, "--dump-dom").stderr)

    def picture(self, page: Path, width: int, height: int, *options: str) -> dict[str, Any]:
        """Return the number of colours, the background, and the share of other pixels."""
        path = self.folder / "picture.png"
        self.run(page, f"--screenshot={path}", f"--window-size={width},{height}", *options)
        data = base64.b64encode(path.read_bytes()).decode()
        look = self.folder / "look.html"
        look.write_text(
            f'<pre id="found"></pre><img id="picture"><script>{_LOOK}'
            f"picture.src = 'data:image/png;base64,{data}';</script>"
        )
        return self._found(look)

    def pdf(self, page: Path) -> bytes:
        paper = self.folder / "paper.pdf"
        self.run(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
        return paper.read_bytes()

    def measured(self, page: Path, width: int, script: str, *options: str) -> Any:
        """Evaluate a function of `document` and `window` of a page of this width.

        The function may be asynchronous. The page is in an iframe, because a window cannot be as
        narrow as a telephone.
        """
        around = self.folder / "around.html"
        around.write_text(
            f'<iframe id="shown" style="width:{width}px;height:900px;border:0"></iframe>'
            '<pre id="found"></pre><script>'
            "const shown = document.getElementById('shown'); shown.onload = async () => {"
            f"const found = await ({script})(shown.contentDocument, shown.contentWindow);"
            "document.getElementById('found').textContent = JSON.stringify(found); };"
            f"shown.src = {json.dumps(page.as_uri())};</script>"
        )
        return self._found(around, *options)

    def _found(self, page: Path, *options: str) -> Any:
        usual = ("--dump-dom", "--virtual-time-budget=5000", "--window-size=1600,1000")
        dumped = self.run(page, *usual, *options)
        output = _FOUND.search(dumped.stdout)
        assert output is not None, dumped.stderr
        return json.loads(html.unescape(output[1]))
