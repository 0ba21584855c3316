"""What a person sees: the console, words and signs of a verdict, progress, streams and signals."""
