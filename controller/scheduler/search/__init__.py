"""Who has to go so that a waiting job can run: KAI's search where rules say so, else the cheapest set of victims. Pure."""
