"""The client of the object storage, as the settings have it."""

from socket import socket

import urllib3
from minio import Minio
from minio.credentials.providers import Provider, StaticProvider
from minio.sse import Sse, SseKMS, SseS3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from core.calls.time_limits import limited, tls_context
from core.settings import SettingsError
from core.settings.given_settings import variable_of
from core.settings.store_settings import SSE_S3, ObjectStorageSettings
from storage.s3_access.role_keys import RoleKeys

# What most servers take that know no regions.
_USUAL_REGION = "us-east-1"
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_ONE_RETRY = urllib3.Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503])


def open_client(settings: ObjectStorageSettings, *, connections: int) -> Minio:
    """Nothing connects before its first use; raises ``SettingsError`` for an impossible host."""
    endpoint = settings.s3_endpoint
    is_tls = endpoint.scheme == "https"
    try:
        client = Minio(
            f"{endpoint.host}:{endpoint.port}",
            credentials=_keys(settings, connections),
            secure=is_tls,
            region=_region(settings),
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


def _region(settings: ObjectStorageSettings) -> str | None:
    """``None``: the client finds it, by the host's name or by asking AWS where the bucket is."""
    host = settings.s3_endpoint.host or ""
    is_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
    return settings.s3_region or (None if is_aws else _USUAL_REGION)


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
