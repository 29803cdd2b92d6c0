"""Query answering: from integer features to noisy answers, charged before release."""
