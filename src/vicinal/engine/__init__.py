"""The way of a query: from integer features to a noisy answer, charged before it leaves."""
