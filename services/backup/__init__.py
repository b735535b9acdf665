"""Creates, verifies and restores encrypted backups of the database and the object storage.

A backup first dumps the database and then copies the objects in the bucket of the object storage. A
worker writes an object before the database row that refers to the object. A backup contains every
object to which its database dump refers, because no object is removed while the backup is created
(``services.removals``). Objects never change, so a backup doesn't copy an object that an earlier
backup contains.

A journal records the people who unsubscribe or are erased after a backup. Restoring a backup
replays the journal, so that unsubscriptions and erasures after the backup take effect again.

The files of a backup are in the folder ``backups/<id>/``. The folder ``objects/`` contains the
objects of all backups, and the folder ``journal/`` contains the journal. The manifest of a backup,
``manifests/<id>``, is written last. A backup without a manifest is incomplete and is ignored.
"""
