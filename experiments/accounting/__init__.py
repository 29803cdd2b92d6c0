"""What plans cost: the papers' printed epsilons against ours, and their figures."""
