"""The wrong setting, by the answer of the object storage."""

import re
from collections.abc import Mapping
from socket import socket
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider
from minio.error import S3Error
from minio.sse import Sse, SseKMS, SseS3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from core.calls.time_limits import limited, tls_context
from core.errors import ServerFailed, TransientError
from core.settings import SettingsError
from core.settings.given_settings import variable_of
from core.settings.store_settings import SSE_S3, ObjectStorageSettings

_REGION = variable_of("s3_region")
# The first two are AWS's for a signature with another region; a redirect names the right host.
_WRONG_REGION = {
    "AuthorizationHeaderMalformed",
    "BadRequest",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "Redirect",
    "TemporaryRedirect",
}
_ADVICE: Mapping[str, str] = dict.fromkeys(_WRONG_REGION, f"check {_REGION}") | {
    "NoSuchBucket": f"check {variable_of('s3_bucket')}, or make the bucket with pressroom bucket",
    "InvalidAccessKeyId": f"check {variable_of('s3_access_key')}",
    "SignatureDoesNotMatch": f"check {variable_of('s3_secret_key')}",
    "ExpiredToken": "the temporary keys have expired",
}
_EXPECTED = re.compile(r"expecting '([\w-]+)'")


def explained(error: S3Error) -> str:
    """The server's code, and what an operator can do about it."""
    code = str(error.code)
    if code in _WRONG_REGION:
        named = error.response.headers.get("x-amz-bucket-region")
        found = _EXPECTED.search(error.message or "")
        if expected := named or (found and found[1]):
            return f"{code}; set {_REGION} to {expected}"
    return with_advice(code)


def with_advice(code: str) -> str:
    return f"{code}; {_ADVICE[code]}" if code in _ADVICE else code


_SERVER = "server of temporary keys for the object storage"
_WHY_ASKED = f"{variable_of('s3_access_key')} is not set"


class RoleKeys(Provider):
    """Keys of a web identity, a container's or an instance's role, new ones before they expire.

    AWS's own environment variables say which of them it is, and where its token is. Errors leave
    out the URL that was called: the one for a web identity has its token.
    """

    def __init__(self, settings: ObjectStorageSettings, client: urllib3.PoolManager) -> None:
        own = settings.s3_keys_url
        self._role = IamAwsProvider(
            custom_endpoint=str(own).removesuffix("/") if own else None,
            region=settings.s3_region,
            http_client=client,
        )

    def retrieve(self) -> Credentials:
        """The keys for a call; raises ``TransientError``."""
        try:
            return self._role.retrieve()
        except (HTTPError, TimeoutError) as error:
            raise ServerFailed(_SERVER, f"{type(error).__name__}; {_WHY_ASKED}") from None
        except (ValueError, KeyError, ParseError, OSError) as error:
            reason = str(error).rpartition(" failed with ")[2]
            raise TransientError(f"{_WHY_ASKED}, and the {_SERVER} gives none: {reason}.") from None


# Most servers without regions take this one.
_USUAL_REGION = "us-east-1"
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_ONE_RETRY = urllib3.Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503])


def open_client(settings: ObjectStorageSettings, *, connections: int) -> Minio:
    """Nothing connects before its first use; raises ``SettingsError`` for an impossible host."""
    endpoint = settings.s3_endpoint
    is_tls = endpoint.scheme == "https"
    is_aws = (endpoint.host or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    try:
        client = Minio(
            f"{endpoint.host}:{endpoint.port}",
            credentials=_keys(settings, connections),
            secure=is_tls,
            # Without one the client finds it: by the host's name, or by asking AWS for the bucket.
            region=settings.s3_region or (None if is_aws else _USUAL_REGION),
            http_client=pool_manager(connections, is_tls=is_tls),
        )
    except ValueError as error:
        # Such as a host of AWS in China, whose region nothing names.
        raise SettingsError(f"{variable_of('s3_endpoint')}: {error}") from None
    if settings.s3_addressing == "path":
        client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    elif settings.s3_addressing == "virtual":
        client.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    return client


def encryption_of(settings: ObjectStorageSettings) -> Sse | None:
    """How the server is asked to encrypt what is put."""
    if settings.s3_encryption is None:
        return None
    if settings.s3_encryption == SSE_S3:
        return SseS3()
    return SseKMS(settings.s3_encryption.partition(":")[2], {})


def _keys(settings: ObjectStorageSettings, connections: int) -> Provider:
    if settings.s3_access_key is None or settings.s3_secret_key is None:
        # A retry would be logged with its URL, which has the token of a web identity.
        return RoleKeys(settings, pool_manager(connections, is_tls=True, tries_again=False))
    return StaticProvider(settings.s3_access_key, settings.s3_secret_key.get_secret_value())


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket:
        return limited(super()._new_conn())


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket:
        return limited(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def pool_manager(
    connections: int, *, is_tls: bool, tries_again: bool = True
) -> urllib3.PoolManager:
    # Reading the system's authorities takes longer than the rest of a client.
    tls = {"ssl_context": tls_context()} if is_tls else {}
    made = urllib3.PoolManager(
        maxsize=connections,
        timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
        retries=_ONE_RETRY if tries_again else False,
        **tls,  # type: ignore[arg-type]
    )
    made.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return made
