"""Plans: checked parameters and public facts become budgets, neighbours, noise and an engine."""
