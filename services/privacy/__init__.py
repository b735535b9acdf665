"""Deletes personal data when a person is erased, or when the retention period of the data ends.

An erasure first marks the person as erased in a short transaction (``erasure``). From then on, the
person can't log in, nothing more is written about the person, and the e-mail address can be
registered again. Afterwards, a job erases the person's remaining rows in batches (``stages``).
"""
