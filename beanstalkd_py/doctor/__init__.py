"""What is good and bad for a server on this machine and its folder. Looks, and changes nothing."""
