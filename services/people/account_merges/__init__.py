"""An account moves to an address that has a record of its own: what is asked, proved and agreed.

Nobody learns by asking whether an address is known: its reader gets the same link in each case.
Once they have confirmed it, in a browser where the account's person is logged in, that person
hears of the other record. A link to the account's present address then proves that one too.
``services.merging`` makes one record of the two, once the change can't be undone any more.
"""
