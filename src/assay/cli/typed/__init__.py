"""What a person types, understood: options and their help, several values, older flags, objects by path."""
