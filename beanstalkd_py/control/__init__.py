"""The control socket: how the administrator's commands and the server talk beside the protocol."""
