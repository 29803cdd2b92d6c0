"""Tables that no constant was chosen on, and what is made of them with and without privacy."""
