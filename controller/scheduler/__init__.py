"""The scheduler: a pure cycle (snapshot -> shares -> decisions), and the thin shell around it."""
