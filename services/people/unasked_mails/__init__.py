"""Mail that a stranger can have sent to any address: what it may say, and how much of it there is.

A stranger chooses the address, and the title of a list. So no subject has a stranger's word in it,
titles are shown as quotations that lead nowhere, and mails are counted by mailbox, domain, list and
network.
"""
