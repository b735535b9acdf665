"""What the pages of the owner's console have in common: their frame, forms, and the words of data.

A page is a route in ``api/routers/console`` and a template in ``templates/``.
"""
