"""Credits as the console tells them: amounts, the ledger, orders and their receipts."""
