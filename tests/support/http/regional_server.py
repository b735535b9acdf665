"""Simulates an AWS region with S3, and with two services that issue temporary keys.

The simulated region forwards S3 calls to SeaweedFS, but rejects calls that are signed for another
region, because SeaweedFS accepts any region. If a call has temporary keys, the simulated region
checks the call's signature, and signs the call again with keys that SeaweedFS knows.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from minio.credentials.credentials import Credentials
from minio.signer import sign_v4_s3

from devstack import LOOPBACK
from tests.support.http.servers import QuietHandler, running_server

REGION = "eu-west-3"
# The domain of the simulated S3. Virtual-hosted addressing uses one subdomain per bucket.
DOMAIN = "s3.test"
BUCKET = "elsewhere"
# The web identity token of a test, which must not appear in any log.
IDENTITY_TOKEN = "token-of-a-web-identity"
ROLE = "arn:aws:iam::123456789012:role/pressroom"
_SCOPE = re.compile(r"Credential=([^/]+)/\d{8}/([^/]+)/s3/aws4_request, *SignedHeaders=([^,]+)")
_DROPPED_HEADERS = {"connection", "transfer-encoding", "content-length", "server", "date"}
_ENCRYPTION = "x-amz-server-side-encryption"
_METADATA = "/latest/meta-data/iam/security-credentials/"


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    host: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Role:
    """An AWS role that issues temporary keys."""

    lifetime: timedelta = timedelta(hours=1)
    handed_out: dict[str, Credentials] = field(default_factory=dict)
    is_closed: bool = False

    def hand_out(self) -> Credentials:
        number = len(self.handed_out)
        expiration = datetime.now(UTC) + self.lifetime
        keys = Credentials(f"ASIA{number}", f"secret{number}", f"session{number}", expiration)
        self.handed_out[keys.access_key] = keys
        return keys


class RegionalServer(ThreadingHTTPServer):
    def __init__(self, upstream: str, known: Credentials) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.upstream = upstream
        self.known = known
        self.role = Role()
        self.seen: list[ReceivedRequest] = []
        # The encryption headers of the last response: maps each header name, without the prefix
        # ``x-amz-server-side-encryption``, to the header's value.
        self.encryption: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"


@contextmanager
def open_regional_server(
    upstream: str, access_key: str, secret_key: str
) -> Iterator[RegionalServer]:
    server = RegionalServer(upstream, Credentials(access_key, secret_key))
    with running_server(server):
        yield server


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: RegionalServer

    def do_GET(self) -> None:
        if self.path.startswith(_METADATA):
            self._answer_as_metadata()
        else:
            self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        if self.path == "/latest/api/token":
            self.reply(200, b"token-of-an-instance")
        else:
            self._serve()

    def do_POST(self) -> None:
        if "Action=AssumeRoleWithWebIdentity" in self.path:
            self._answer_as_sts()
        else:
            self._serve()

    def _serve(self) -> None:
        body = self.read_body()
        host = self.headers["Host"]
        headers = dict(self.headers.items())
        self.server.seen.append(ReceivedRequest(self.command, host, self.path, headers))
        match = _SCOPE.search(self.headers.get("Authorization") or "")
        assert match, "every call is signed"
        access_key, region, signed_names = match.groups()
        headers = {name: self.headers[name] for name in self.headers}
        if region != REGION:
            self._refuse_region(region)
            return
        if "X-Amz-Security-Token" in self.headers:
            keys = self.server.role.handed_out.get(access_key)
            if (
                keys is None
                or self._compute_signature(keys, signed_names) != headers["Authorization"]
            ):
                self._answer_error(403, "SignatureDoesNotMatch", "The signatures differ.")
                return
            # Don't use ``Credentials.is_expired``, because it returns True ten seconds too early.
            if keys.expiration and keys.expiration < datetime.now(UTC).replace(tzinfo=None):
                self._answer_error(400, "ExpiredToken", "The provided token has expired.")
                return
            headers = self._sign_again(headers)
        self._forward(headers, body)

    def _compute_signature(self, keys: Credentials, signed_names: str) -> str:
        """Return the correct Authorization header for the received request."""
        signed_headers = {name: self.headers[name] for name in signed_names.split(";")}
        if signed_headers["x-amz-security-token"] != keys.session_token:
            return ""
        return self._sign(keys, signed_headers)["Authorization"]

    def _sign_again(self, headers: dict[str, str]) -> dict[str, str]:
        """Replace the temporary keys in the headers by keys that SeaweedFS knows."""
        removed = {"authorization", "x-amz-security-token"}
        others = {name: value for name, value in headers.items() if name.lower() not in removed}
        return self._sign(self.server.known, others)

    def _sign(self, keys: Credentials, headers: dict[str, str]) -> dict[str, str]:
        lower = {name.lower(): value for name, value in headers.items()}
        signed: dict[str, str] = sign_v4_s3(  # type: ignore[assignment]
            method=self.command,
            url=urlsplit(f"http://{self.headers['Host']}{self.path}"),
            region=REGION,
            headers=dict(headers),
            credentials=keys,
            content_sha256=lower["x-amz-content-sha256"],
            date=datetime.strptime(lower["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC),
        )
        return signed

    def _forward(self, headers: dict[str, str], body: bytes) -> None:
        upstream = HTTPConnection(self.server.upstream, timeout=10)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in {"connection"}:
                upstream.putheader(name, value)
        upstream.endheaders(body or None)
        answer = upstream.getresponse()
        content = answer.read()
        self.server.encryption = {
            name.lower().removeprefix(_ENCRYPTION): value
            for name, value in answer.getheaders()
            if name.lower().startswith(_ENCRYPTION)
        }
        response_headers = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in _DROPPED_HEADERS
        }
        if self.command == "HEAD":
            response_headers["Content-Length"] = answer.getheader("Content-Length") or "0"
        upstream.close()
        self.reply(answer.status, content, response_headers)

    def _refuse_region(self, region: str) -> None:
        message = (
            "The authorization header is malformed; "
            f"the region '{region}' is wrong; expecting '{REGION}'"
        )
        self._answer_error(400, "AuthorizationHeaderMalformed", message)

    def _answer_as_sts(self) -> None:
        query = {name: value[0] for name, value in parse_qs(urlsplit(self.path).query).items()}
        self.read_body()
        is_valid = (query["WebIdentityToken"], query["RoleArn"]) == (IDENTITY_TOKEN, ROLE)
        if not is_valid or self.server.role.is_closed:
            self._answer_error(403, "AccessDenied", "Not authorized")
            return
        keys = self.server.role.hand_out()
        assert keys.expiration
        self.reply(
            200,
            f"""<AssumeRoleWithWebIdentityResponse
            xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
            <Credentials><AccessKeyId>{keys.access_key}</AccessKeyId>
            <SecretAccessKey>{keys.secret_key}</SecretAccessKey>
            <SessionToken>{keys.session_token}</SessionToken>
            <Expiration>{keys.expiration:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>
            </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>""".encode(),
        )

    def _answer_as_metadata(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token"] == "token-of-an-instance"
        if self.path == _METADATA:
            self.reply(200, b"pressroom")
            return
        keys = self.server.role.hand_out()
        assert keys.expiration
        answer = {
            "Code": "Success",
            "AccessKeyId": keys.access_key,
            "SecretAccessKey": keys.secret_key,
            "Token": keys.session_token,
            "Expiration": f"{keys.expiration:%Y-%m-%dT%H:%M:%SZ}",
        }
        self.reply(200, json.dumps(answer).encode())

    def _answer_error(self, status: int, code: str, message: str) -> None:
        xml = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        body = b"" if self.command == "HEAD" else xml
        self.reply(status, body, {"Content-Type": "application/xml"})
