"""What a plan may expect, and what each choice in it costs and buys."""
