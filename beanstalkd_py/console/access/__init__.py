"""Who may do what: accounts, sessions, and checks of requests from browsers."""
