"""`/metrics` and `/health` over HTTP, on the loopback interface only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from ..errors import ConfigError
from .channels_file import LOOPBACK

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text exposition format
TIMEOUT_S = 5


class MonitoringServer:
    """Answers from functions of its owner, which are called in the server's threads."""

    def __init__(self, port: int, metrics: Callable[[], str], health: Callable[[], tuple[bool, str]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, METRICS_TYPE, metrics())
                elif self.path == "/health":
                    is_healthy, text = health()
                    self._answer(200 if is_healthy else 503, "application/json", text)
                else:
                    self._answer(404, "text/plain", "/metrics or /health\n")

            def _answer(self, code: int, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Requests are not logged."""

        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), Handler)
        except OSError as error:
            raise ConfigError(f"cannot listen on {LOOPBACK}:{port}: {error.strerror}", "use another port") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="monitoring", daemon=True)
        self._thread.start()

    def __enter__(self) -> MonitoringServer:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
