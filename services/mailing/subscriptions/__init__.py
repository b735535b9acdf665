"""Who subscribes to which list, and who may change that.

Whatever makes a subscription active, or switches its mail on, reads the person's opt-outs first
(``opt_outs``), under the pair's lock (``locks``), and notes what it did (``changes``).
"""
