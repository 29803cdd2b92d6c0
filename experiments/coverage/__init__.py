"""Coverage and size of certified prediction sets, in simulated worlds and on public data."""
