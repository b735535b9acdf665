"""Errors about imports and bulk adds of members."""

from core.errors.catalogue import conflict, invalid, invalid_at, malformed, not_found, too_large
from core.upload_limits import MAX_IMPORT_FILE_BYTES

IMPORT_NOT_FOUND = not_found("import.not_found", "There is no import with this id.")
IMPORT_ERRORS_GONE = not_found(
    "import.errors_gone", "The file of rejected rows doesn't exist or has expired."
)
IMPORT_RUNNING = conflict(
    "import.running", "The import is still running. Cancel the import job first."
)

IMPORT_UNDO_OVER = conflict(
    "import.undo_over", "An import can only be undone within {days} days.", days=90
)
IMPORT_FILE_GONE = conflict(
    "import.file_gone",
    "The uploaded file has been deleted. Upload the file again.",
)

IMPORT_FILE_MISSING = malformed("import.file_missing", "The form has no file in the part 'file'.")
IMPORT_SEVERAL_FILES = malformed(
    "import.several_files", "The form must contain exactly one file, in the part 'file'."
)
IMPORT_TOO_LARGE = too_large(
    "import.too_large", f"A file can have at most 2 GB ({MAX_IMPORT_FILE_BYTES:,} bytes)."
)
IMPORT_FILE = malformed(
    "import.file", "{file}: {reason}", file="members.csv", reason="No such file or directory"
)

# The API detects an empty file during the upload, before it creates an import job.
IMPORT_EMPTY_FILE = malformed("import.empty", "The file is empty.")
IMPORT_EMPTY = invalid("import.empty", "The file is empty.")
IMPORT_EMPTY_ARCHIVE = invalid("import.empty", "The zip file contains no file.")
IMPORT_NO_ROWS = invalid("import.empty", "The file contains no rows.")

IMPORT_UNKNOWN_FORMAT = invalid(
    "import.unknown_format",
    "The file is {what}. Upload an Excel workbook (.xlsx), CSV or JSON Lines. CSV and JSON Lines "
    "can be compressed as a gzip or zip file.",
    what="a PDF",
)
IMPORT_OTHER_SPREADSHEET = invalid(
    "import.unknown_format",
    "The file is {what}. Open it in your spreadsheet program, save it as .xlsx or CSV, and upload "
    "the new file.",
    what="an OpenDocument spreadsheet (.ods)",
)
IMPORT_WORKBOOK_TOO_LARGE = invalid(
    "import.workbook_too_large",
    "The workbook is too large: {what}. Save the sheet with the members as CSV, and upload the CSV "
    "file.",
    what="the sheet 'Members' spans 412 columns, and the limit is 300",
)
IMPORT_WORKBOOK_ENCRYPTED = invalid(
    "import.workbook_encrypted",
    "The workbook is protected by a password. Open it in your spreadsheet program, remove the "
    "password, and upload the saved file.",
)
IMPORT_WORKBOOK_DAMAGED = invalid(
    "import.workbook_damaged",
    "The workbook can't be read: {what}. Open it in your spreadsheet program, save it as .xlsx, "
    "and upload the new file.",
    what="a part is missing",
)
IMPORT_SHEET_NOT_FOUND = invalid(
    "import.sheet_not_found",
    "The workbook has no sheet {sheet!r}. {sheets}",
    sheet="Readers",
    sheets="The sheets are: 'Members', 'Notes'.",
)
IMPORT_JSON_ARRAY = invalid(
    "import.json_array",
    "The file is JSON, but not JSON Lines. Upload a file with one JSON object per line.",
)
IMPORT_NO_READABLE_ROW = invalid(
    "import.no_readable_row",
    "No row of the file can be read. Line {line}: {reason}",
    line=1,
    reason="Invalid JSON: unexpected end of data.",
)
IMPORT_EXPANDS_TOO_MUCH = invalid(
    "import.expands_too_much",
    "The file decompresses to {how}, which exceeds the limit.",
    how="more than 200 times its size",
)
IMPORT_TOO_MANY_ADDRESSES = invalid(
    "import.too_many_addresses",
    "The file contains too many addresses. Split the file and import the parts separately.",
)
IMPORT_GZIP_MEMBERS = invalid(
    "import.expands_too_much",
    "The gzip file consists of more than {most:,} compressed parts. Compress the file again with "
    "one gzip command.",
    most=1_000_000,
)
IMPORT_DAMAGED = invalid("import.damaged", "The {container} file is damaged.", container="gzip")
IMPORT_TRUNCATED = invalid(
    "import.truncated",
    "The {container} file is incomplete. Upload the complete file.",
    container="zip",
)
IMPORT_ARCHIVE_MANY_FILES = invalid(
    "import.archive_many_files",
    "The zip file contains {count} files ({names}). Upload a zip file with a single file.",
    count=2,
    names="a.csv, b.csv",
)
IMPORT_ARCHIVE_DIRECTORY = invalid(
    "import.archive_many_files", "The zip file's directory is too large."
)
IMPORT_ARCHIVE_ENCRYPTED = invalid(
    "import.archive_encrypted",
    "The zip file is protected by a password. Upload a zip file without a password.",
)

IMPORT_MAPPING = malformed(
    "import.mapping", "query.mapping must be a JSON object whose values are strings."
)
IMPORT_MAPPING_OPTION = malformed(
    "import.mapping", "--mapping must be a JSON object whose values are strings."
)
IMPORT_MAPPING_COLUMN = invalid(
    "import.mapping_column",
    "The mapping contains the column {column!r}, but the file has no such column. {columns}",
    column="Mail",
    columns="The columns are: 'First', 'Phone'.",
)
IMPORT_MAPPING_ROLE = invalid(
    "import.mapping_role",
    "{role!r} is not a valid role for a column. Use one of: {roles}.",
    role="mail",
    roles="email, name, ignore",
)
IMPORT_MAPPING_ROLE_TWICE = invalid(
    "import.mapping_role", "The mapping assigns the role {role} to two columns.", role="email"
)
IMPORT_MAPPING_FIELD = invalid(
    "import.mapping_field",
    "The mapping contains the unknown field {key!r}. Create the field first, or set "
    "create_fields. A key starts with a letter and has at most 40 letters, digits and "
    "underscores.",
    key="company",
)
IMPORT_TOO_MANY_FIELDS = invalid(
    "import.too_many_fields",
    "The file has {count} columns for new fields ({names}), but you can create only {room} more. "
    "Set the role of the remaining columns to 'ignore'.",
    count=53,
    room=48,
    names="'Company', 'Country'",
)
IMPORT_DATE_ORDER_NEEDED = invalid(
    "import.date_order_needed",
    "Dates such as {cell} in the column {column!r} are ambiguous. Set date_order=dmy if the day "
    "comes first, or date_order=mdy if the month comes first.",
    column="Joined",
    cell="03/04/2025",
)
IMPORT_ENCODING_NEEDED = invalid(
    "import.encoding_needed",
    "The encoding of the file could not be detected. Compare the rows in each possible encoding, "
    "and choose one of these encodings: {encodings}.",
    encodings="cp1250, mac-roman",
)
IMPORT_ENCODING = invalid_at(
    "query.encoding", "import.encoding", "must be one of {encodings}", encodings="utf-8, cp1252"
)
IMPORT_MAPPING_TYPE = invalid(
    "import.mapping_type",
    "The mapping gives the field {key!r} the type {type!r}. {rule}",
    type="date",
    key="company",
    rule="This field already has the type text.",
)
IMPORT_COLUMN_AMBIGUOUS = invalid(
    "import.column_ambiguous",
    'The column {column!r} contains consent or opt-outs, but its name doesn\'t say what "yes" '
    "means. Map the column to subscribed, unsubscribed, confirmed, status or ignore.",
    column="Opt-in/Opt-out",
)
IMPORT_STATUS_VALUES = invalid(
    "import.status_values",
    "status_values must be a JSON object that maps each value to a status. {reason}",
    reason="'unsubscribed' is an opt-out and can't become subscribed.",
)
IMPORT_NO_EMAIL_COLUMN = invalid(
    "import.no_email_column",
    "No column with e-mail addresses was found. {columns} Map a column to email, or name it email.",
    columns="The columns are: 'First', 'Phone'.",
)

MEMBERS_TOO_MANY = too_large(
    "members.too_many", "A request can have at most {most:,} members.", most=100_000
)
MEMBERS_VALUES_INVALID = malformed(
    "members.values_invalid",
    "These values would be ignored: {rules}.",
    rules="body.members[0].type must be one of free, silver, gold",
)
MEMBERS_ALL_INVALID = invalid(
    "members.all_invalid", "None of the members has a valid e-mail address."
)
