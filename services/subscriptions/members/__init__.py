"""Changes subscriptions, which are the records of people on lists.

Code that activates a subscription or enables mail must first lock the subscription and check
opt-outs, and then record the change. The module ``locks`` locks subscriptions, ``opt_out_checks``
checks opt-outs, and ``changes`` records changes.
"""
