"""Budgets that outlive a query: registers of subjects, and their remaining units by audience."""
