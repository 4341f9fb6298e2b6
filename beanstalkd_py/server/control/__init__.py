"""The control socket of the server: admin requests and their replies."""
