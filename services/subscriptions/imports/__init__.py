"""Imports: add many members to one list. Each row counts once, even if workers are killed.

- ``accepting`` stores the file and its import, and enqueues the job of ``import_job``.
- ``formats`` recognises the form of the file, and reads its rows.
- ``judging`` judges the rows without the database. ``file_rows`` and ``request_rows`` collect them
  in chunks.
- ``helper_jobs`` apply the stored chunks. ``applying`` writes a chunk in one transaction.
- ``endings`` ends the import.

A file that can't be read to its end changes nothing. A dry run does the same as an import, but
changes nothing. Its file is kept for some time, so that ``records.read_again`` can read it with
other options or import it.
"""
