"""The size limits of uploads, which the API and the services enforce."""

MAX_IMAGE_MEGABYTES = 5
MAX_IMAGE_BYTES = MAX_IMAGE_MEGABYTES * 1024 * 1024
# The maximum number of rows in a request that adds members.
MAX_MEMBERS_PER_REQUEST = 100_000
MAX_IMPORT_FILE_BYTES = 2 * 1024 * 1024 * 1024
