"""Temporary keys for the object storage, by the role of a process: no setting holds a key."""

from xml.etree.ElementTree import ParseError

import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider
from urllib3.exceptions import HTTPError

from core.errors import ServerFailed, TransientError
from core.settings.given_settings import variable_of
from core.settings.store_settings import ObjectStorageSettings

_SERVER = "server of temporary keys for the object storage"
_WHY_ASKED = f"{variable_of('s3_access_key')} is not set"


class RoleKeys(Provider):
    """Keys of a web identity, a container's or an instance's role, new ones before they expire.

    AWS's own environment variables say which of them it is, and where its token is. What goes wrong
    is said without the URL that was called: the one for a web identity has its token.
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
