"""Backups of the database and the bucket, encrypted, with a journal of who left since.

A backup has the dump first and then the objects. An object is written before the row that names it,
and removed after that row is gone; while a backup is made, nothing is removed (``removals``). Each
object that the dump names is therefore in the bucket when it is copied. An object never changes:
one that an earlier backup has is not copied again.

``manifests/<id>`` comes last, so a backup is whole or is none. The parts of a backup lie under
``backups/<id>/``, the objects of all backups under ``objects/``, the journal under ``journal/``.
"""
