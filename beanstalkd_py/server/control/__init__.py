"""The server's side of the control socket."""
