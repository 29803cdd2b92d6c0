"""How a report looks: its words, its plots, its HTML."""
