"""Credits: a ledger to which entries are only ever added, and a balance that follows from them."""
