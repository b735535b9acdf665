"""Deletes personal data when a person is erased, or when the retention period of the data ends.

To erase a person, Pressroom first marks the person as erased in a short transaction (``erasure``).
An erased person can't log in. As soon as a person is marked as erased, the person's e-mail address
can be registered by someone else, and nothing more is written about the person. After a person has
been marked as erased, a job erases the person's remaining rows in batches (``stages``).
"""
