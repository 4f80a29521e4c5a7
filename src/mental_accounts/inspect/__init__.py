"""A policy while it acts: what its accounts hold and what they do to its attention, as one page."""
