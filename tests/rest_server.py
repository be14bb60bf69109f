"""A small HTTP server for tests: methods and paths are matched to functions that answer in JSON."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Request:
    names: dict[str, str]  # what the pattern of the path found
    query: dict[str, str]
    headers: Message
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Answer:
    content: object  # bytes, or what becomes JSON
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Failure(Exception):
    """An error that the client is told as Google's services tell it."""

    def __init__(self, status, reason, message):
        super().__init__(message)
        error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
        self.answer = Answer({"error": error}, status)


class RestServer:
    """Serves `routes`, (method, pattern, function), on a free port of this machine while it is entered.

    `calls` lists the names of the functions that were called.
    """

    def __init__(self, routes):
        self.routes = [(method, re.compile(pattern), serve) for method, pattern, serve in routes]
        self.calls: list[str] = []
        self.lock = threading.Lock()

    def __enter__(self):
        self.server = ThreadingHTTPServer(("localhost", 0), _handler(self))
        self.server.daemon_threads = True
        self.url = f"http://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method, path, headers, body):
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        for known, pattern, serve in self.routes:
            found = pattern.fullmatch(parts.path)
            if known == method and found:
                names = {name: unquote(value) for name, value in found.groupdict().items()}
                with self.lock:
                    self.calls.append(serve.__name__)
                    return serve(Request(names, query, headers, body))
        raise Failure(404, "notFound", f"this server does not know {method} {path}")


def _handler(served):
    class Handler(BaseHTTPRequestHandler):
        # One request a connection: Google's clients never close what is kept alive.
        protocol_version = "HTTP/1.0"

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer = served.answer(self.command, self.path, self.headers, body)
            except Failure as failure:
                answer = failure.answer
            data = (
                answer.content if isinstance(answer.content, bytes) else json.dumps(answer.content).encode()
            )
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any

        def log_message(self, *_):
            pass

    return Handler
