"""Tables, figures, scripts and the template of the findings."""
