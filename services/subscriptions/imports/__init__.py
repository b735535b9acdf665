"""Imports members from an uploaded file or from an API request into one list.

Even if a worker is killed during an import, no row is counted twice.

The import of a file uses the modules in the following order.

- ``accepting`` stores the import of an uploaded file, and enqueues the job that ``import_job``
  runs.
- ``formats`` opens the file with the help of ``containers``, ``decoded_text``, ``line_blocks``,
  ``dialect``, and ``csv_reader`` or ``json_lines_reader``.
- ``column_layout``, ``consent_columns``, ``field_columns`` and ``column_plan`` assign a role to
  each column of the file.
- ``row_mapper`` converts each record of the file into a row, with ``member_names``,
  ``consent_interpreter`` and ``row_extras``.
- ``suppression_files`` finds out why each person in a file of suppressions, bounces or complaints
  must not receive mail.
- ``judging`` validates each row of the file without accessing the database.
- ``file_rows`` groups the validated rows into chunks, which ``stored_chunks`` stores.
- ``helper_jobs`` claims the stored chunks of rows, and ``applying`` writes each chunk to the
  database in one transaction.
- ``endings`` records the result of the import.
- ``undo`` removes the added members and restores the changed members after the import has ended.

An imported file is read to its end before any member is added, so that an unreadable file changes
nothing. If an API request contains the members, the import reads the request with ``request_rows``,
and uses no module that reads a file. A dry run of an import changes no members. The file of a dry
run is stored for a day, so that the owner can import the file without uploading it a second time.
"""
