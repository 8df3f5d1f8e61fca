"""Texts to vectors: encoders, their cache, PCA, and how alike two texts are."""
