"""Claims about what is learned: parity with backprop, depth, sequences, order of rules, forgetting."""
