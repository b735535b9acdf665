"""Imports members into a list from an uploaded file or from an API request.

No row is counted twice, even if a worker is killed during an import.

The import of a file uses the modules in the following order.

- ``accepting`` stores the import of an uploaded file, and enqueues the job that ``import_job``
  runs.
- ``formats`` opens the file, with ``containers``, ``decoded_text``, ``line_blocks``, ``dialect``,
  and ``csv_reader`` or ``json_lines_reader``. The package ``workbooks`` reads Excel files.
- ``column_layout``, ``consent_columns``, ``field_columns`` and ``column_plan`` assign a role to
  each column.
- ``row_mapper`` converts records into rows, with ``member_names``, ``consent_interpreter`` and
  ``row_extras``.
- ``suppression_files`` finds out why the people in a file of suppressions, bounces or complaints
  must not receive mail.
- ``judging`` validates each row without accessing the database.
- ``file_rows`` groups the validated rows into chunks, which ``stored_chunks`` stores.
- ``helper`` claims chunks, and ``applying`` writes each chunk to the database in one
  transaction.
- ``endings`` records the result of the import.
- ``undo`` removes the added members and restores the changed members if the owner undoes the
  import.

The whole file is read before any member is added, so that an unreadable file changes nothing. The
module ``request_rows`` reads the members in an API request, and uses none of the modules that read
files. A dry run changes no members. The file of a dry run is kept for a day, so that the owner can
import the file without a second upload.
"""
