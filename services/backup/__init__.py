"""Creates, verifies and restores encrypted backups of the database and the object storage.

A backup first dumps the database, and then copies the objects in the bucket. An object is always
stored before the row that refers to it, and no object is removed during a backup
(``services.removals``). A backup contains every object to which its database dump refers. Objects
never change, so each object is copied only once for all backups.

The journal records people who unsubscribe or are erased. A restore replays the journal, so that
unsubscriptions and erasures after the backup aren't lost.

The files of a backup are in the folder ``backups/<id>/``. All backups share the folder ``objects/``
for their objects. The journal is in the folder ``journal/``. The manifest of a backup,
``manifests/<id>``, is written last, so a backup without a manifest is incomplete and is ignored.
"""
