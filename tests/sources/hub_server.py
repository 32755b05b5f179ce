"""A stand-in for the Hugging Face hub on this machine, which writes down what it was asked for and what it sent."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hub:
    """Serves `files`, {"org/name": {"config.json": bytes}}; `refusals` answer for a whole model.

    Weights come from another address by a redirect, as the hub sends them; `requests` are (path, range, bytes sent), to
    be asked for when the answers under way have ended: a client may have read all of one that is not yet written down.
    """

    def __init__(self):
        self.files = {}
        self.refusals = {}  # name -> (status, X-Error-Code)
        self.ignores_ranges = set()
        self.delay_s = 0.0
        self.under_way = 0
        self.most_under_way = 0
        self.ended = threading.Condition()
        self.requests = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                with hub.ended:
                    hub.under_way += 1
                    hub.most_under_way = max(hub.most_under_way, hub.under_way)
                try:
                    hub.answer(self)
                finally:
                    with hub.ended:
                        hub.under_way -= 1
                        hub.ended.notify_all()

            def log_message(self, *_args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client may hang up between two requests
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def requests(self):
        with self.ended:
            assert self.ended.wait_for(lambda: self.under_way == 0, timeout=60)
        return self._requests

    @requests.setter
    def requests(self, requests):
        self._requests = requests

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        request.seen = self._requests  # a new test has a new list, and an answer may end after its test has
        time.sleep(self.delay_s)
        match = re.fullmatch(r"/(cdn/)?([^/]+/[^/]+)/resolve/main/([^/]+)", request.path)
        redirected, name, file = match.groups() if match else (None, None, None)
        if name in self.refusals:
            return self.send(request, *self.refusals[name])
        if name not in self.files:
            return self.send(request, 401, "RepoNotFound")  # what the hub says to a stranger
        data = self.files[name].get(file)
        if data is None:
            return self.send(request, 404, "EntryNotFound")
        if file.endswith(".safetensors") and not redirected:
            return self.send(request, 302, headers={"Location": f"/cdn{request.path}"})
        asked = request.headers.get("Range")
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
        if span is None or name in self.ignores_ranges:
            return self.send(request, 200, data=data, asked=asked)
        first, last = int(span[1]), min(int(span[2]), len(data) - 1)
        headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        return self.send(request, 206, data=data[first : last + 1], headers=headers, asked=asked)

    def send(self, request, status, code=None, *, data=b"", headers=None, asked=None):
        request.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            request.send_header(key, value)
        if code:
            request.send_header("X-Error-Code", code)
        request.end_headers()
        try:
            request.wfile.write(data)
        except OSError:  # the client has hung up, as it may
            return
        request.seen.append((request.path.rpartition("/")[2], asked, len(data)))
