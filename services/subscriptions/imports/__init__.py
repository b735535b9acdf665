"""Imports: many members added to one list, each row exactly once, even when workers are killed.

A file is stored while it arrives (``records``). Its job first reads the file to its end and writes
numbered chunks of judged rows (``split``), and then applies one chunk a transaction (``apply``,
``helpers``), so that a file which can't be read to its end changes nothing. The members of one
request take the same way. Every few seconds the job goes to the end of its queue (``import_jobs``).

A dry run does the same and changes nothing. Its file stays for a while, so that another job can
read it again: by another mapping, or to add its members (``records.read_again``).
"""
