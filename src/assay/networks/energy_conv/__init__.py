"""The convolutional energy network: model, its links, and the nudged phase written out."""
