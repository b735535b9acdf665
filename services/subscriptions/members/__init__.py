"""Changes subscriptions, which are the records of people on lists.

Code that activates a subscription or enables mail must first lock the subscription and check
opt-outs, and then record the change. A sender is a registered source of reports, such as a mail
provider.
"""
