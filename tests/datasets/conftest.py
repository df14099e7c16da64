"""A data home for each test, and a local server instead of the network, which can be made to fail."""

import contextlib
import functools
import gzip
import http.server
import re
import threading

import pytest

from titans_datasets import download as download_module
from titans_datasets.sources import dna_files


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files`` by path, at any other path ``content``; keeps the Range header of each request."""

    # closing waits for the requests under way: a thread left over would speak into the output of the next test
    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.content = None  # with None any other path is a 404
        self.ranges = []
        self.knows_range = True
        self.cuts = []  # for the first requests: how many bytes of the body to send before hanging up
        self.status = None
        self.statuses = []  # of the first requests; None: as the others
        self.redirects_to = None  # an address
        self.length = None  # the Content-Length to send instead of the right one
        self.pause = 0.0  # seconds before an answer, at most as long as the test lasts
        self.ending = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        # a client may hang up before the answer, and some tests are about just that
        with contextlib.suppress(ConnectionError):
            self.answer()

    def answer(self):
        server = self.server
        requested = self.headers.get("Range")
        server.ranges.append(requested)
        server.ending.wait(server.pause)
        content = server.files.get(self.path, server.content)
        status = (server.statuses.pop(0) if server.statuses else None) or server.status
        if status is not None or content is None:
            return self.send_error(status or 404)
        if server.redirects_to is not None:
            self.send_response(302)
            self.send_header("Location", server.redirects_to)
            return self.end_headers()
        begin = int(re.fullmatch(r"bytes=(\d+)-", requested).group(1)) if requested and server.knows_range else 0
        if begin and begin >= len(content):
            return self.send_error(416)
        body = content[begin:]
        self.send_response(206 if requested and server.knows_range else 200)
        if requested and server.knows_range:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", server.length or str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download_module, "_PAUSE", 0.0)
    with Server() as running:
        thread = threading.Thread(target=functools.partial(running.serve_forever, poll_interval=0.01))
        thread.start()
        yield running
        running.ending.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def put(home):
    def write(relative, text):
        path = home / "dna" / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    return write


@pytest.fixture
def unchecked(monkeypatch):
    """Files under the names of published ones may hold anything."""
    monkeypatch.setattr(dna_files, "checksums", dict)
