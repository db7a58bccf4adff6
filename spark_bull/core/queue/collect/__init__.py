"""The ledger of a reader of results, and the rows that it reads."""
