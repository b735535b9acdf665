"""Bulk acts: what an owner does to all members of a list that fit a filter, and its undo.

An act is a row and a job (``accepting``). The job goes through the list in batches, in the order of
the members' ids (``acting``). A batch is one transaction under the list's lock: it writes what was
before for each member that it changes, and how far it came. So a worker that dies leaves whole
batches, and no member is changed twice. The undo (``undoing``) goes through what was written.
"""
