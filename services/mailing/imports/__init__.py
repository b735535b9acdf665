"""Bringing many members to a list: each row once, whatever is killed meanwhile.

A file is stored while it arrives (``arriving``). Its job reads it once, into numbered chunks of
judged rows (``splitting``), and only then applies those, one chunk a transaction (``applying``), so
that a file which can't be read to its end changes nothing. Members of one request come in by the
same door. Every few seconds the job goes to the end of its lane (``running``).
"""
