"""Creates the bucket in the object storage, and a user who may use only this bucket."""

from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException
from minio.minioadmin import MinioAdmin
from urllib3.exceptions import HTTPError

from core.errors import ServerFailed, TransientError
from core.settings.store_settings import BucketSettings
from storage.objects import SERVER, ObjectStore
from storage.s3_client import create_pool

# The server's answer when the user has the policy already.
_NOTHING_TO_CHANGE = "XMinioAdminPolicyChangeAlreadyApplied"


def make_bucket(settings: BucketSettings) -> None:
    """Make the bucket unless it exists.

    An administrator's keys also make the user of the access key, give it the secret key, and let it
    use this one bucket. Doing it again changes nothing, or brings in a new secret key.
    """
    administrator, password = settings.s3_admin_access_key, settings.s3_admin_secret_key
    user, secret = settings.s3_access_key, settings.s3_secret_key
    if administrator is None or password is None or user is None or secret is None:
        ObjectStore(settings, connections=1).make_bucket()
        return
    own = {"s3_access_key": administrator, "s3_secret_key": password}
    ObjectStore(settings.model_copy(update=own), connections=1).make_bucket()
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
        _let_in(admin, settings.s3_bucket, user, secret.get_secret_value())
    except MinioAdminException as error:
        # Its text is the server's answer, which has no key in it.
        raise TransientError(f"The {SERVER} refuses: {error}") from error
    except HTTPError as error:
        raise ServerFailed(SERVER, type(error).__name__) from error


def _let_in(admin: MinioAdmin, bucket: str, user: str, secret: str) -> None:
    # Objects of this bucket, and the list of them.
    arn = f"arn:aws:s3:::{bucket}"
    in_bucket = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
    of_objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    of_objects += ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    statements = [
        {"Effect": "Allow", "Action": in_bucket, "Resource": [arn]},
        {"Effect": "Allow", "Action": of_objects, "Resource": [f"{arn}/*"]},
    ]
    policy = f"pressroom-{bucket}"
    admin.policy_add(policy, policy={"Version": "2012-10-17", "Statement": statements})
    admin.user_add(user, secret)
    try:
        admin.attach_policy([policy], user=user)
    except MinioAdminException as error:
        if _NOTHING_TO_CHANGE not in str(error):
            raise
