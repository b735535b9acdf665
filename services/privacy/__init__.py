"""Deletes personal data when a person is erased, or when the retention period of the data ends.

An erasure first marks the person as erased in a short transaction (``erasure``). An erased person
can't log in, and no new data about the person is stored. The e-mail address of an erased person can
be registered again. A job then erases the person's remaining rows in batches (``stages``).
"""
