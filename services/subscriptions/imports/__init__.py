"""Imports: many members added to one list, each row exactly once, even when workers are killed.

The path of an import through the modules:

1. ``records`` stores the file while it arrives, and enqueues a job.
2. ``formats`` opens the file: ``containers`` → ``decoded_text`` → ``line_blocks`` → ``dialect`` →
   ``csv_reader`` or ``json_lines_reader``.
3. ``column_layout``, ``consent_columns`` and ``field_columns`` assign a role to each column.
4. ``row_mapper`` converts each record into a row of ``rows``, with ``member_names``,
   ``consent_interpreter`` and ``row_extras``. For other kinds of files, ``suppression_files`` adds
   the reasons.
5. ``split`` judges each row and stores numbered chunks of judged rows.
6. ``apply`` applies one chunk per transaction, and ``helper_jobs`` applies chunks in parallel.
7. ``endings`` records the result. ``undo`` can reverse an import later.

The file is read to its end before the first chunk is applied, so that an unreadable file changes
nothing. The members of one request take the same path from step 5. A dry run changes nothing. Its
file is stored for a while, so that another job can read the file again with other options.
"""
