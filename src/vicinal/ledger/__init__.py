"""Budgets that outlive a query: who has how much left, who came and who went."""

from vicinal.ledger.memory import MemoryLedger

__all__ = ["MemoryLedger"]
