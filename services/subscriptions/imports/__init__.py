"""Imports members from a file or a request into one list.

Each row of an import is counted once, even if a worker is killed.

This list names the modules in the order in which the import of a file uses them.

- ``accepting`` stores the import of an uploaded file, and enqueues the job that
  ``import_job`` runs.
- ``formats`` opens the file with ``containers``, ``decoded_text``, ``line_blocks``, ``dialect``,
  and ``csv_reader`` or ``json_lines_reader``.
- ``column_layout``, ``consent_columns``, ``field_columns`` and ``column_plan`` assign a role to
  each column of the file.
- ``row_mapper`` converts each record of the file into a row, with ``member_names``,
  ``consent_interpreter`` and ``row_extras``.
- ``suppression_files`` adds to each row in files of suppressions, bounces or complaints the reason
  for not mailing the person.
- ``judging`` validates each row without accessing the database.
- ``file_rows`` collects the validated rows in chunks, which ``stored_chunks`` stores.
- ``helper_jobs`` claims the chunks, and ``applying`` writes each chunk in one transaction.
- ``endings`` records the result of the import.
- ``undo`` can reverse an import that has ended.

An imported file is read to its end before the first chunk is applied, so that an unreadable file
changes nothing. If a request contains the members, ``request_rows`` replaces the modules that read
a file. A dry run of an import changes nothing. The file of a dry run is stored for a day, so that
``records`` can start a job that reads the file with different options.
"""
