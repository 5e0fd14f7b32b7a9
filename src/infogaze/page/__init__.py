"""A page on which models look, in the visitor's browser; a static folder that any web server can serve."""
