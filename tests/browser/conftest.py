"""The app in a real browser: a server on loopback, headless Chromium, and an eye on what should not happen."""

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.hands import settled

ROOT = Path(__file__).parents[2]
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()

LONGEST_WAIT_MS = 90_000  # for a page on a processor that is shared and slow
expect.set_options(timeout=LONGEST_WAIT_MS)


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def server():
    """A running app: its address, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "planner.cli", "app", f"--port={port}", "--headless"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
                break
        except OSError:
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
    process.url = url
    yield process
    process.terminate()
    process.wait(timeout=30)


@pytest.fixture(scope="session")
def browser():
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "install Debian's chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(server, browser):
    """Open the app in a fresh browser; at the end its console is empty and nobody else was asked for anything."""
    contexts, complaints, asked = [], [], set()

    def open_(path="/", **settings):
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **settings})
        context.set_default_timeout(LONGEST_WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: asked.add(request.url))
        page.goto(server.url + path)
        settled(page)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not re.match(rf"{server.url}/|data:|blob:", url)] == []
