"""Subscriptions: the records of people on lists, and the rules for changing a record.

Code that activates a subscription or enables mail must do three things. The code locks the pair of
list and person (``locks``). The code checks the person's opt-outs (``opt_out_checks``). The code
records the change in the history (``changes``).
"""
