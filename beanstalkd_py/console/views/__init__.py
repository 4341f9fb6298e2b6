"""What the pages show, read from one server: one module for each kind of page."""
