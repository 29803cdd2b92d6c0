"""Budgets that outlive a query: who has how much left, who came and who went."""

from vicinal.ledger._memory import MemoryLedger
from vicinal.ledger._protocols import Account, Register

__all__ = ["Account", "MemoryLedger", "Register"]
