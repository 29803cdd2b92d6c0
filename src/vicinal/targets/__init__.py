"""What records carry, and what answers make of it: classes, numbers, several labels."""
