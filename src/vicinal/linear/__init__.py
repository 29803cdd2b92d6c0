"""The private model: linear in public features, trained with noise, beside the neighbours."""
