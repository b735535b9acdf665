"""Imports: add many members to one list. Each row is counted once, even if workers are killed.

An import passes through these modules:

1. ``accepting`` stores the import of an uploaded file, and enqueues the job of ``import_job``. 2.
   ``formats`` opens the file with ``containers``, ``decoded_text``, ``line_blocks``, ``dialect``,
   and ``csv_reader`` or ``json_lines_reader``. 3. ``column_layout``, ``consent_columns``,
   ``field_columns`` and ``column_plan`` assign a role to each column. 4. ``row_mapper`` converts
   each record into a row of ``rows``, with ``member_names``, ``consent_interpreter`` and
   ``row_extras``. In files of suppressions, bounces or complaints, ``suppression_files`` adds the
   reason to each row. 5. ``judging`` judges each row without the database. ``file_rows`` collects
   the rows in chunks, which ``stored_chunks`` stores. 6. ``helper_jobs`` claims the chunks, and
   ``applying`` writes each chunk in one transaction.
7. ``endings`` records the result. ``undo`` can reverse an import later.

The file is read to its end before the first chunk is applied, so that an unreadable file changes
nothing. If a request contains the members, ``request_rows`` replaces steps 2 to 5. A dry run
changes nothing. The file of a dry run is stored for a day, so that ``records`` can start another
job that reads the file with other options.
"""
