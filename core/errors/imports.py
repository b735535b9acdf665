"""Errors about imports and bulk adds of members."""

from core.errors.catalogue import conflict, invalid, invalid_at, malformed, not_found, too_large
from core.upload_limits import MAX_IMPORT_FILE_BYTES

IMPORT_NOT_FOUND = not_found("import.not_found", "There is no such import.")
IMPORT_ERRORS_GONE = not_found("import.errors_gone", "There is no such file, or not any more.")
IMPORT_RUNNING = conflict("import.running", "The import still runs; cancel its job first.")

IMPORT_UNDO_OVER = conflict("import.undo_over", "An import can be undone for {days} days.", days=90)
IMPORT_FILE_GONE = conflict(
    "import.file_gone",
    "The file is not kept any more; that of a dry run is, for a day. Upload it again.",
)

IMPORT_FILE_MISSING = malformed("import.file_missing", "The part 'file' with a file is missing.")
IMPORT_SEVERAL_FILES = malformed("import.several_files", "Send one file in the part 'file'.")
IMPORT_TOO_LARGE = too_large(
    "import.too_large", f"A file has at most 2 GB ({MAX_IMPORT_FILE_BYTES:,} bytes)."
)
IMPORT_FILE = malformed(
    "import.file", "{file}: {reason}", file="members.csv", reason="No such file or directory"
)

# The API detects an empty file during the upload, before it creates an import job.
IMPORT_EMPTY_FILE = malformed("import.empty", "The file is empty.")
IMPORT_EMPTY = invalid("import.empty", "There is nothing in the file.")
IMPORT_EMPTY_ARCHIVE = invalid("import.empty", "There is no file in the zip file.")
IMPORT_NO_ROWS = invalid("import.empty", "There are no rows in the file.")

IMPORT_UNKNOWN_FORMAT = invalid(
    "import.unknown_format",
    "This is {what}. Send CSV or JSON Lines, plain or in a gzip or zip file.",
    what="a PDF",
)
IMPORT_JSON_ARRAY = invalid(
    "import.json_array",
    "JSON is read one object per line (JSON Lines), not as one array or document.",
)
IMPORT_NO_READABLE_ROW = invalid(
    "import.no_readable_row",
    "No row of the file can be read. Line {line}: {reason}",
    line=1,
    reason="Not JSON: unexpected end of data.",
)
IMPORT_EXPANDS_TOO_MUCH = invalid(
    "import.expands_too_much", "The file expands to {how}.", how="more than 200 times its size"
)
IMPORT_TOO_MANY_ADDRESSES = invalid(
    "import.too_many_addresses", "The file has more addresses than fit here. Send it in parts."
)
IMPORT_GZIP_MEMBERS = invalid(
    "import.expands_too_much",
    "The gzip file has more than {most:,} members; compress it in one piece.",
    most=1_000_000,
)
IMPORT_DAMAGED = invalid("import.damaged", "The {container} file is damaged.", container="gzip")
IMPORT_TRUNCATED = invalid(
    "import.truncated", "The {container} file ends too early.", container="zip"
)
IMPORT_ARCHIVE_MANY_FILES = invalid(
    "import.archive_many_files",
    "The zip file holds {count} files ({names}); send one with a single file.",
    count=2,
    names="a.csv, b.csv",
)
IMPORT_ARCHIVE_DIRECTORY = invalid(
    "import.archive_many_files", "The zip file's directory is too large."
)
IMPORT_ARCHIVE_ENCRYPTED = invalid("import.archive_encrypted", "The zip file asks for a password.")

IMPORT_MAPPING = malformed("import.mapping", "query.mapping must be a JSON object of strings.")
IMPORT_MAPPING_OPTION = malformed("import.mapping", "--mapping must be a JSON object of strings.")
IMPORT_MAPPING_COLUMN = invalid(
    "import.mapping_column",
    "The mapping names {column!r}, which the file has not. {columns}",
    column="Mail",
    columns="The columns are: 'First', 'Phone'.",
)
IMPORT_MAPPING_ROLE = invalid(
    "import.mapping_role",
    "{role!r} is no role of a column; those are {roles}.",
    role="mail",
    roles="email, name, ignore",
)
IMPORT_MAPPING_ROLE_TWICE = invalid(
    "import.mapping_role", "The mapping names two columns as {role}.", role="email"
)
IMPORT_MAPPING_FIELD = invalid(
    "import.mapping_field",
    "The mapping names the field {key!r}, which you don't have. Make it first, or ask for "
    "create_fields; a key is a letter and up to 39 letters, digits and underscores.",
    key="company",
)
IMPORT_TOO_MANY_FIELDS = invalid(
    "import.too_many_fields",
    "The file has columns for {count} new fields, and you may have {room} more: {names}. Map "
    "others to ignore.",
    count=53,
    room=48,
    names="'Company', 'Country'",
)
IMPORT_DATE_ORDER_NEEDED = invalid(
    "import.date_order_needed",
    "Dates such as {cell} in the column {column!r} may begin with the day or with the month. Say "
    "which: date_order=dmy or date_order=mdy.",
    column="Joined",
    cell="03/04/2025",
)
IMPORT_ENCODING_NEEDED = invalid(
    "import.encoding_needed",
    "The encoding of the file is not certain. Compare the rows in each possible encoding, and "
    "choose the right one: {encodings}.",
    encodings="encoding=cp1250, encoding=mac-roman",
)
IMPORT_ENCODING = invalid_at(
    "query.encoding", "import.encoding", "must be one of {encodings}", encodings="utf-8, cp1252"
)
IMPORT_MAPPING_TYPE = invalid(
    "import.mapping_type",
    "The mapping names the type {type!r} for the field {key!r}. {rule}",
    type="date",
    key="company",
    rule="The field's type is text.",
)
IMPORT_COLUMN_AMBIGUOUS = invalid(
    "import.column_ambiguous",
    "The column {column!r} states consent or opting out, but its name doesn't say what a yes "
    "means. Map it to subscribed, unsubscribed, confirmed, status or ignore.",
    column="Opt-in/Opt-out",
)
IMPORT_STATUS_VALUES = invalid(
    "import.status_values",
    "status_values must be a JSON object that maps each value to a status. {reason}",
    reason="'unsubscribed' is an opt-out and can't become subscribed.",
)
IMPORT_NO_EMAIL_COLUMN = invalid(
    "import.no_email_column",
    "No column is known to hold e-mail addresses. {columns} Name one in the mapping, or call it "
    "email.",
    columns="The columns are: 'First', 'Phone'.",
)

MEMBERS_TOO_MANY = too_large(
    "members.too_many", "A request has at most {most:,} members.", most=100_000
)
MEMBERS_ALL_INVALID = invalid(
    "members.all_invalid", "None of the members has a valid e-mail address."
)
