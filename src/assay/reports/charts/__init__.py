"""Server-drawn SVG: readable without JavaScript, printable, each chart with a title, a description and a table twin."""
