"""A static site of another origin than the API's, and of another site as browsers count them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

THANKS = "<!doctype html><html lang=en><title>Thanks</title><h1>Thanks</h1>"


class Site:
    """Shows its one page everywhere but at /thanks."""

    def __init__(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = THANKS if self.path.startswith("/thanks") else site.page
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.page = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Another host than the API's, so that the form crosses sites.
        self.url = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
