"""Learning: how gradients become new weights: the learner, optimizers and learning rates."""
