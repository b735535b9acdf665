"""Creates, verifies and restores encrypted backups of the database and the object storage.

A backup first dumps the database, and afterwards copies the objects in the bucket of the object
storage. A worker stores an object before it writes the database row that refers to the object. A
backup contains every object to which its database dump refers, because no object is removed while
the backup is created (``services.removals``). Objects never change, so a backup copies only the
objects that no earlier backup has copied.

The journal records people who unsubscribe or are erased. Restoring a backup replays the journal, so
that unsubscriptions and erasures that happened after the backup are not lost.

The files of a backup are in the folder ``backups/<id>/``. The folder ``objects/`` contains the
objects of all backups. The folder ``journal/`` contains the journal. A backup writes its manifest,
``manifests/<id>``, last. A backup without a manifest is incomplete and is ignored.
"""
