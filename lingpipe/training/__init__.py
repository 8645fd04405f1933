"""Training: experiments and their names, what is learned, the loop, and what goes from one run to the next."""
