"""What to ask: who answers what, how many answers to buy, and which one next."""
