"""The client of the object storage, with its access keys and its connection pools."""

from socket import socket
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider
from minio.sse import Sse, SseKMS, SseS3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from core.calls.time_limits import create_tls_context, limit_socket
from core.errors import ServerFailed, TransientError
from core.settings import SettingsError
from core.settings.given_settings import variable_of
from core.settings.store_settings import SSE_S3, ObjectStorageSettings

# The default region. S3 servers without regions usually accept `us-east-1`.
_DEFAULT_REGION = "us-east-1"
_CONNECT_SECONDS = 2.0
_READ_SECONDS = 5.0
_ONE_RETRY = urllib3.Retry(total=1, backoff_factor=0.1, status_forcelist=[502, 503])
_SERVER = "server of temporary keys for the object storage"
_WHY_ASKED = f"{variable_of('s3_access_key')} is not set"


class RoleKeys(Provider):
    """The temporary access keys of an AWS role, which are renewed before they expire.

    The keys come from a web identity, a container or an instance, depending on AWS's environment
    variables. Errors omit the URL from which keys are fetched, because the URL for a web identity
    contains a secret token.
    """

    def __init__(self, settings: ObjectStorageSettings, client: urllib3.PoolManager) -> None:
        keys_url = settings.s3_keys_url
        self._role = IamAwsProvider(
            custom_endpoint=str(keys_url).removesuffix("/") if keys_url else None,
            region=settings.s3_region,
            http_client=client,
        )

    def retrieve(self) -> Credentials:
        try:
            return self._role.retrieve()
        except (HTTPError, TimeoutError) as error:
            raise ServerFailed(_SERVER, f"{type(error).__name__}; {_WHY_ASKED}") from None
        except (ValueError, KeyError, ParseError, OSError) as error:
            reason = str(error).rpartition(" failed with ")[2]
            raise TransientError(
                f"{_WHY_ASKED}, and the {_SERVER} returned no keys: {reason}."
            ) from None


def open_client(settings: ObjectStorageSettings, *, connections: int) -> Minio:
    endpoint = settings.s3_endpoint
    is_tls = endpoint.scheme == "https"
    is_aws = (endpoint.host or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
    try:
        client = Minio(
            f"{endpoint.host}:{endpoint.port}",
            credentials=_create_key_provider(settings, connections),
            secure=is_tls,
            # If no region is set, the S3 client takes it from the host name or asks AWS.
            region=settings.s3_region or (None if is_aws else _DEFAULT_REGION),
            http_client=create_pool(connections, is_tls=is_tls),
        )
    except ValueError as error:
        # Minio raises ValueError for an invalid host, such as an AWS host in China without a
        # region.
        raise SettingsError(f"{variable_of('s3_endpoint')}: {error}") from None
    if settings.s3_addressing == "path":
        client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    elif settings.s3_addressing == "virtual":
        client.enable_virtual_style_endpoint()  # type: ignore[no-untyped-call]
    return client


def get_server_encryption(settings: ObjectStorageSettings) -> Sse | None:
    if settings.s3_encryption is None:
        return None
    if settings.s3_encryption == SSE_S3:
        return SseS3()
    return SseKMS(settings.s3_encryption.partition(":")[2], {})


def _create_key_provider(settings: ObjectStorageSettings, connections: int) -> Provider:
    if settings.s3_access_key is None or settings.s3_secret_key is None:
        # Requests for access keys aren't retried, because a retry would log the URL with its secret
        # token.
        return RoleKeys(settings, create_pool(connections, is_tls=True, has_retry=False))
    return StaticProvider(settings.s3_access_key, settings.s3_secret_key.get_secret_value())


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket:
        return limit_socket(super()._new_conn())


class _TlsConnection(HTTPSConnection):
    def _new_conn(self) -> socket:
        return limit_socket(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def create_pool(connections: int, *, is_tls: bool, has_retry: bool = True) -> urllib3.PoolManager:
    # Load certificate authorities only for TLS, because loading them is slow.
    tls = {"ssl_context": create_tls_context()} if is_tls else {}
    pool = urllib3.PoolManager(
        maxsize=connections,
        timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
        retries=_ONE_RETRY if has_retry else False,
        **tls,  # type: ignore[arg-type]
    )
    pool.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pool
