"""Encrypted backups of the database and the bucket.

A backup first dumps the database and then copies the objects of the bucket. An object is written
before the row that refers to it, and removed after this row. While a backup is created, no object
is removed (``services.removals``). The copy therefore contains every object to which the dump
refers. Objects never change, so an object that an earlier backup contains isn't copied again.

A journal records the people who unsubscribe or are erased after a backup. Restoring a backup
replays the journal, so that these people stay away.

The files of a backup are in the folder ``backups/<id>/``. The objects of all backups are in
``objects/``, and the journal is in ``journal/``. The file ``manifests/<id>`` is written last, so an
incomplete backup has no manifest and doesn't count.
"""
