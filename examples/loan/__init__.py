"""A loan application at a bank: decisions of the bank, work of its people."""
