"""Numbers and words: what private averages and keywords of neighbours are worth."""
