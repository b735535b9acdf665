"""Imitates the object storage Silo for `make containers`.

Runs SeaweedFS, and responds to the administration requests that Pressroom sends to Silo.

The administrator's login comes from the environment, as in Silo. This imitation of Silo stores each
user, and the buckets that the user may access, in a file next to the objects.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from minio import Minio
from minio.crypto import decrypt, encrypt
from minio.error import MinioException

S3_PORT = 8333
ADMINISTRATION_PORT = 8334
ADMINISTRATOR = os.environ["MINIO_ROOT_USER"]
PASSWORD = Path(os.environ["MINIO_ROOT_PASSWORD_FILE"]).read_text().strip()
# The arguments of Silo's command are `server FOLDER`.
DATA = Path(sys.argv[2])
USERS = DATA / "users.json"
LOGINS = DATA / "logins.json"
# The configuration of a proxy, which forwards requests to SeaweedFS or to the server for
# administration calls. The proxy must not change the Host header, because the header is part of a
# request's signature.
PROXY_CONFIGURATION = f"""
{{
	admin off
	persist_config off
	auto_https off
}}
:9000 {{
	handle /minio/* {{
		reverse_proxy 127.0.0.1:{ADMINISTRATION_PORT}
	}}
	handle {{
		reverse_proxy 127.0.0.1:{S3_PORT} {{
			header_up -X-Forwarded-For
			header_up -X-Forwarded-Host
			header_up -X-Forwarded-Proto
		}}
	}}
}}
"""


class Store:
    """Runs SeaweedFS, and makes it reload the logins of the users after each change."""

    def __init__(self) -> None:
        known = json.loads(USERS.read_text()) if USERS.exists() else {}
        self.keys: dict[str, str] = known.get("keys", {})
        self.policies: dict[str, list[str]] = known.get("policies", {})
        self.attached: dict[str, list[str]] = known.get("attached", {})
        self.is_ready = False
        self.process = self._start()
        self._await_ready()

    def change(self) -> None:
        known = {"keys": self.keys, "policies": self.policies, "attached": self.attached}
        USERS.write_text(json.dumps(known))
        LOGINS.write_text(self._logins())
        self.process.send_signal(signal.SIGHUP)

    def _start(self) -> subprocess.Popen[bytes]:
        LOGINS.write_text(self._logins())
        flags = {
            "dir": DATA / "objects",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.config": LOGINS,
            "s3.port": S3_PORT,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "admin.ui": "false",
            "webdav": "false",
            "s3.autoCreateBucket": "false",
            "master.telemetry": "false",
            "master.resumeState": "false",
            "master.volumeSizeLimitMB": 128,
            "volume.max": 100,
        }
        (DATA / "objects").mkdir(exist_ok=True)
        kinds = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
        # SeaweedFS needs signing keys, because its internal ports would otherwise serve every
        # object to callers without credentials.
        keys = {f"WEED_JWT_{kind}_KEY": secrets.token_hex(16) for kind in kinds}
        words = ["weed", "-logtostderr=true", "mini"]
        words += [f"-{name}={value}" for name, value in flags.items()]
        return subprocess.Popen(words, env={**os.environ, "GOMEMLIMIT": "400MiB", **keys})

    def _logins(self) -> str:
        identities = [_identity(ADMINISTRATOR, PASSWORD, ["Admin"])]
        for user, key in self.keys.items():
            buckets = [b for name in self.attached.get(user, []) for b in self.policies[name]]
            allowed = [
                f"{action}:{bucket}" for bucket in buckets for action in ("Read", "Write", "List")
            ]
            identities.append(_identity(user, key, allowed))
        return json.dumps({"identities": identities})

    def _await_ready(self) -> None:
        pool = urllib3.PoolManager(retries=False, timeout=2)
        client = Minio(
            f"127.0.0.1:{S3_PORT}",
            ADMINISTRATOR,
            PASSWORD,
            secure=False,
            region="us-east-1",
            http_client=pool,
        )
        while True:
            try:
                if not client.bucket_exists("ready"):
                    client.make_bucket("ready")
                client.put_object("ready", "ready", BytesIO(b"ready"), 5)
            except (MinioException, urllib3.exceptions.HTTPError, ValueError):
                time.sleep(0.1)
            else:
                self.is_ready = True
                return


def _identity(name: str, secret: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": name, "secretKey": secret}]
    return {"name": name, "credentials": credentials, "actions": actions}


class Administration(BaseHTTPRequestHandler):
    """Answers the administration calls of `pressroom bucket`, and the health check."""

    store: Store

    def do_GET(self) -> None:
        self._answer(200 if self.store.is_ready else 503)

    def do_HEAD(self) -> None:
        self._answer(200 if self.store.is_ready else 503)

    def do_PUT(self) -> None:
        self._change()

    def do_POST(self) -> None:
        self._change()

    def _change(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        answer = b""
        if url.path.endswith("/add-canned-policy"):
            resources = [arn for each in json.loads(body)["Statement"] for arn in each["Resource"]]
            buckets = {arn.removeprefix("arn:aws:s3:::").partition("/")[0] for arn in resources}
            self.store.policies[query["name"]] = sorted(buckets)
        elif url.path.endswith("/add-user"):
            self.store.keys[query["accessKey"]] = _decrypt(body)["secretKey"]
        elif url.path.endswith("/policy/attach"):
            order = _decrypt(body)
            if self.store.attached.get(order["user"]) == order["policies"]:
                self._answer(400, b'{"Code": "XMinioAdminPolicyChangeAlreadyApplied"}')
                return
            self.store.attached[order["user"]] = order["policies"]
            answer = encrypt(b"{}", PASSWORD)
        else:
            self._answer(404)
            return
        self.store.change()
        self._answer(200, answer)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _decrypt(body: bytes) -> Any:
    return json.loads(decrypt(urllib3.HTTPResponse(BytesIO(body), preload_content=False), PASSWORD))


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    caddyfile = Path("/tmp/Caddyfile")
    caddyfile.write_text(PROXY_CONFIGURATION)
    words = ["caddy", "run", "--config", str(caddyfile), "--adapter", "caddyfile"]
    with subprocess.Popen(words) as caddy:
        store = Administration.store = Store()
        try:
            ThreadingHTTPServer(("127.0.0.1", ADMINISTRATION_PORT), Administration).serve_forever()
        finally:
            store.process.terminate()
            store.process.wait()
            caddy.terminate()


if __name__ == "__main__":
    main()
