"""Creates the bucket, and a storage user who may access only this bucket."""

from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin
from urllib3.exceptions import HTTPError

from core.errors import ServerFailed, TransientError
from core.settings.store_settings import BucketSettings
from storage.objects import SERVER, ObjectStore
from storage.s3_client import create_pool

# The error code that MinIO returns if the storage user already has the access policy.
_ALREADY_ATTACHED_CODE = "XMinioAdminPolicyChangeAlreadyApplied"


def create_bucket(settings: BucketSettings) -> None:
    """Create the configured bucket unless the bucket exists.

    If the settings contain an administrator's keys, create a storage user who may access only the
    bucket. If the storage user exists, update its secret key.
    """
    administrator = settings.s3_admin_access_key
    password = settings.s3_admin_secret_key
    user = settings.s3_access_key
    secret = settings.s3_secret_key
    if administrator is None or password is None or user is None or secret is None:
        ObjectStore(settings, connections=1).create_bucket()
        return
    administrator_keys = {"s3_access_key": administrator, "s3_secret_key": password}
    administrator_settings = settings.model_copy(update=administrator_keys)
    ObjectStore(administrator_settings, connections=1).create_bucket()
    endpoint = settings.s3_endpoint
    is_tls = endpoint.scheme == "https"
    admin = MinioAdmin(
        endpoint=f"{endpoint.host}:{endpoint.port}",
        credentials=StaticProvider(administrator, password.get_secret_value()),
        region=settings.s3_region or "",
        secure=is_tls,
        http_client=create_pool(1, is_tls=is_tls),
    )
    try:
        _create_user(admin, settings.s3_bucket, user, secret.get_secret_value())
    except MinioAdminException as error:
        # The text of a MinIO error is the server's response, which contains no secret key.
        raise TransientError(f"The {SERVER} rejected the request: {error}") from error
    except HTTPError as error:
        raise ServerFailed(SERVER, type(error).__name__) from error


def _create_user(admin: MinioAdmin, bucket: str, user: str, secret: str) -> None:
    arn = f"arn:aws:s3:::{bucket}"
    bucket_actions = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
    object_actions = [
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:AbortMultipartUpload",
        "s3:ListMultipartUploadParts",
    ]
    statements = [
        {"Effect": "Allow", "Action": bucket_actions, "Resource": [arn]},
        {"Effect": "Allow", "Action": object_actions, "Resource": [f"{arn}/*"]},
    ]
    policy = f"pressroom-{bucket}"
    admin.policy_add(policy, policy={"Version": "2012-10-17", "Statement": statements})
    admin.user_add(user, secret)
    try:
        admin.attach_policy([policy], user=user)
    except MinioAdminException as error:
        if _ALREADY_ATTACHED_CODE not in str(error):
            raise
