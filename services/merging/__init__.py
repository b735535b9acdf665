"""The merge of a record that lists made of a person into the record of their account.

The person proved both addresses (``services.people.account_merges``). Once the change of address
can't be undone any more, one short transaction marks the other record: from its commit on nothing
is written about it, and whoever names it by a mailed trace id finds the account's person. A job
then goes through what it left behind in batches, however much that is, as an erasure does.
"""
