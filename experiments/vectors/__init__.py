"""Numbers and several labels: what private averages of neighbours are worth."""
