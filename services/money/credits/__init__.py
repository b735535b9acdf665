"""Credits: a ledger to which entries are only added, and a balance that follows from them."""
