"""Subscriptions, which are the records of people on lists, and the rules for changing them.

Code that activates a subscription or enables mail must lock the subscription, check opt-outs, and
record the change. Before changing a subscription, the code locks the pair of list and person
(``locks``). Before enabling mail, the code checks the person's opt-outs (``opt_out_checks``). After
changing a subscription, the code records the change in the history (``changes``).
"""
