"""A policy while it acts: its account balances and their effect on its attention, on one page."""
