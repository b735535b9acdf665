"""How large an upload may be: as the catalogue of refusals says, and API and services hold to."""

MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_IMPORT_FILE_BYTES = 2 * 1024 * 1024 * 1024
