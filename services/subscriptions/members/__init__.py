"""Subscriptions: which person is on which list, and which acts may change that.

Code that makes a subscription active, or switches its mail on, takes the lock on the pair of list
and person (``locks``), checks the person's opt-outs (``opt_out_checks``), and notes the change
(``changes``).
"""
