"""Budgets that outlive a query: who has how much left, who came and who went."""
