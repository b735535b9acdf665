"""Imports members into a list from an uploaded file or from an API request.

No row is counted twice, even if a worker is killed during an import.

- ``accepting`` stores an import, and enqueues the job that ``import_job`` runs.
- ``formats`` reads the records of a file: CSV, JSON Lines, or an Excel workbook.
- ``columns`` assigns a role to each column, and reads names, dates, consent and own fields.
- ``file_rows`` and ``request_rows`` form chunks of rows that ``chunks`` has validated.
- ``file_source`` stores the chunks of a file. ``helper`` claims and applies them.
- ``request_source`` applies the chunks of a request.
- ``endings`` records the result, and ``undo`` takes the import back.

The whole file is read before any member is added, so that an unreadable file changes nothing. A dry
run changes no members. The file of a dry run is kept for a day, so that the owner can import the
file without a second upload.
"""
