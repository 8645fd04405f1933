"""Training: experiments and their names, the loop, and what a resumed run restores."""
