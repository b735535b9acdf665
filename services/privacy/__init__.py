"""Deletes personal data when a person is erased, or when the retention period of the data ends.

To erase a person, a short transaction first marks the person as erased (``erasure``). An erased
person can't log in. After an erasure, a different person can register the e-mail address, and
nothing more is written about the erased person. After a person has been marked as erased, a job
erases the person's remaining rows in batches (``stages``).
"""
