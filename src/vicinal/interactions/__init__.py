"""Recognition of a second fit on the same records. No guarantee depends on it."""
