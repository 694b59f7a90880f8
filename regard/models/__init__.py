"""Models: from the RNN encoder–decoder to the Vision Transformer, all on the one formula."""
