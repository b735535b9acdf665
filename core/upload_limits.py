"""The size limits of uploads, which the API and the services enforce."""

MAX_IMAGE_MEGABYTES = 5
MAX_IMAGE_BYTES = MAX_IMAGE_MEGABYTES * 1024 * 1024
MAX_IMPORT_FILE_BYTES = 2 * 1024 * 1024 * 1024
