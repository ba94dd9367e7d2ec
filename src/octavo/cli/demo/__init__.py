"""`octavo demo`: the command, what its steps share, and the steps."""
