"""The erasure of a person: nothing that identifies them stays, and their opt-outs still hold.

One short transaction marks the person (``marking``). From its commit on they are erased for all
code: they can't log in, their address is free, nothing is written about them. A job then goes
through what is left of them in batches (``stages``, ``erasing``), however much that is.
"""
