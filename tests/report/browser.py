"""Headless Chromium, driven over its DevTools pipe with the standard library alone.

The browser resolves no name and reaches no network; every request that a page tries is noted.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 60.0


def find_browser() -> str | None:
    """The program, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def _pages(pdf: bytes) -> Iterator[bytes]:
    """The drawing commands of each page."""
    for page in re.findall(rb"/Type\s*/Page\b.*?endobj", pdf, re.DOTALL):
        (number,) = re.findall(rb"/Contents (\d+) 0 R", page)
        stream = re.search(rb"\n%b 0 obj.*?stream\r?\n(.*?)endstream" % number, pdf, re.DOTALL)
        assert stream is not None
        yield zlib.decompressobj().decompress(stream[1])


class Browser:
    """One browser with one page."""

    def __init__(self) -> None:
        program = find_browser()
        assert program is not None, f"none of {', '.join(PROGRAMS)} is on the PATH"
        self._profile = tempfile.mkdtemp(prefix="mnb-browser-")
        down, self._down = os.pipe()
        self._up, up = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{down} 4>&{up}', "browser", program, *options, "about:blank"],
            pass_fds=(down, up),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(down)
        os.close(up)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._down)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._up)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one call."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._down, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(_PATIENCE_S)
            assert answer is not None, f"{method}: no answer in {_PATIENCE_S:g} s"
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self, patience_s: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + patience_s
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._up], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            read = os.read(self._up, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def look(self, width: int, height: int, *, dark: bool = False, scale: float = 1.0) -> None:
        """Set the size of the window in CSS pixels, and what the reader prefers."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, file: Path) -> None:
        """Load a page and wait until it is there."""
        self.events.clear()
        self.send("Page.navigate", url=file.resolve().as_uri())
        self.until("document.readyState === 'complete'")

    def until(self, expression: str) -> None:
        """Wait until ``expression`` holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"not in {_PATIENCE_S:g} s: {expression}"
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key, such as ``Enter`` with its code 13."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        taken = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(taken["data"]))

    def on_paper(self, file: Path) -> list[int]:
        """Write a PDF of the page on A4; how many texts are on each of its pages."""
        made = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        content = base64.b64decode(made["data"])
        file.write_bytes(content)
        return [len(re.findall(rb"\bT[jJ]\b", drawn)) for drawn in _pages(content)]

    def requests(self) -> list[str]:
        """What the page asked for, itself apart."""
        urls = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls[1:] if not url.startswith(("data:", "blob:"))]

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, and what the policy refused."""
        found = []
        for event in self.events:
            told = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(told["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(told["args"]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(told["entry"]["text"])
        return found
