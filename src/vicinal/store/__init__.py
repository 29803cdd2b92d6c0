"""A store: private records on disk, budgets that outlive the process, and people who can leave."""

from vicinal.store.counter import DEFAULT
from vicinal.store.extractors import Extractor
from vicinal.store.facts import Presence, Quota
from vicinal.store.requests import Query, Reply
from vicinal.store.store import Store
from vicinal.store.verify import Verification

__all__ = ["DEFAULT", "Extractor", "Presence", "Query", "Quota", "Reply", "Store", "Verification"]
