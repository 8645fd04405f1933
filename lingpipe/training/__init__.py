"""Training: experiments and their names, the loop, and what a run takes along when resumed."""
