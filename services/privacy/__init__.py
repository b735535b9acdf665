"""Deletes personal data when a person is erased, or when the retention period of the data ends.

An erasure first marks the person as erased in a short transaction (``erasure``). An erased person
can't log in, and nothing more is written about the person. The e-mail address of an erased person
can be registered again. After the first transaction, a job erases the person's remaining rows in
batches (``stages``).
"""
